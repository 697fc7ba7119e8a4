"""Whether the charts that the settings name are to be had."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from fleet.catalog.charts import CHARTS
from fleet.faults import Fault, path_text, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.schema import Charts


def refusals(charts: Charts, project: Path) -> Iterator[Fault]:
    """Overrides of charts that there are not, and a folder that is not there; `project` is what paths begin at."""
    for name in charts.overrides:
        if name not in CHARTS:
            close = difflib.get_close_matches(name, CHARTS, n=1)
            yield Fault(
                path_text(("charts", "overrides", name)),
                f"a chart named {shown(name)}",
                f"one of {', '.join(CHARTS)}",
                "the stack installs no chart of that name, and the override would silently do nothing",
                f"did you mean '{close[0]}'?" if close else "remove it",
            )
    if charts.mirror is not None and "://" not in charts.mirror and not _is_folder(project / charts.mirror):
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
