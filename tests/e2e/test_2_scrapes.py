"""The metric contract, live: recorded scrapes are what real programs say. After the main job, on its cluster."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests import scrapes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

PROMETHEUS = "/api/v1/namespaces/monitoring/services/prometheus-kube-prometheus-prometheus:9090/proxy"
SCRAPED = [
    "tests/data/scrapes/triton.txt",
    "tests/data/scrapes/kube-state-metrics.txt",
    "tests/data/scrapes/prometheus.txt",
    "tests/data/scrapes/alertmanager.txt",
    "local/charts/dcgm-exporter/files/recorded-scrape.txt",
]
"""Those of programs that run here. DCGM exporter's is played by a stand-in, whose labels are compared."""

SETTLED_WITHIN_S = 90


def live(get: Callable[[str], str], match: str) -> dict[str, set[str]]:
    """Series that Prometheus has now, with the labels of their samples."""
    answer = json.loads(get(f"{PROMETHEUS}/api/v1/query?query={quote(match)}"))
    found: dict[str, set[str]] = {}
    for one in answer["data"]["result"]:
        labels = one["metric"]
        found.setdefault(labels["__name__"], set()).update(labels.keys() - {"__name__"})
    return found


@pytest.mark.parametrize("name", SCRAPED)
def test_a_recorded_scrape_is_what_is_scraped(checkout: Checkout, project: Path, name: str) -> None:
    """Autoscalers tell what they read a while after the metrics API is back, which a test before this one took away."""
    metrics = "|".join(scrapes.parse((project / name).read_text()))
    until = time.monotonic() + SETTLED_WITHIN_S
    while True:
        found = live(lambda path: checkout.kubectl("get", "--raw", path), f'{{__name__=~"{metrics}"}}')
        differences = scrapes.differences(project, name, found)
        if not differences or time.monotonic() > until:
            break
        time.sleep(2)
    assert differences == []


def test_triton_says_nothing_that_was_not_recorded(checkout: Checkout, project: Path) -> None:
    found = live(lambda path: checkout.kubectl("get", "--raw", path), '{__name__=~"nv_.*"}')
    assert found.keys() == scrapes.parse((project / "tests/data/scrapes/triton.txt").read_text()).keys()


def test_the_api_server_says_which_apis_it_cannot_reach(checkout: Checkout, project: Path) -> None:
    """It is not scraped here; on a cluster of EKS it is."""
    text = "\n".join(
        line for line in checkout.kubectl("get", "--raw", "/metrics").splitlines() if line.startswith("aggregator_una")
    )
    found = {metric: set(family.labels) for metric, family in scrapes.parse(text).items()}
    assert scrapes.differences(project, "tests/data/scrapes/kube-apiserver.txt", found) == []
