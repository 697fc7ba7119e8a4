"""What came of a load: figures, and whether they are what was promised."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleet.load import latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.load.plan import Interval
    from fleet.load.profiles import Thresholds

ERRORS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Figures:
    """A load, or a part of it. Quantiles are of the requests that were answered; None where there is none."""

    seconds: float
    offered: int
    served: int
    failed: int
    retried: int
    tokens: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    first_token_p95_ms: float | None
    errors: dict[str, int]

    @property
    def rps(self) -> float:
        """Requests answered a second."""
        return self.served / self.seconds if self.seconds else 0.0

    @property
    def offered_per_s(self) -> float:
        return self.offered / self.seconds if self.seconds else 0.0

    @property
    def error_ratio(self) -> float:
        """Part of the requests that ended which failed."""
        ended = self.served + self.failed
        return self.failed / ended if ended else 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A threshold, and whether it was held."""

    name: str
    ok: bool
    text: str


def figures(intervals: Sequence[Interval], seconds: float) -> Figures:
    """The sum of intervals that took so many seconds."""
    counts = latency.merged([one.latency for one in intervals])
    first = latency.merged([one.first_token for one in intervals])
    errors: Counter[str] = Counter()
    for one in intervals:
        errors.update(one.errors)

    def ms(of: dict[int, int], part: float) -> float | None:
        seconds = latency.quantile(of, part)
        return None if seconds is None else round(seconds * 1000, 3)

    return Figures(
        seconds=seconds,
        offered=sum(one.offered for one in intervals),
        served=sum(one.served for one in intervals),
        failed=sum(one.failed for one in intervals),
        retried=sum(one.retried for one in intervals),
        tokens=sum(one.tokens for one in intervals),
        p50_ms=ms(counts, 0.5),
        p95_ms=ms(counts, 0.95),
        p99_ms=ms(counts, 0.99),
        first_token_p95_ms=ms(first, 0.95),
        errors=dict(errors.most_common(ERRORS_SHOWN)),
    )


def verdicts(got: Figures, limits: Thresholds) -> list[Verdict]:
    """Each threshold with what was got and what is allowed."""
    p95 = "no request was answered" if got.p95_ms is None else f"p95 {got.p95_ms:.0f} ms"
    return [
        Verdict(
            "p95_ms", got.p95_ms is not None and got.p95_ms <= limits.p95_ms, f"{p95}, at most {limits.p95_ms:g} ms"
        ),
        Verdict(
            "error_ratio",
            got.error_ratio <= limits.error_ratio,
            f"{got.failed} of {got.served + got.failed} requests failed ({got.error_ratio:.2%}), "
            f"at most {limits.error_ratio:.2%}",
        ),
        Verdict(
            "served_per_s",
            got.rps >= limits.served_per_s,
            f"{got.rps:.1f} requests/s answered, at least {limits.served_per_s:g}",
        ),
    ]
