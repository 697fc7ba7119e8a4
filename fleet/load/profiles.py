"""Profiles of load: plain data, bounded, and the plan that one of them makes for a model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from annotated_types import Ge, Gt, Le, Len
from pydantic import ValidationError, model_validator

from fleet.faults import Fault, Refused
from fleet.load.plan import Plan
from fleet.schema_base import FAULT_TYPE, Model, refuse, setting, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.load.plan import Arrivals, Scenario

USERS_MAX: Final = 2000
RATE_MAX_PER_S: Final = 1000
"""What one program can make on one core, about; several share a load (`PODS=`)."""
DURATION_MAX_S: Final = 24 * 3600
PODS_MAX: Final = 50
TIMEOUT_S: Final = 60.0
"""An answer later than that is a failure; what waits in a queue that is to make replicas come is slow, not lost."""

Name = Literal["smoke", "ramp", "step", "soak", "spike"]
Share = Annotated[float, Ge(0), Le(1)]
Moment = Annotated[float, Ge(0), Le(DURATION_MAX_S)]


class Thresholds(Model):
    """What must come of a load; else the command fails."""

    p95_ms: float = setting("slow answers are of no use", "Longest 95th percentile of the latency.", gt=0, le=600_000)
    error_ratio: float = setting("requests are to be answered", "Largest part of requests that fail.", ge=0, le=1)
    served_per_s: float = setting(
        "an answer to few is no answer", "Fewest requests answered a second, mean of the whole load.", ge=0, le=100_000
    )


class Profile(Model):
    """A load over time, as parts of its peak."""

    about: str = setting("a reader wants to know", "What it is for.", max_length=200)
    duration_s: int = whole(5, DURATION_MAX_S, "a day is the most", "Length, seconds.")
    shape: Annotated[tuple[tuple[Moment, Share], ...], Len(1)] = setting(
        "a load is a line through points; users come and go where the line passes whole ones",
        "Points of time, s, and part of the peak; two of one time are a step.",
    )
    users: int = whole(1, USERS_MAX, "each user is a task of the program", "Users at the peak, closed arrivals.")
    rate_per_s: Annotated[float, Gt(0), Le(RATE_MAX_PER_S)] = setting(
        "a program makes so many", "Requests a second at the peak, open arrivals."
    )
    think_s: float = setting("users read what they got", "Time between answer and next request, s.", ge=0, le=3600)
    arrivals: Literal["open", "closed"] = setting("a profile is made for one of them", "Arrivals, if not said.")
    thresholds: Thresholds = setting("a load is to prove something", "What must come of it.")

    @model_validator(mode="after")
    def _in_order(self) -> Profile:
        times = [time for time, _ in self.shape]
        if times != sorted(times) or times[-1] > self.duration_s:
            refuse("points in the order of their times, within the duration", "time goes one way", "sort the points")
        return self


PROFILES: Final[dict[Name, Profile]] = {
    "smoke": Profile(
        about="does it answer at all",
        duration_s=20,
        shape=((0, 1),),
        users=4,
        rate_per_s=5,
        think_s=0.1,
        arrivals="closed",
        thresholds=Thresholds(p95_ms=5000, error_ratio=0, served_per_s=1),
    ),
    "ramp": Profile(
        about="from nothing to the peak and back: where latency bends",
        duration_s=600,
        shape=((0, 0.02), (480, 1), (540, 1), (600, 0.02)),
        users=300,
        rate_per_s=40,
        think_s=0,
        arrivals="open",
        thresholds=Thresholds(p95_ms=20_000, error_ratio=0.001, served_per_s=1),
    ),
    "step": Profile(
        about="quiet, then more than the fewest replicas can take, then quiet again: out and back in",
        duration_s=480,
        shape=((0, 0.02), (30, 0.02), (30, 1), (210, 1), (210, 0.02), (480, 0.02)),
        users=240,
        rate_per_s=40,
        think_s=0,
        arrivals="closed",
        thresholds=Thresholds(p95_ms=20_000, error_ratio=0, served_per_s=1),
    ),
    "soak": Profile(
        about="a steady load for an hour: what leaks, drifts or restarts",
        duration_s=3600,
        shape=((0, 1),),
        users=20,
        rate_per_s=15,
        think_s=0.5,
        arrivals="open",
        thresholds=Thresholds(p95_ms=5000, error_ratio=0.001, served_per_s=1),
    ),
    "spike": Profile(
        about="quiet, half a minute of the peak, quiet: what a burst costs those who come after it",
        duration_s=180,
        shape=((0, 0.05), (30, 0.05), (30, 1), (60, 1), (60, 0.05), (180, 0.05)),
        users=300,
        rate_per_s=60,
        think_s=0,
        arrivals="open",
        thresholds=Thresholds(p95_ms=60_000, error_ratio=0.01, served_per_s=1),
    ),
}


class Wish(Model):
    """What somebody wants of a profile: each is the profile's own where it is None."""

    profile: Name = setting("a load is one of those that are described", "Profile of the load.")
    arrivals: Literal["open", "closed"] | None = setting("there are two", "How requests come.", default=None)
    users: int | None = setting("each is a task of the program", "Users at the peak.", default=None, ge=1, le=USERS_MAX)
    rate_per_s: float | None = setting(
        "a program makes so many", "Requests a second at the peak.", default=None, gt=0, le=RATE_MAX_PER_S
    )
    duration_s: int | None = setting(
        "the shape is stretched to it", "Length, seconds.", default=None, ge=5, le=DURATION_MAX_S
    )
    p95_ms: float | None = setting(
        "slow answers are of no use", "Longest 95th percentile.", default=None, gt=0, le=600_000
    )
    keep_alive: bool = setting(
        "a connection that is kept stays with its replica", "Whether clients keep their connections.", default=False
    )
    retries: int = whole(0, 10, "more would hide what fails", "Times that a request is tried again.", default=0)
    seed: int = whole(0, 2**31 - 1, "the same seed gives the same load", "Seed of all chance.", default=1)

    @model_validator(mode="after")
    def _heard(self) -> Wish:
        """A number that nobody would hear is a mistake."""
        if self.users is not None and self.chosen == "open":
            refuse("users with closed arrivals", "an open load has no users", "say RATE, or ARRIVALS=closed")
        if self.rate_per_s is not None and self.chosen == "closed":
            refuse("a rate with open arrivals", "users ask as fast as they are answered", "say USERS, or ARRIVALS=open")
        return self

    @property
    def chosen(self) -> Arrivals:
        return self.arrivals or PROFILES[self.profile].arrivals

    @property
    def thresholds(self) -> Thresholds:
        own = PROFILES[self.profile].thresholds
        return own if self.p95_ms is None else own.model_copy(update={"p95_ms": self.p95_ms})


VARIABLES: Final = {
    "profile": "PROFILE",
    "arrivals": "ARRIVALS",
    "users": "USERS",
    "rate_per_s": "RATE",
    "duration_s": "DURATION",
    "p95_ms": "P95_MS",
    "keep_alive": "KEEP_ALIVE",
    "retries": "RETRIES",
    "seed": "SEED",
}
"""How a person says each of them: a variable of make."""


def read(raw: Mapping[str, str]) -> Wish:
    """The wish of variables of make, empty ones left out. Raises `Refused` with every fault of it."""
    given = {field: _number(raw[name]) for field, name in VARIABLES.items() if raw.get(name)}
    try:
        return Wish.model_validate(given)
    except ValidationError as error:
        raise Refused([_fault(detail, raw) for detail in error.errors()]) from None


def _number(text: str) -> object:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _fault(detail: Any, raw: Mapping[str, str]) -> Fault:  # noqa: ANN401 - pydantic's own, a typed dictionary
    if detail["type"] == FAULT_TYPE:
        said: Mapping[str, str] = detail["ctx"]
        got = ", ".join(f"{name}={raw[name]}" for name in VARIABLES.values() if raw.get(name))
        return Fault("the load", got, said["limit"], said["why"], said["fix"])
    field = str(detail["loc"][0])
    said_by_pydantic = detail["msg"][:1].lower() + detail["msg"][1:]
    limit = f"one of {', '.join(PROFILES)}" if field == "profile" else said_by_pydantic
    why = Wish.model_fields[field].json_schema_extra
    return Fault(
        VARIABLES[field],
        raw.get(VARIABLES[field], "nothing"),
        limit,
        str(why["why"]) if isinstance(why, dict) and "why" in why else "it is bounded",
        f"correct {VARIABLES[field]}",
    )


def plan(wish: Wish, host: str, model: str, scenario: Scenario, case: dict[str, Any]) -> Plan:
    """The load that a wish means for a model behind a host."""
    profile = PROFILES[wish.profile]
    arrivals = wish.chosen
    peak: float = (wish.users or profile.users) if arrivals == "closed" else (wish.rate_per_s or profile.rate_per_s)
    duration_s = wish.duration_s or profile.duration_s
    stretch = duration_s / profile.duration_s
    return Plan(
        host=host,
        model=model,
        scenario=scenario,
        case=case,
        arrivals=arrivals,
        points=tuple((time * stretch, part * peak) for time, part in profile.shape),
        duration_s=duration_s,
        think_s=profile.think_s,
        timeout_s=TIMEOUT_S,
        keep_alive=wish.keep_alive,
        retries=wish.retries,
        seed=wish.seed,
    )
