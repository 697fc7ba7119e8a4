"""Whether the charts that the settings name are to be had."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from fleet.catalog.charts import CHARTS
from fleet.charts import OCI
from fleet.faults import Fault, path_text, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.schema import Charts

REPOSITORIES: Final = ("https://", "http://", OCI)


def refusals(charts: Charts, project: Path) -> Iterator[Fault]:
    """Overrides that would do nothing, and a mirror that is not there; `project` is what paths begin at."""
    for name, override in charts.overrides.items():
        if name not in CHARTS:
            close = difflib.get_close_matches(name, CHARTS, n=1)
            yield Fault(
                path_text(("charts", "overrides", name)),
                f"a chart named {shown(name)}",
                f"one of {', '.join(CHARTS)}",
                "the stack installs no chart of that name, and the override would silently do nothing",
                f"did you mean '{close[0]}'?" if close else "remove it",
            )
        elif charts.mirror is not None and not charts.mirror.startswith(OCI):
            yield Fault(
                path_text(("charts", "overrides", name)),
                "given",
                "nothing, where charts.mirror is a folder",
                "a folder's chart has its version in itself, and the override would silently do nothing",
                "remove it, and put the chart into the folder in the version that you want",
            )
        elif not override.repository.startswith(REPOSITORIES):
            yield Fault(
                path_text(("charts", "overrides", name, "repository")),
                shown(override.repository),
                f"an address that begins with one of {', '.join(REPOSITORIES)}",
                "Helm finds a chart of a version in a repository; a folder has but one of each",
                "name a repository, or set charts.mirror to the folder that holds all charts",
            )
    if charts.mirror is None or charts.mirror.startswith(OCI):
        return
    if "://" in charts.mirror or not _is_folder(project / charts.mirror):
        yield Fault(
            "charts.mirror",
            shown(charts.mirror),
            "a folder that is there, relative to the project's, or oci://<registry>/<path>",
            "every chart is taken from it",
            "correct the path, or leave charts.mirror out for each chart's own repository",
        )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        # Too long for a path, or with characters that no path has.
        return False
