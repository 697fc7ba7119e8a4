"""Helm charts: where upstream keeps each, and which version is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.catalog import data

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, pinned."""

    repository: str
    version: str


CHARTS: Final[Mapping[str, Chart]] = {
    name: Chart(chart["repository"], chart["version"]) for name, chart in data.load("charts.yaml").items()
}
