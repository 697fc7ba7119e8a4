"""IAM documents: what makes AWS call one malformed, and whom a trust policy lets in. Effects are not evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rehearsal.account import UNKNOWN, values_at

VERSIONS = ("2012-10-17", "2008-10-17")
"""The policy language's two versions (IAM User Guide, "IAM JSON policy elements: Version")."""
Use = Literal["identity", "trust", "resource"]


def statements(document: object) -> list[Mapping[str, Any]] | None:
    """The statements of a policy document; None while it is not known, or when it is not JSON."""
    if isinstance(document, str) and document != UNKNOWN:
        try:
            document = json.loads(document)
        except json.JSONDecodeError:
            return None
    if not isinstance(document, Mapping):
        return None
    found = document.get("Statement", [])
    return list(found) if isinstance(found, list) else [found]


def faults(document: object, use: Use) -> Iterator[str]:
    """Why AWS refuses a document as malformed; nothing while it is not known."""
    if document is None or document == UNKNOWN:
        return
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except json.JSONDecodeError as error:
            yield f"MalformedPolicyDocument: not JSON: {error}"
            return
    if not isinstance(document, Mapping):
        yield "MalformedPolicyDocument: a policy is an object"
        return
    if document.get("Version") not in VERSIONS:
        yield f"MalformedPolicyDocument: Version is {document.get('Version')}, not {VERSIONS[0]}"
    for number, statement in enumerate(statements(document) or ()):
        yield from _statement_faults(statement, use, f"Statement[{number}]")
    if not statements(document):
        yield "MalformedPolicyDocument: there is no Statement"


def _statement_faults(statement: Mapping[str, Any], use: Use, where: str) -> Iterator[str]:
    known = {
        "Sid",
        "Effect",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Principal",
        "NotPrincipal",
        "Condition",
    }
    for name in statement:
        if name not in known:
            yield f"MalformedPolicyDocument: {where} has no element {name}"
    if statement.get("Effect") not in ("Allow", "Deny"):
        yield f"MalformedPolicyDocument: {where}.Effect is {statement.get('Effect')}"
    if not (statement.get("Action") or statement.get("NotAction")):
        yield f"MalformedPolicyDocument: {where} names no Action"
    resource = bool(statement.get("Resource") or statement.get("NotResource"))
    principal = bool(statement.get("Principal") or statement.get("NotPrincipal"))
    if use == "identity" and not resource:
        yield f"MalformedPolicyDocument: {where} names no Resource"
    if use == "identity" and principal:
        yield f"MalformedPolicyDocument: {where} names a Principal, which an identity's policy cannot"
    if use == "trust" and resource:
        yield f"MalformedPolicyDocument: {where} names a Resource, which a trust policy cannot"
    if use != "identity" and not principal:
        yield f"MalformedPolicyDocument: {where} names no Principal"


def trusts(document: object, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)) -> bool:
    """Whether a trust policy lets a service take the role, by every one of the actions."""
    allowed = {
        action
        for statement in statements(document) or ()
        if statement.get("Effect") == "Allow" and service in values_at(statement, "Principal.Service")
        for action in values_at(statement, "Action")
    }
    return set(actions) <= allowed
