"""`make simulate`: what the autoscalers of a stack will do with a load, before it is deployed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import yaml

from fleet.faults import Refused, table
from fleet.simulate import planning, report
from fleet.simulate.errors import SimulationError
from fleet.simulate.verdicts import verdicts
from fleet.simulate.world import World
from local import preflight_table, stack
from local.errors import LocalError
from local.state import PROJECT, named_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TRACES: Final = PROJECT / "local" / "traces"
JSON: Final = "simulation.json"
PAGE: Final = "simulation.html"


def simulate(name: str, given: str, progress: Callable[[str], None], project: Path = PROJECT) -> None:
    """Replays a trace on a stack's manifests; LocalError where it cannot, or where an expectation does not hold."""
    path = _trace(given)
    loaded = preflight_table.accepted(name, project)
    try:
        trace = planning.read(_content(path))
        run = World(planning.plan(loaded, trace)).run()
    except Refused as refused:
        raise LocalError(
            f"{path} cannot be replayed on stack {name}", fix="correct the trace", details=table(refused.faults)
        ) from None
    except SimulationError as error:
        raise LocalError(f"stack {name} cannot be simulated: {error}", fix="simulate another stack") from error
    found = verdicts(run)
    reports = project / "reports"
    reports.mkdir(exist_ok=True)
    (reports / JSON).write_text(json.dumps(report.data(run, found), indent=1) + "\n")
    (reports / PAGE).write_text(report.page(run, found), encoding="utf-8")
    progress(report.text(run, found))
    progress(f"\nreports/{PAGE} has the plots, reports/{JSON} the data")
    if failed := [one.name for one in found if not one.ok]:
        raise LocalError(
            f"{len(failed)} of {len(found)} expectations of {path.name} do not hold: {', '.join(failed)}",
            fix="change models[].autoscaling or the bounds of stack "
            f"{name}, or what the trace expects, and simulate again",
        )


def _trace(given: str) -> Path:
    """The file, or one of ours by its name."""
    ours = {path.stem: path for path in sorted(TRACES.glob("*.yaml"))}
    path = ours.get(given) or named_path(given, f"TRACE={given}")
    if not given or not path.is_file():
        raise LocalError(
            f"TRACE={given!r} is no file" if given else "make simulate needs TRACE=<file>",
            fix=f"name a file, or one of ours: {', '.join(ours)}",
        )
    return path


def _content(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (*stack.NOT_YAML, OSError) as error:
        raise LocalError(f"{path} cannot be read as YAML: {error}", fix="correct the line that it names") from error
