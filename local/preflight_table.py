"""What preflight says of a stack's file, as rows and as a table; no engine, no cluster, no account."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from fleet import known_answers, model_repository, names, preflight, preflight_observe, settings
from fleet.faults import Refused
from fleet.faults import table as fault_table
from local import stack
from local.errors import LocalError
from local.state import PROJECT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from fleet.faults import Fault
    from fleet.settings import Settings

REFUSED: Final = "refused"
WARNING: Final = "warning"
COLUMNS: Final = ("verdict", "setting", "what")
WIDTH_CHARS: Final = 120
PARTS: Final = ("got", "limit", "why", "fix")


def rows(name: str, project: Path = PROJECT) -> list[dict[str, str]]:
    """One row per fault, refusals first, in the order that the program names them in."""
    tracked = stack.tracked_settings(name, project)
    config: dict[str, Any] = stack.read_settings(tracked).get("config") or {}
    encrypted = {path.removeprefix(f"{names.CONFIG_NAMESPACE}:") for path in stack.secure_paths(config)}
    refusals, warnings = _judged(name, stack.without_secure(config), encrypted, project)
    return [_row(REFUSED, fault) for fault in refusals] + [_row(WARNING, fault) for fault in warnings]


def accepted(name: str, project: Path = PROJECT) -> Settings:
    """A stack's settings, its encrypted values replaced; LocalError where preflight refuses them."""
    config = stack.without_secure(stack.read_settings(stack.tracked_settings(name, project)).get("config") or {})
    try:
        loaded = settings.load(settings.from_config(config), project)
        faults = preflight.check(loaded, project).refusals
    except Refused as refused:
        faults = tuple(refused.faults)
    if faults:
        raise LocalError(
            f"stack {name} is refused", fix=f"see `make preflight STACK={name}`", details=fault_table(faults)
        )
    return loaded


def _judged(
    name: str, config: dict[str, Any], encrypted: Collection[str], project: Path
) -> tuple[Sequence[Fault], Sequence[Fault]]:
    unread = settings.unread(config)
    try:
        loaded = settings.load(settings.from_config(config), project)
    except Refused as refused:
        return refused.faults, unread
    verdict = preflight.check(loaded, project)
    refusals = [*settings.of_another_stack(name, loaded.environment), *verdict.refusals]
    for model in loaded.models if not refusals else ():
        refusals += known_answers.read(model_repository.read(project, model.repository))[1]
    return refusals, [*unread, *verdict.warnings, *preflight_observe.readable(loaded, encrypted)]


def _row(verdict: str, fault: Fault) -> dict[str, str]:
    return {"verdict": verdict, "setting": fault.setting, **{part: getattr(fault, part) for part in PARTS}}


def table(name: str, rows: Sequence[dict[str, str]]) -> str:
    """The rows below each other, wrapped to a terminal."""
    counted = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in (REFUSED, WARNING)}
    summary = f"preflight of stack {name}: {counted[REFUSED]} refused, {_counted(counted[WARNING], 'warning')}"
    if not rows:
        return summary
    first = max(len(COLUMNS[0]), *(len(row["verdict"]) for row in rows))
    second = max(len(COLUMNS[1]), *(len(row["setting"]) for row in rows))
    left = first + second + 4
    lines = [f"{COLUMNS[0]:<{first}}  {COLUMNS[1]:<{second}}  {COLUMNS[2]}", "-" * WIDTH_CHARS]
    for row in rows:
        texts = [line for part in PARTS for line in _wrapped(part, row[part], max(WIDTH_CHARS - left, 40))]
        lines.append(f"{row['verdict']:<{first}}  {row['setting']:<{second}}  {texts[0]}")
        lines += [" " * left + text for text in texts[1:]]
    return "\n".join([*lines, "-" * WIDTH_CHARS, summary])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _wrapped(part: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(f"{part + ':':<6} {text}", width, subsequent_indent=" " * 7, break_on_hyphens=False)
