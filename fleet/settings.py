"""Reads a stack's settings, and says all that is wrong with them at once.

The types are `fleet.schema`'s; the rest of the program finds them here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, get_args, get_origin

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
    Verification,
    gpus_per_replica,
)
from fleet.schema_base import FAULT_TYPE, Environment, Taint

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
    "of_another_stack",
    "unread",
]

REFERENCE = "docs/settings.md"
HOLD_SECRETS = frozenset({"alerts", "monitoring"})
"""Settings with secrets inside: what stands at a wrong place there may be one, so it is never shown."""
UNSET: tuple[object, ...] = ("", None, [], {})
"""Values that stand for a setting left out: Pulumi.yaml's defaults, so that this program, not the engine, says what is
missing, together with everything else."""


PLUGINS: Final = ("aws", "awsx", "eks", "kubernetes")
"""Namespaces that configure Pulumi's default providers, of which the program uses none."""
CLOSE: Final = 0.6
"""How alike two names are of which one may be meant as the other (difflib's ratio)."""


def from_config(config: Mapping[str, str]) -> dict[str, object]:
    """The settings among Pulumi's configuration, whose keys are `<namespace>:<key>`; a bare key is the project's own.

    Other namespaces are not ours. One that was meant as ours keeps its name, so that `load` refuses it.
    """
    ours: dict[str, object] = {}
    for key, value in config.items():
        namespace, _, name = key.rpartition(":")
        if namespace in ("", names.CONFIG_NAMESPACE):
            ours[name] = value
        elif difflib.get_close_matches(namespace.lower(), [names.CONFIG_NAMESPACE], cutoff=CLOSE):
            ours[key] = value
    return ours


def unread(config: Mapping[str, object]) -> list[Fault]:
    """Configuration that people expect to do something, and that nothing reads. The values are not shown."""
    return [
        Fault(
            key,
            f"a setting of the plugin '{key.partition(':')[0]}'",
            f"settings of the namespace {names.CONFIG_NAMESPACE}",
            "the stack has providers of its own, made from its settings and the ambient credentials; this does nothing",
            "remove it; the region is cluster.region, and credentials are chosen by AWS_PROFILE",
        )
        for key in config
        if key.partition(":")[0] in PLUGINS
    ]


def of_another_stack(stack: str, environment: str) -> list[Fault]:
    """A stack that is named after one environment and is another: a copied file, most likely."""
    if stack == environment or stack not in get_args(Environment):
        return []
    return [
        Fault(
            "environment",
            f"{shown(environment)}, in stack {stack}",
            f"{shown(stack)}, as the stack is named",
            f"what is made has its environment's name and protection: this would be made as {environment}'s",
            f"set environment: {stack}, or name the stack otherwise",
        )
    ]


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
    if loc and loc[-1] == "[key]":
        return _unknown(setting, loc[-2], description.keys_at(loc[:-2]))
    if place is None:
        around = description.at(loc[:-1])
        return _unknown(setting, loc[-1], around.names if around else ())
    fix = _see(loc)
    if kind == "missing":
        return Fault(setting, "nothing", place.accepts, place.why, f"add it; {fix}")
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        read = "true or false" if isinstance(value, bool) else "a number (1.30 as 1.3)"
        fix = f"write it in quotes: YAML reads it bare as {read}; {fix}"
    else:
        fix = f"correct it; {fix}"
    return Fault(setting or names.CONFIG_NAMESPACE, got, place.accepts, place.why, fix)


def _masked(value: object) -> str:
    """A value among which a secret may be: a number or a truth value is none, of the rest only the kind is shown."""
    if value is None or isinstance(value, (bool, int, float)):
        return shown(value)
    if isinstance(value, str):
        return "a text, not shown"
    return f"a list of {len(value)}" if isinstance(value, list) else "an object"


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
    namespace, colon, name = str(key).rpartition(":")
    if colon:
        return Fault(
            str(key),
            f"the namespace {shown(namespace)}",
            f"the namespace {names.CONFIG_NAMESPACE}",
            "settings of another namespace are not this program's, and a misspelt one would silently do nothing",
            f"write {names.CONFIG_NAMESPACE}:{name}",
        )
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
