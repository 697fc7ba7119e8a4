"""A trace: the load over time, how fast the SKUs are, and what must come of it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Le, Len
from pydantic import Strict, model_validator

from fleet.schema_base import REPLICAS_MAX, DnsLabel, Model, refuse, setting, whole

DURATION_MAX_S: Final = 7 * 24 * 3600
RATE_MAX: Final = 10_000
USERS_MAX: Final = 100_000
REQUESTS_MAX: Final = 5_000_000
"""Each request is played; as many take minutes."""

Seconds = Annotated[float, Ge(0), Le(DURATION_MAX_S)]
RatePoint = tuple[Seconds, Annotated[float, Ge(0), Le(RATE_MAX)]]
UsersPoint = tuple[Seconds, Annotated[int, Ge(0), Le(USERS_MAX), Strict()]]


def _seconds(why: str, description: str, **more: Any) -> Any:  # noqa: ANN401 - as pydantic.Field
    return setting(why, description, ge=0, le=DURATION_MAX_S, **more)


class Load(Model):
    """Who asks one model, and how often: open by a rate, closed by users that wait for their answers."""

    model: DnsLabel = setting("it is the name of one of the stack's models", "Name of the model.")
    rate: Annotated[tuple[RatePoint, ...], Len(1)] | None = setting(
        "a load is a line through points",
        "Points of time, s, and requests per second, joined by straight lines; two of one time are a step.",
        default=None,
    )
    users: Annotated[tuple[UsersPoint, ...], Len(1)] | None = setting(
        "users come and go at points",
        "Points of time, s, and users from then on, each with one request at a time.",
        default=None,
    )
    think_s: float = _seconds(
        "users read what they got", "Time between a user's answer and next request, s.", default=0
    )

    @model_validator(mode="after")
    def _one_of_two_in_order(self) -> Load:
        if (self.rate is None) is (self.users is None):
            refuse("one of rate and users", "a load is open or closed", "leave one of the two out, not both")
        times = [time for time, _ in self.rate or self.users or ()]
        if times != sorted(times):
            refuse("points in the order of their times", "time goes one way", "sort the points")
        return self


class Speed(Model):
    """How fast a model is on a SKU, and how soon a new replica is there."""

    model: DnsLabel = setting("it is the name of one of the stack's models", "Name of the model.")
    sku: DnsLabel = setting("it is the name of one of the stack's SKUs", "Name of the SKU.")
    service_s: float = setting("no execution takes none", "Time of one execution, s.", gt=0, le=3600)
    more_s: float = _seconds(
        "large batches take longer", "Time more for each further request of its batch, s.", default=0
    )
    batch: int = whole(1, 4096, "Triton batches what waits", "Most requests of one execution.", default=1)
    instances: int = whole(1, 1024, "instances execute side by side", "Executions side by side.", default=1)
    queue: Literal["triton", "backend"] = setting(
        "what waits inside a backend counts as work to Triton, and its ratio does not see it",
        "Where requests wait: in Triton's own queue, or in the backend, as with TensorRT-LLM's in-flight batching.",
        default="triton",
    )
    load_s: float = _seconds("engines are loaded", "From the container's start until the model is ready, s.")
    pull_s: float = _seconds("images are pulled once a node", "Time to pull the image onto a node, s.", default=0)
    node_s: float = _seconds("nodes are bought", "From a pod that finds no room to a node that is Ready, s.", default=0)


class Reach(Model):
    """Replicas that must be ready in time."""

    model: DnsLabel = setting("it is the name of one of the stack's models", "Name of the model.")
    sku: DnsLabel = setting("it is the name of one of the stack's SKUs", "Name of the SKU.")
    replicas: int = whole(1, REPLICAS_MAX, "there is at least one", "Replicas ready.")
    after_s: float = _seconds("the load changes then", "Time from which it is counted, s.")
    within_s: float = _seconds("an answer later than that is late", "Time that it may take, s.")


class Expect(Model):
    """What must come of the load; a simulation in which it does not fails."""

    reach: tuple[Reach, ...] = setting("load needs replicas", "Replicas that must be ready in time.", default=())
    flap_s: float | None = setting(
        "a replica that comes and goes loads its model for nothing",
        "No replica is added so soon after one was taken, or taken so soon after one was added, s.",
        default=None,
        ge=0,
        le=DURATION_MAX_S,
    )
    minimum_by_s: float | None = setting(
        "idle replicas are paid for",
        "Time by which all SKUs are back at their fewest replicas, and stay there, s.",
        default=None,
        ge=0,
        le=DURATION_MAX_S,
    )
    failed_most: int | None = setting(
        "requests find a replica, or fail", "Most requests that fail.", default=None, ge=0, le=REQUESTS_MAX, strict=True
    )
    p95_s: float | None = setting(
        "slow answers are of no use",
        "Longest 95th percentile of the latency, whole trace, s.",
        default=None,
        gt=0,
        le=3600,
    )


class Trace(Model):
    """A load to replay."""

    about: str = setting(
        "a reader wants to know", "What the trace is, and where its numbers come from.", max_length=2000
    )
    duration_s: int = whole(60, DURATION_MAX_S, "a week is the most", "Length of the trace, seconds.")
    seed: int = whole(0, 2**31 - 1, "the same seed gives the same run", "Seed of all chance.", default=1)
    arrivals: Literal["random", "even"] = setting(
        "independent clients ask at random", "How requests of a rate are spaced.", default="random"
    )
    loads: tuple[Load, ...] = setting("nothing happens without", "Who asks.", min_length=1, max_length=64)
    speeds: tuple[Speed, ...] = setting("each placement needs one", "How fast each is.", min_length=1, max_length=4096)
    expect: Expect = setting("a simulation is to prove something", "What must come of it.", default=Expect())

    def speed(self, model: str, sku: str) -> Speed | None:
        return next((one for one in self.speeds if (one.model, one.sku) == (model, sku)), None)
