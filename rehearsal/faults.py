"""Faults that a test orders: what AWS does to an update that is nobody's fault, and what must be survived.

Pure. An order names the operation, the type and the resource that it meets, how often, and what happens:

- `throttle`: the call is refused for its rate. The provider tries again by itself, RETRIES times, as the real one does.
- `quota`: the call is refused because a quota is reached. Nothing was made.
- `not_found_after_create`: the resource was made, but is not found when it is read back, as IAM and EC2 sometimes do.
- `slow_create`: the answer comes after `seconds`.
- `crash`: the machine that runs the update goes away, `before` or `after` the call took effect.
"""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RETRIES = 25
"""The aws provider's `maxRetries` when it is not set."""

Fault = Literal["throttle", "quota", "not_found_after_create", "slow_create", "crash"]
Op = Literal["create", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Order:
    """One ordered fault."""

    fault: Fault
    type: str
    """Token, or a pattern of tokens."""
    name: str = "*"
    """Pulumi's name of the resource, or a pattern."""
    op: Op = "create"
    times: int = 1
    seconds: float = 0.0
    when: Literal["before", "after"] = "before"

    def meets(self, op: Op, token: str, name: str) -> bool:
        return (
            self.times > 0
            and op == self.op
            and fnmatch.fnmatchcase(token, self.type)
            and fnmatch.fnmatchcase(name, self.name)
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def parse(document: Sequence[Mapping[str, Any]]) -> list[Order]:
    """Raises TypeError for an order with a field that there is not."""
    return [Order(**order) for order in document]


def take(orders: Sequence[Order], op: Op, token: str, name: str) -> tuple[Order | None, list[Order]]:
    """The order that this call meets, with what is left of all of them. Throttling takes what it needs at once."""
    for index, order in enumerate(orders):
        if order.meets(op, token, name):
            used = min(order.times, RETRIES + 1) if order.fault == "throttle" else 1
            left = [*orders[:index], replace(order, times=order.times - used), *orders[index + 1 :]]
            return replace(order, times=used), [one for one in left if one.times > 0]
    return None, list(orders)
