"""Finds the facts of one stack in a checkout, with that checkout's own code, prices and rules. Runs no Pulumi."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from fleet import cost, preflight, settings
from fleet.faults import Refused
from review.facts import Cost, Facts

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings

PLACEHOLDER: Final = "https://secure.invalid"
"""Stands for an encrypted value: no fact depends on one."""


def gather(stack: str, project: Path) -> Facts | None:
    """None where the checkout has no such stack."""
    file = project / f"Pulumi.{stack}.yaml"
    if not file.exists():
        return None
    config = (yaml.safe_load(file.read_text()) or {}).get("config") or {}
    raw = settings.from_config({key: _text(value) for key, value in config.items()})
    environment = raw.get("environment")
    named = environment if isinstance(environment, str) else None
    try:
        loaded = settings.load(raw, project)
    except Refused as refused:
        return Facts(stack, named, None, {}, tuple(refused.faults), ())
    verdict = preflight.check(loaded, project)
    total, parts = _costs(loaded)
    return Facts(stack, named, total, parts, tuple(verdict.refusals), tuple(verdict.warnings))


def _text(value: object) -> str:
    """A value as Pulumi hands it to a program: text as it is, everything else as JSON."""
    known = _without_secrets(value)
    return known if isinstance(known, str) else json.dumps(known)


def _without_secrets(value: Any) -> Any:  # noqa: ANN401 - YAML
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            return PLACEHOLDER
        return {key: _without_secrets(inner) for key, inner in value.items()}
    return [_without_secrets(inner) for inner in value] if isinstance(value, list) else value


def _costs(loaded: Settings) -> tuple[Cost, dict[str, Cost]]:
    told = cost.of(loaded)
    return _cost(told), {item.name: _cost(item) for item in (*told.skus, *told.shared)}


def _cost(told: cost.Range) -> Cost:
    return Cost(told.floor_per_hour, told.ceiling_per_hour, told.floor_per_month, told.ceiling_per_month)
