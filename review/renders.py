"""Compares two folders that `make render` wrote: what the change would do, as far as no state is needed to know it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from review.plan import Change, Kind, Origin, Plan, Unreadable, differences, in_order, type_of
from review.replacement import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RESOURCES: Final = "resources.json"
OPTIONS: Final = ("parent", "protect", "provider", "retainOnDelete")
"""What is compared besides inputs; shown in parentheses, since they are not the resource's own."""
PROVIDERS: Final = "pulumi:providers:"


def read(base: Path, head: Path) -> Plan:
    """The plan from the render of the base to that of the head; a folder that is not there is a stack without any."""
    return compare(_resources(base), _resources(head))


def _resources(folder: Path) -> dict[str, dict[str, Any]]:
    if not folder.exists():
        return {}
    file = folder / RESOURCES
    try:
        listed = json.loads(file.read_text())
        return {resource["urn"]: resource for resource in listed}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unreadable(
            f"{folder.name}/{RESOURCES} is no render's list of resources ({type(error).__name__})"
        ) from error


def compare(base: Mapping[str, Mapping[str, Any]], head: Mapping[str, Mapping[str, Any]]) -> Plan:
    """Both by URN."""
    changes: list[Change] = []
    replaced_providers: set[str] = set()
    # A resource of a provider that is replaced is replaced with it, so providers are compared first.
    for urn in sorted(base.keys() | head.keys(), key=lambda urn: (not type_of(urn).startswith(PROVIDERS), urn)):
        change = _change(urn, base.get(urn), head.get(urn), replaced_providers)
        if change is not None:
            changes.append(change)
            if change.type.startswith(PROVIDERS) and change.kind in (Kind.REPLACE, Kind.DELETE):
                replaced_providers.add(urn)
    return Plan(
        Origin.RENDERS, in_order(changes), len(head) - sum(change.kind is not Kind.DELETE for change in changes)
    )


def _change(
    urn: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, replaced_providers: set[str]
) -> Change | None:
    if old is None or new is None:
        kind = Kind.CREATE if old is None else Kind.DELETE
        return Change(kind, urn, _inputs(old), _inputs(new))
    before, after = _inputs(old), _inputs(new)
    ignored = tuple(new.get("ignoreChanges") or ())
    compared = _without(before, ignored), _without(after, ignored)
    keys = tuple(differences(*compared))
    options = tuple(f"({option})" for option in OPTIONS if (old.get(option) or None) != (new.get(option) or None))
    reasons: tuple[str, ...] = ()
    rule = RULES.get(type_of(urn))
    if rule is not None:
        reasons = rule.reasons(*compared)
        if "(provider)" in options:
            reasons = (*reasons, "(provider)")
    if new.get("provider") in replaced_providers:
        reasons = (*reasons, "(provider, which is replaced)")
    if not keys and not options and not reasons:
        return None
    return Change(Kind.REPLACE if reasons else Kind.UPDATE, urn, before, after, (*keys, *options), reasons)


def _inputs(resource: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict((resource or {}).get("inputs") or {})


def _without(inputs: Mapping[str, Any], ignored: tuple[str, ...]) -> dict[str, Any]:
    """Inputs without those that the engine leaves as they are: names, or dotted paths below one."""
    kept = dict(inputs)
    for path in ignored:
        name, _, rest = path.partition(".")
        if not rest:
            kept.pop(name, None)
        elif isinstance(kept.get(name), dict):
            kept[name] = _without(kept[name], (rest,))
    return kept
