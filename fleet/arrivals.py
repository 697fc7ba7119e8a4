"""When requests come: a load as a line through points, for the simulator and for the load tool."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence


def value(points: Sequence[tuple[float, float]], time: float) -> float:
    """The line through the points at a time; before the first and after the last it is level."""
    index = bisect_right(points, time, key=itemgetter(0))
    if index in (0, len(points)):
        return points[min(index, len(points) - 1)][1]
    (start, low), (end, high) = points[index - 1], points[index]
    return low + (high - low) * (time - start) / (end - start)


def stand(points: Sequence[tuple[float, int]], time: float) -> int:
    """The value of the last point that has come; nothing before the first."""
    index = bisect_right(points, time, key=itemgetter(0))
    return points[index - 1][1] if index else 0


def arrivals(points: Sequence[tuple[float, float]], until: float, chance: random.Random | None) -> Iterator[float]:
    """Times of requests: independent of one another, or, without chance, as evenly as the rate allows."""
    peak = max(rate for _, rate in points)
    if peak == 0:
        return
    time, due = 0.0, 0.0
    step = 1 / peak
    while True:
        # By thinning: candidates at the highest rate, of which the part stays that the rate of the moment is.
        time += chance.expovariate(peak) if chance is not None else step
        if time >= until:
            return
        share = value(points, time) / peak
        due += share
        if chance is not None:
            if chance.random() < share:
                yield time
        elif due >= 1 - 1e-9:
            due -= 1
            yield time
