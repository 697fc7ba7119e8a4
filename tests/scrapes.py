"""Recorded scrapes: which series there are, and which labels tell their samples apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+\S+$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

TARGET: Final = frozenset({"job", "instance", "namespace", "pod", "container", "endpoint"})
"""Labels that the operator gives every target that is a pod."""
SERVICE: Final = TARGET | {"service"}
PLACED: Final = TARGET | {"environment", "sku", "deployed_model"}
"""And those that fleet/scraping.py adds to Triton's."""
EXPORTER: Final = frozenset({"UUID", "device", "modelName", "Hostname", "hostname", "pci_bus_id"})
"""What DCGM exporter writes beside the GPU's number; the recorded lines have it where the stand-in adds it."""
HOLDER: Final = frozenset({"exported_namespace", "exported_pod", "exported_container"})
"""Who holds the GPU: the exporter's labels of that name, renamed since the target has the same."""

SOURCES: Final[Mapping[str, frozenset[str]]] = {
    "tests/data/scrapes/triton.txt": PLACED,
    "tests/data/scrapes/triton-newer.txt": PLACED,
    "tests/data/scrapes/triton-tensorrt-llm.txt": PLACED,
    "tests/data/scrapes/kube-state-metrics.txt": SERVICE,
    "tests/data/scrapes/kube-apiserver.txt": frozenset({"job", "instance", "namespace", "service", "endpoint"}),
    "tests/data/scrapes/prometheus.txt": SERVICE,
    "tests/data/scrapes/alertmanager.txt": SERVICE,
    "tests/data/scrapes/cluster-autoscaler.txt": SERVICE,
    "local/charts/dcgm-exporter/files/recorded-scrape.txt": SERVICE | EXPORTER | HOLDER | {"environment", "node"},
}
"""By file: the labels that a scrape adds to what the program says."""


@dataclass
class Family:
    """A series as scraped: by label, the values that were seen; no value for one that a scrape adds."""

    labels: dict[str, set[str]] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """The series of a scrape by name."""
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        sample = _SAMPLE.match(line)
        if sample is None:
            raise ValueError(f"no sample: {line}")
        family = found.setdefault(sample.group(1), Family())
        for label, value in _LABEL.findall(sample.group(2) or ""):
            family.labels.setdefault(label, set()).add(value)
    return found


def recorded(project: Path) -> dict[str, Family]:
    """All series that some recorded scrape has, with the labels that they have in Prometheus."""
    found: dict[str, Family] = {"up": Family({label: set() for label in PLACED})}
    for name, added in SOURCES.items():
        for metric, family in parse((project / name).read_text()).items():
            for label in added - family.labels.keys():
                family.labels[label] = set()
            found[metric] = family
    return found


def differences(project: Path, name: str, live: Mapping[str, set[str]]) -> list[str]:
    """How a recorded scrape differs from series that Prometheus has now, each with the labels of its samples.

    A label without a value is none, and one that a scrape adds need not be there.
    """
    found = []
    for metric, family in parse((project / name).read_text()).items():
        said = {label for label, values in family.labels.items() if values != {""}}
        if metric not in live:
            found.append(f"{metric} is not there")
        elif not said <= live[metric] <= said | SOURCES[name]:
            found.append(f"{metric} has {sorted(live[metric])}, recorded are {sorted(said)}")
    return found
