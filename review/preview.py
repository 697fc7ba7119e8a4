"""Reads `pulumi preview --json`: the form is `display.PreviewDigest` of github.com/pulumi/pulumi/pkg/v3 (3.274.1)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from review.plan import Change, Kind, Origin, Plan, Unreadable, differences, in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The operations of `resource/deploy/step.go` there.
_CREATES: Final = {"create"}
_IMPORTS: Final = {"import"}
_UPDATES: Final = {"update"}
_DELETES: Final = {"delete"}
_REPLACES: Final = {"replace", "create-replacement", "delete-replaced", "import-replacement"}
_KEEPS: Final = {
    "same", "read", "refresh", "read-replacement", "discard", "discard-replaced", "remove-pending-replace", "diff",
    "extend-parameterize",
}  # fmt: skip
"""What leaves the cloud as it is; resources that are only read belong to somebody else."""
_KNOWN: Final = _CREATES | _IMPORTS | _UPDATES | _DELETES | _REPLACES | _KEEPS

STACK_TYPE: Final = "pulumi:pulumi:Stack"


def read(text: str) -> Plan:
    """The plan that a preview printed. Raises `Unreadable` for what is none, or holds an operation unknown here."""
    try:
        digest = json.loads(text)
    except ValueError as error:
        raise Unreadable("the preview printed no JSON; its log says why") from error
    if not isinstance(digest, dict):
        raise Unreadable(_NO_DIGEST)
    try:
        return _plan(digest)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{_NO_DIGEST} ({type(error).__name__})") from error


_NO_DIGEST: Final = "the preview printed JSON, but no digest of a preview"


def _plan(digest: Mapping[str, Any]) -> Plan:
    steps: dict[str, list[dict[str, Any]]] = {}
    for step in digest.get("steps") or []:
        if step["op"] not in _KNOWN:
            raise Unreadable(f"the preview names the operation {step['op']!r}, which nobody has judged yet")
        steps.setdefault(step["urn"], []).append(step)
    changes = [change for urn, some in steps.items() if (change := _change(urn, some)) is not None]
    errors = [one["message"].strip() for one in digest.get("diagnostics") or [] if one.get("severity") == "error"]
    summary = digest.get("changeSummary")
    if summary is None and not errors:
        errors = ["the preview ended without a summary: it did not finish"]
    return Plan(Origin.PREVIEW, in_order(changes), int((summary or {}).get("same", 0)), tuple(errors))


def _change(urn: str, steps: Sequence[Mapping[str, Any]]) -> Change | None:
    """Several steps of one resource are one change: a replacement takes up to three."""
    operations = {step["op"] for step in steps} - _KEEPS
    if not operations:
        return None
    if operations & _REPLACES or (operations & _DELETES and operations & (_CREATES | _IMPORTS)):
        kind = Kind.REPLACE
    elif operations & _DELETES:
        kind = Kind.DELETE
    elif operations & _UPDATES:
        kind = Kind.UPDATE
    else:
        kind = Kind.IMPORT if operations & _IMPORTS else Kind.CREATE
    keys = {key for step in steps for key in (step.get("detailedDiff") or {})}
    keys |= {key for step in steps for key in step.get("diffReasons") or () if not _detailed(key, keys)}
    reasons = {key for step in steps for key in step.get("replaceReasons") or ()}
    before: dict[str, object] = {} if kind in (Kind.CREATE, Kind.IMPORT) else _inputs(steps, "oldState")
    after: dict[str, object] = {} if kind is Kind.DELETE else _inputs(steps, "newState")
    if not keys and kind in (Kind.UPDATE, Kind.REPLACE):  # a provider need not say what it has found
        keys = set(differences(before, after))
    return Change(
        kind,
        urn,
        before,
        after,
        keys=tuple(sorted(keys)),
        reasons=tuple(sorted(reasons)),
    )


def _detailed(key: str, keys: set[str]) -> bool:
    return any(other == key or other.startswith((f"{key}.", f"{key}[")) for other in keys)


def _inputs(steps: Sequence[Mapping[str, Any]], state: str) -> dict[str, object]:
    for step in steps:
        inputs = (step.get(state) or {}).get("inputs")
        if inputs:
            return dict(inputs)
    return {}
