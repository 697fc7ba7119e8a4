"""Which batching and how many instances a model is best served with: what is tried, in what order, what is chosen.

How Triton batches: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/batcher.html
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fleet import protobuf_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.load.plan import Asked

P95_LIMIT_MS: Final = 100
"""An answer within a tenth of a second feels immediate: Nielsen, Usability Engineering (1993), chapter 5."""
PART: Final = 0.95
USERS_START: Final = 8
USERS_MAX: Final = 512
"""Users that ask at once; one program of the load's can hold them."""
CLOSE: Final = 1.3
"""The users sought lie between two numbers this far apart; throughput hardly changes between them: the server is busy
at both.
"""
STEP_S: Final = 4.0
WARM_S: Final = 1.0
"""The beginning of a step, when connections are made and batches grow, is not counted."""
ALIKE: Final = 0.05
"""Throughputs that differ by less are taken as equal: two measurements of one arm differ by that."""
LOAD_BUSY: Final = 0.9
"""Of the load's cores; beyond it the load's own program may be what limits a throughput."""
DELAYS_US: Final = (0, 2000)
PREFERRED: Final = (8, 16)
FIELDS: Final = ("dynamic_batching", "instance_group")


@dataclass(frozen=True, slots=True, order=True)
class Batching:
    """Triton's dynamic batching. `preferred` is a size of batch that does not wait for more, 0 where none is named."""

    preferred: int = 0
    delay_us: int = 0

    def __str__(self) -> str:
        size = f"preferred {self.preferred}" if self.preferred else "any size"
        return f"{size}, delay {self.delay_us / 1000:g} ms"


@dataclass(frozen=True, slots=True)
class Point:
    """One way to serve a model. Without `batching` each request is computed by itself. `threads` are each instance's,
    for its linear algebra.
    """

    instances: int = 1
    batching: Batching | None = None
    threads: int = 1

    def __str__(self) -> str:
        return f"{self.instances} x {self.threads}, {self.batching or 'no batching'}"


UNTUNED: Final = Point()
"""What a model gets whose configuration names neither batching nor instances:
https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html
"""


@dataclass(frozen=True, slots=True)
class Step:
    """What came of so many users who ask again as soon as they are answered.

    `server` is the part of its cores' time that Triton computed: with many users less than nearly all means that others
    had the rest. `load` is the same of the load's own program.
    """

    users: int
    per_s: float
    p95_ms: float
    failed: int
    server: float
    load: float

    def within(self, limit_ms: float) -> bool:
        return self.failed == 0 and self.per_s > 0 and self.p95_ms <= limit_ms


@dataclass(frozen=True, slots=True)
class Measured:
    """A point and all steps that were made with it.

    `batch` is the mean number of texts that were computed together, `memory_mib` what Triton's processes held at the
    end (PSS); `wrong` says what the model answered wrongly, if it did.
    """

    point: Point
    steps: tuple[Step, ...]
    batch: float
    memory_mib: float
    wrong: str = ""

    def best(self, limit_ms: float) -> Step | None:
        """The most throughput within the limit; None where there was none, or answers were wrong."""
        held = [step for step in self.steps if step.within(limit_ms) and not self.wrong]
        return max(held, key=lambda step: step.per_s, default=None)


def first_points(max_batch_size: int) -> tuple[Point, ...]:
    """One instance: by itself, then with each kind of batching that the model can do."""
    if max_batch_size <= 1:
        return (UNTUNED,)
    sizes = [0, *(size for size in PREFERRED if size < max_batch_size)]
    return (UNTUNED, *(Point(batching=Batching(size, delay)) for size in sizes for delay in DELAYS_US))


def second_points(best: Point, cores: int) -> tuple[Point, ...]:
    """More instances, with the batching that was best with one: a few numbers up to the cores, one more at least, whose
    copying may run beside another's computing; each with one thread, and with as many as there are cores for it.
    """
    numbers = sorted({1, 2, cores // 2, cores} - {0})
    tried = [Point(number, best.batching, threads) for number in numbers for threads in (1, max(cores // number, 1))]
    return tuple(point for point in dict.fromkeys(tried) if point != best)


def next_users(within: Mapping[int, bool], start: int) -> int | None:
    """How many users to try next, by whether those that were tried were answered in time; None at the end."""
    if not within:
        return start
    good = max((users for users, held in within.items() if held), default=0)
    bad = min((users for users, held in within.items() if not held and users > good), default=None)
    if bad is None:
        return None if good >= USERS_MAX else min(2 * good, USERS_MAX)
    if good == 0:
        return None if bad == 1 else bad // 2
    between = round(math.sqrt(good * bad))
    return between if bad / good > CLOSE and good < between < bad else None


def step(users: int, asked: Sequence[Asked], server: float, load: float) -> Step:
    """What came of a step, by its requests that ended while it was counted."""
    counted = [one for one in asked if WARM_S <= one.intended_s + one.duration_s <= STEP_S]
    times = sorted(one.duration_s for one in counted if one.ok)
    return Step(
        users=users,
        per_s=len(times) / (STEP_S - WARM_S),
        p95_ms=1000 * times[math.ceil(PART * len(times)) - 1] if times else math.inf,
        failed=sum(not one.ok for one in asked),
        server=server,
        load=load,
    )


def chosen(measured: Sequence[Measured], limit_ms: float) -> Measured | None:
    """The most throughput within the limit. Of those within `ALIKE` of it: the fewest instances, which each hold the
    model's weights, then the fewest threads, then no preferred size and the shortest delay. None where nothing held.
    """
    found = [(one, best.per_s) for one in measured if (best := one.best(limit_ms))]
    if not found:
        return None
    most = max(per_s for _, per_s in found)
    alike = [(one, per_s) for one, per_s in found if per_s >= (1 - ALIKE) * most]

    def cost(pair: tuple[Measured, float]) -> tuple[int, int, Batching, float]:
        point = pair[0].point
        return point.instances, point.threads, point.batching or Batching(), -pair[1]

    return min(alike, key=cost)[0]


def lines(point: Point) -> str:
    """What stands in `config.pbtxt` for a point."""
    parts = []
    if point.batching is not None:
        inside = [f"  preferred_batch_size: [ {point.batching.preferred} ]\n"] if point.batching.preferred else []
        if point.batching.delay_us:
            inside.append(f"  max_queue_delay_microseconds: {point.batching.delay_us}\n")
        parts.append(f"dynamic_batching {{\n{''.join(inside)}}}\n" if inside else "dynamic_batching { }\n")
    parts.append(f"instance_group [\n  {{\n    kind: KIND_CPU\n    count: {point.instances}\n  }}\n]\n")
    return "".join(parts)


def configured(config: str, point: Point) -> str:
    """A `config.pbtxt` with a point in the place of its own batching and instances. `ValueError` if it is none."""
    return f"{protobuf_text.without(config, FIELDS).rstrip()}\n\n{lines(point)}"


def differs(said: Mapping[str, Any], point: Point) -> str:
    """How the configuration that Triton says it serves by (`/v2/models/<model>/config`) differs from a point's; empty
    where it does not.
    """
    found = said.get("dynamic_batching")
    batching = None
    if found is not None:
        # Where no size is preferred, Triton prefers the largest.
        preferred = [size for size in found.get("preferred_batch_size", ()) if size != said["max_batch_size"]]
        batching = Batching(next(iter(preferred), 0), found.get("max_queue_delay_microseconds", 0))
    served = Point(sum(group["count"] for group in said["instance_group"]), batching, point.threads)
    return "" if served == point else f"{served}, not {point}"


NAME_CHARS: Final = 42
HEADING: Final = (
    f"{'instances x threads, batching':<{NAME_CHARS}} {'users':>5} {'per s':>7} {'p95 ms':>7} {'batch':>5} {'MiB':>5} "
    f"{'server':>6} {'load':>5}"
)


def row(one: Measured, limit_ms: float) -> str:
    """A point as people read it."""
    best = one.best(limit_ms)
    if best is None:
        return f"{one.point!s:<{NAME_CHARS}} {one.wrong or f'no step within {limit_ms:g} ms'}"
    note = "  the load may be the limit" if best.load > LOAD_BUSY else ""
    return (
        f"{one.point!s:<{NAME_CHARS}} {best.users:>5} {best.per_s:>7.1f} {best.p95_ms:>7.1f} {one.batch:>5.1f} "
        f"{one.memory_mib:>5.0f} {best.server:>6.0%} {best.load:>5.0%}{note}"
    )
