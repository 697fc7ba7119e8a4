"""The simulator against the real kube-controller-manager, Prometheus, adapter and Triton: the same decisions.

A trace is played on the cluster, and simulated with the same manifests. The simulator is told how fast a replica works
and starts, and at which moments the cluster's scrapes, rules and looks came; what it must find is who decides what, and
when.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from fleet.schema_autoscaling import SYNC_S
from local import paced
from local.state import State
from tests.e2e import replay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e


def compare(
    checkout: Checkout, models: list[paced.Paced], users: list[list[int]], duration_s: int, monitoring: dict[str, int]
) -> None:
    """Plays users of the first model on the cluster, and in virtual time."""
    loaded = paced.fleet("replayed", models, monitoring)
    raw: dict[str, Any] = {
        "about": "played on the embedded cluster, too",
        "duration_s": duration_s,
        "loads": [{"model": models[0].name, "users": users}],
    }
    bed = paced.Bed(State(checkout.folder / ".fleet"))
    played = replay.play(bed, loaded, models, raw, before_look_s=1.0)
    raw["speeds"] = [
        {"model": model.name, "sku": sku, "service_s": service_s, "load_s": played.start_s[f"{model.name}-{sku}"]}
        for model in models
        for sku, service_s in model.service_s.items()
    ]
    found = replay.simulated(loaded, raw, played.phases)
    sys.stderr.write(f"\n  cluster   {shown(played.sizes)}\n  simulated {shown(found)}")
    assert played.failures == []
    assert all(len(sizes) > 1 for sizes in played.sizes.values()), "nothing was decided, so nothing was compared"
    assert sizes_of(found) == sizes_of(played.sizes)
    for name, sizes in played.sizes.items():
        for (when, _), (simulated, _) in zip(sizes, found[name], strict=True):
            assert abs(when - simulated) <= SYNC_S, name


def sizes_of(found: Mapping[str, replay.Sizes]) -> dict[str, list[int]]:
    return {name: [size for _, size in sizes] for name, sizes in found.items()}


def shown(found: Mapping[str, replay.Sizes]) -> dict[str, list[str]]:
    return {name: [f"{size} at {when:.1f} s" for when, size in sizes] for name, sizes in found.items()}


def test_the_controller_decides_as_simulated(checkout: Checkout) -> None:
    """Up by two replicas, one a look, and back at once."""
    rules = {"scale_up": {"period_s": 15}, "scale_down": {"window_s": 0, "pods": 2, "period_s": 15}}
    more = {"autoscaling": rules, "placements": [{"sku": "a100-40gb", "replicas": {"min": 1, "max": 3}}]}
    compare(
        checkout,
        [paced.Paced("paced", {"a100-40gb": 0.2}, more)],
        # One replica has 1 of 8 users in work: a ratio of 7. Three have 3 in work, and 5 wait.
        [[5, 8], [48, 0]],
        duration_s=93,
        monitoring={"scrape_interval_s": 5, "evaluation_interval_s": 5, "rate_window_s": 20},
    )


@pytest.mark.soak
def test_the_controller_decides_as_simulated_for_a_quarter_of_an_hour(checkout: Checkout) -> None:
    """Two SKUs, one twice as fast, with the product's intervals and stack `local`'s rules: two waves of load."""
    rules = {"scale_up": {"period_s": 15}, "scale_down": {"window_s": 60, "period_s": 15}}
    placements = [{"sku": sku, "replicas": {"min": 1, "max": 4}} for sku in ("a100-40gb", "h100-80gb")]
    compare(
        checkout,
        [paced.Paced("paced", {"a100-40gb": 0.2, "h100-80gb": 0.1}, {"autoscaling": rules, "placements": placements})],
        [[20, 12], [200, 30], [260, 4], [420, 0], [560, 40], [640, 0]],
        duration_s=900,
        monitoring={},
    )
