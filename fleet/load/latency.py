"""Latencies counted in buckets, so that seconds and programs can be added up. Needs Python alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROWTH: Final = 1.02
"""A bucket's end by its beginning: what is read back is at most 1 % off."""
LEAST_S: Final = 1e-5
"""The first bucket has all that is shorter."""


def bucket(seconds: float) -> int:
    """The number of the bucket that a latency is counted in."""
    return max(math.floor(math.log(max(seconds, LEAST_S) / LEAST_S) / math.log(GROWTH)), 0)


def seconds_of(number: int) -> float:
    """The middle of a bucket, by which its latencies are read back."""
    return LEAST_S * math.pow(GROWTH, number + 0.5)


def merged(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """All counts together."""
    total: dict[int, int] = {}
    for one in counts:
        for number, count in one.items():
            total[number] = total.get(number, 0) + count
    return total


def quantile(counts: Mapping[int, int], part: float) -> float | None:
    """The smallest latency, seconds, that `part` of them do not exceed; None of none."""
    rank = part * sum(counts.values())
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= rank:
            return seconds_of(number)
    return None
