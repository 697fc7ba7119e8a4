"""Where a Helm chart comes from: its own repository, another by the settings, or a mirror of all charts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.catalog.charts import CHARTS

if TYPE_CHECKING:
    from fleet.schema import Charts

OCI = "oci://"


@dataclass(frozen=True, slots=True)
class Located:
    """A chart as Helm finds it: by name in a repository, or by a reference of its own."""

    chart: str
    version: str | None
    repository: str | None


def locate(charts: Charts, name: str) -> Located:
    """The chart of that name, in the version of the set that the settings choose unless they name another.

    A folder's charts have their version in themselves.
    """
    override, known = charts.overrides.get(name), CHARTS[name]
    version = override.version if override else known.versions[charts.compat]
    where = charts.mirror or (override.repository if override else known.repository)
    if where.startswith(OCI):
        return Located(f"{where.rstrip('/')}/{name}", version, None)
    if charts.mirror is not None:
        return Located(f"{where.rstrip('/')}/{name}", None, None)
    return Located(name, version, where)
