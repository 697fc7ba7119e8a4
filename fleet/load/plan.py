"""A load as the program that makes it is told it, and what that program tells of it. Needs Python alone."""

from __future__ import annotations

import ipaddress
import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal

from fleet import arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

Scenario = Literal["infer", "generate", "generate_stream"]
Arrivals = Literal["open", "closed"]
Points = tuple[tuple[float, float], ...]

CLUSTER_NAMES: Final = ".svc"
"""What a Service's name ends with inside a cluster."""
OWN_NETWORKS: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("198.18.0.0/15"))
"""Loopback, and the range that RFC 2544 reserves for benchmarks: embedded clusters live there, nobody else does."""


SAME_S: Final = 0.2
"""A program that tells a little late tells of the second that has just passed."""


class NotOursError(Exception):
    """A load would go where none of ours is served."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One load on one model.

    `points` are seconds and what is on the line through them: requests a second with open arrivals, users with closed
    ones. `parts` programs make it together: each makes an equal part, `part` counts from 0.
    """

    host: str
    model: str
    scenario: Scenario
    arrivals: Arrivals
    points: Points
    duration_s: float
    port: int = 8000
    case: dict[str, Any] = field(default_factory=dict)
    """Of `infer`: a known request, with `inputs` and `output`, and `values`, how many it answers with."""
    max_tokens: int = 64
    even: bool = False
    """Requests of a rate as evenly spaced as it allows, instead of independent of one another."""
    think_s: float = 0.0
    timeout_s: float = 30.0
    retries: int = 0
    keep_alive: bool = False
    seed: int = 1
    part: int = 0
    parts: int = 1
    requests_file: str = ""
    """Where each request is written, one a line. Empty: nowhere."""

    def users(self, time_s: float) -> int:
        """Of this part, with closed arrivals; all parts together have as many as the line says."""
        whole = max(round(arrivals.value(self.points, time_s)), 0)
        return whole // self.parts + (self.part < whole % self.parts)

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Plan:
        """The plan of `text`; NotOursError where it is aimed at anything but a Service of ours."""
        raw = json.loads(text)
        raw["points"] = tuple((float(time), float(value)) for time, value in raw["points"])
        plan = cls(**raw)
        require_ours(plan.host)
        return plan


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. Times are seconds since the load began; `intended_s` is when it was due, from which `duration_s` runs:
    a client that cannot keep up must not make the fleet look faster than it was.
    """

    intended_s: float
    sent_s: float
    duration_s: float
    ok: bool
    status: int
    """HTTP's; 0 where there was no answer."""
    error: str = ""
    attempts: int = 1
    first_token_s: float | None = None
    tokens: int = 0


@dataclass(slots=True)
class Interval:
    """What happened in a time: requests that were due in it, and those that ended in it.

    `latency` and `first_token` are counts by `latency.bucket`.
    """

    time_s: float
    offered: int = 0
    served: int = 0
    failed: int = 0
    retried: int = 0
    tokens: int = 0
    in_flight: int = 0
    users: int = 0
    latency: dict[int, int] = field(default_factory=dict)
    first_token: dict[int, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Interval:
        """From JSON, whose keys are texts."""
        known = {one.name: raw[one.name] for one in fields(cls)}
        for name in ("latency", "first_token"):
            known[name] = {int(key): count for key, count in raw[name].items()}
        return cls(**known)


def together(programs: Sequence[Sequence[Interval]]) -> list[Interval]:
    """What several programs told, second by second, as if one had."""
    seconds: dict[int, Interval] = {}
    for intervals in programs:
        told: dict[int, Interval] = {}
        for one in intervals:
            second = math.ceil(one.time_s - SAME_S)
            total = seconds.setdefault(second, Interval(one.time_s))
            total.time_s = max(total.time_s, one.time_s)
            for name in ("offered", "served", "failed", "retried", "tokens"):
                setattr(total, name, getattr(total, name) + getattr(one, name))
            # A busy machine tells two intervals within a second; of what there is at a time, the later one holds.
            before, told[second] = told.get(second), one
            for name in ("in_flight", "users"):
                more = getattr(one, name) - (getattr(before, name) if before is not None else 0)
                setattr(total, name, getattr(total, name) + more)
            for name in ("latency", "first_token", "errors"):
                counts = getattr(total, name)
                for key, count in getattr(one, name).items():
                    counts[key] = counts.get(key, 0) + count
    return [seconds[second] for second in sorted(seconds)]


def require_ours(host: str) -> None:
    """NotOursError unless the host is a Service by its name in a cluster, or an address of this machine's own."""
    if host.endswith(CLUSTER_NAMES):
        return
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or not any(address in network for network in OWN_NETWORKS):
        networks = ", ".join(str(network) for network in OWN_NETWORKS)
        raise NotOursError(
            f"a load goes to a Service of ours alone: got {host}, not a name that ends with {CLUSTER_NAMES} "
            f"nor an address of {networks}"
        )
