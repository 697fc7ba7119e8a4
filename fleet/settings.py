"""Reads a stack's settings, and says all that is wrong with them at once.

The types are `fleet.schema`'s; the rest of the program finds them here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_origin

from pydantic import ValidationError

from fleet import description, names, preflight
from fleet.faults import Fault, Refused, path_text, shown
from fleet.schema import (
    Chart,
    Charts,
    Cluster,
    Images,
    ModelSettings,
    NodeBounds,
    Placement,
    ReplicaBounds,
    Resources,
    Serving,
    Settings,
    Sku,
    Store,
    Taint,
    Verification,
    gpus_per_replica,
)
from fleet.schema_base import FAULT_TYPE

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from fleet.description import Kinds

__all__ = [
    "Chart",
    "Charts",
    "Cluster",
    "Images",
    "ModelSettings",
    "NodeBounds",
    "Placement",
    "ReplicaBounds",
    "Resources",
    "Serving",
    "Settings",
    "Sku",
    "Store",
    "Taint",
    "Verification",
    "from_config",
    "gpus_per_replica",
    "load",
]

REFERENCE = "docs/settings.md"
HOLD_SECRETS = frozenset({"alerts", "monitoring"})
"""Settings with secrets inside: what stands at a wrong place there may be one, so it is never shown."""
UNSET: tuple[object, ...] = ("", None, [], {})
"""Values that stand for a setting left out: Pulumi.yaml's defaults, so that this program, not the engine, says what is
missing, together with everything else."""


def from_config(config: Mapping[str, str]) -> dict[str, object]:
    """The settings among Pulumi's configuration, whose keys are `<namespace>:<key>`; other namespaces are not ours."""
    prefix = f"{names.CONFIG_NAMESPACE}:"
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def load(raw: Mapping[str, object], project: Path) -> Settings:
    """Settings from `raw`, whose structured values may still be JSON text, as Pulumi hands them over.

    Raises `Refused` with every fault: those of single settings and, for what could be read all the same, those that
    `fleet.preflight` finds. Settings that load still have to pass `preflight.check`.
    """
    if not isinstance(raw, Mapping):
        raise Refused([_fault((), "", raw)])
    values, faults = _decoded(raw)
    try:
        return Settings.model_validate({**values, **dict.fromkeys(faults)})
    except ValidationError as error:
        details = error.errors()
    spoilt = {detail["loc"] for detail in details}
    found = list(faults.values())
    for detail in details:
        loc = detail["loc"]
        emptied = detail["type"] == "too_short" and any(other[: len(loc)] == loc != other for other in spoilt)
        if loc[0] not in faults and not emptied:
            found.append(_fault(loc, detail["type"], detail["input"], detail))
    raise Refused([*found, *preflight.refusals(preflight.Draft.of_raw(values), project)])


def _decoded(raw: Mapping[str, object]) -> tuple[dict[str, object], dict[str, Fault]]:
    """Values with JSON text read and unset ones left out, and the faults of what is no JSON, by setting."""
    values: dict[str, object] = {}
    faults: dict[str, Fault] = {}
    for key, value in raw.items():
        field = Settings.model_fields.get(key)
        if field is not None and value in UNSET:
            continue
        values[key] = value
        if isinstance(value, str) and field is not None and get_origin(field.annotation) is not Literal:
            try:
                values[key] = json.loads(value)
            except (ValueError, RecursionError):
                del values[key]
                faults[key] = _fault((key,), "", value)
            else:
                if values[key] in UNSET:
                    del values[key]
    return values, faults


def _fault(loc: tuple[int | str, ...], kind: str, value: object, detail: ErrorDetails | None = None) -> Fault:
    several = description.kinds_at(loc) if kind.startswith("union_tag") else None
    if several is not None and several.choice is not None and several.choice.field and isinstance(value, Mapping):
        return _unchosen(loc, several, several.choice.field, value)
    setting = path_text(description.untagged(tuple(part for part in loc if part != "[key]")))
    got = _masked(value) if loc and loc[0] in HOLD_SECRETS else shown(value)
    if kind == FAULT_TYPE and detail is not None:
        context = detail["ctx"]
        return Fault(setting, got, context["limit"], context["why"], context["fix"])
    place = description.at(loc)
    if place is None:
        around = description.at(loc[:-1])
        return _unknown(setting, loc[-1], around.names if around else ())
    fix = _see(loc)
    if kind == "missing":
        return Fault(setting, "nothing", place.accepts, place.why, f"add it; {fix}")
    return Fault(setting or names.CONFIG_NAMESPACE, got, place.accepts, place.why, f"correct it; {fix}")


def _masked(value: object) -> str:
    """A value among which a secret may be: a number or a truth value is none, of the rest only the kind is shown."""
    if value is None or isinstance(value, (bool, int, float)):
        return shown(value)
    return "a text, not shown" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"


def _unchosen(loc: tuple[int | str, ...], several: Kinds, field: str, value: Mapping[str, object]) -> Fault:
    """What tells kinds apart is missing, or is none of them."""
    chosen = value.get(field)
    place = description.at((*loc, next(iter(several.options)), field))
    return Fault(
        path_text((*description.untagged(loc), field)),
        shown(chosen),
        f"one of {', '.join(several.options)}",
        place.why if place else "",
        f"{'add' if chosen is None else 'correct'} it; {_see(loc)}",
    )


def _unknown(setting: str, key: object, known: Sequence[str]) -> Fault:
    """The name alone is shown: what stands there is no setting, and may be anything, a password too."""
    close = difflib.get_close_matches(str(key), known, n=1)
    return Fault(
        setting,
        f"a setting named {shown(key)}",
        f"a setting that exists: {', '.join(known)}" if known else "text as its name",
        "no setting has that name, and a misspelt one would silently do nothing",
        f"did you mean '{close[0]}'?" if close else "remove it",
    )


def _see(loc: Sequence[int | str]) -> str:
    return f"{REFERENCE} shows it under '{loc[0]}'" if loc else f"see {REFERENCE}"
