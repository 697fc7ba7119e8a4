"""Virtual time: what is due, in order."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """What is due at one time happens in the order in which it was put there, so that each run is like the other."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (time, self._count, event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self.now + seconds, event)

    def every(self, period_s: float, event: Callable[[], None], first: float) -> None:
        def again() -> None:
            event()
            self.after(period_s, again)

        self.at(first, again)

    def run(self, until: float) -> None:
        while self._due and self._due[0][0] <= until:
            self.now, _, event = heapq.heappop(self._due)
            event()
