"""What a checkout says of one stack without any account: what it costs, and the verdict of preflight.

Written as JSON by the code of that checkout (`review.gather`), read here by the code that judges it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from fleet.faults import Fault
from review.plan import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Cost:
    """In US dollars; None where a price is not known. The floor is what always runs, the ceiling what may."""

    floor_per_hour: float | None
    ceiling_per_hour: float | None
    floor_per_month: float | None
    ceiling_per_month: float | None


UNKNOWN = Cost(None, None, None, None)


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one stack in one checkout. `environment` is None where the settings do not say, `cost` where they are refused.
    `parts` are its SKUs, and what the cluster stands on.

    A checkout without the stack has no facts of it, which is not the same as having none that can be read.
    """

    stack: str
    environment: str | None
    cost: Cost | None
    parts: Mapping[str, Cost]
    refusals: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def dumped(facts: Facts | None) -> str:
    return json.dumps(None if facts is None else asdict(facts), indent=2) + "\n"


def read(text: str) -> Facts | None:
    """Raises `Unreadable` for what `dumped` cannot have written."""
    try:
        raw = json.loads(text)
        return None if raw is None else _facts(raw)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"the facts of a checkout cannot be read ({type(error).__name__})") from error


def _facts(raw: Mapping[str, Any]) -> Facts:
    return Facts(
        stack=raw["stack"],
        environment=raw["environment"],
        cost=None if raw["cost"] is None else _cost(raw["cost"]),
        parts={name: _cost(cost) for name, cost in raw["parts"].items()},
        refusals=tuple(Fault(**fault) for fault in raw["refusals"]),
        warnings=tuple(Fault(**fault) for fault in raw["warnings"]),
    )


def _cost(raw: Mapping[str, Any]) -> Cost:
    return Cost(**{field.name: None if raw[field.name] is None else float(raw[field.name]) for field in fields(Cost)})
