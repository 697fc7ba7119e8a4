"""Helm charts: where upstream keeps each, and which version each set of versions has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from fleet.catalog import data

if TYPE_CHECKING:
    from collections.abc import Mapping

Compat = Literal["current", "guide"]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, pinned."""

    repository: str
    versions: Mapping[Compat, str]


CHARTS: Final[Mapping[str, Chart]] = {
    name: Chart(chart["repository"], chart["versions"]) for name, chart in data.load("charts.yaml").items()
}
