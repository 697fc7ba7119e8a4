"""As much of PromQL as the recorded series of autoscaling are written in, evaluated over simulated scrapes.

Selectors, `rate` and `*_over_time` over ranges, `sum`, `max`, `min`, `avg` and `count` with `by`, arithmetic,
comparisons with and without `bool`, `on`, `and`, `or`. What else a rule may hold is refused, not guessed at.

What an expression means is said by https://prometheus.io/docs/prometheus/latest/querying/basics/ and …/operators/.
`rate` extrapolates as Prometheus does (promql/functions.go, extrapolatedRate, v0.314.0 of the module).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from fleet.simulate.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

LOOKBACK_S: Final = 300.0
"""--query.lookback-delta: how old a sample may be that still stands."""
NAME: Final = "__name__"
EXTRAPOLATED: Final = 1.1
"""Of the mean distance of samples: a range whose end is farther than that from its last sample is not reached."""

_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:ms|[smhd])\b)|(?P<number>\d+\.?\d*(?:e[+-]?\d+)?)|(?P<name>[A-Za-z_:][\w:]*)"
    r'|(?P<text>"[^"\\]*")|(?P<sign>==|!=|>=|<=|=~|!~|[-+*/(){}\[\],<>=]))'
)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_AGGREGATES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
    "avg": lambda values: math.fsum(values) / len(values),
    "count": len,
}
_OVER_TIME: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    f"{name}_over_time": function for name, function in _AGGREGATES.items()
}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
}
_LEVELS: Final = (("or",), ("and",), tuple(_COMPARISONS), ("+", "-"), ("*", "/"))
"""Binary operators, loosest first."""


@dataclass(slots=True)
class Series:
    """Samples of one series, oldest first. `ended` is when it was marked stale: from then on it is not there."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    ended: float = math.inf

    def add(self, time: float, value: float) -> None:
        self.times.append(time)
        self.values.append(value)

    def last(self, now: float) -> float | None:
        """The newest sample that still stands."""
        index = bisect_right(self.times, now) - 1
        if index < 0 or now >= self.ended or self.times[index] <= now - LOOKBACK_S:
            return None
        return self.values[index]

    def within(self, start: float, end: float) -> tuple[Sequence[float], Sequence[float]]:
        """Samples later than `start` and not later than `end`."""
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        return self.times[first:last], self.values[first:last]


class Storage:
    """All series, found by name."""

    def __init__(self) -> None:
        self._series: dict[str, dict[Labels, Series]] = {}

    def add(self, name: str, labels: Labels, time: float, value: float) -> None:
        self._series.setdefault(name, {}).setdefault(labels, Series()).add(time, value)

    def end(self, name: str, labels: Labels, time: float) -> None:
        """Marks a series stale: its target is gone, or a rule gave it no value."""
        series = self._series.get(name, {}).get(labels)
        if series is not None and series.ended == math.inf:
            series.ended = time

    def of(self, name: str) -> Mapping[Labels, Series]:
        return self._series.get(name, {})

    def forget(self, before: float) -> None:
        """Drops series that ended long ago: no expression reads them any more."""
        for name, those in self._series.items():
            self._series[name] = {labels: series for labels, series in those.items() if series.ended >= before}


Value = float | Vector


@dataclass(frozen=True, slots=True)
class Query:
    """An expression that was read."""

    text: str
    names: frozenset[str]
    """Of the series that it reads."""
    _evaluate: Callable[[Storage, float], Value]

    def at(self, storage: Storage, now: float) -> Vector:
        """The vector that it gives. SimulationError if it gives a number."""
        found = self._evaluate(storage, now)
        if isinstance(found, float):
            raise SimulationError(f"{self.text!r} is a number, not a vector")
        return found


def query(text: str) -> Query:
    """Reads an expression. SimulationError where it holds what is not simulated."""
    reader = _Reader(text)
    evaluate = reader.whole()
    return Query(text, frozenset(reader.selected), evaluate)


def seconds(text: str) -> float:
    """A duration, as in `10s` or `5m`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SimulationError(f"{text!r} is no duration that is simulated: a number with ms, s, m, h or d")
    return int(match[1]) * _SECONDS[match[2]]


def _lookup(name: str, matchers: Sequence[_Matcher]) -> Callable[[Storage], Iterator[tuple[Labels, Series]]]:
    def found(storage: Storage) -> Iterator[tuple[Labels, Series]]:
        for labels, series in storage.of(name).items():
            given = dict(labels)
            if all(matcher.holds(given.get(matcher.label, "")) for matcher in matchers):
                yield labels, series

    return found


@dataclass(frozen=True, slots=True)
class _Matcher:
    label: str
    operator: str
    value: str

    def holds(self, value: str) -> bool:
        if self.operator in ("=", "!="):
            return (value == self.value) is (self.operator == "=")
        return (re.fullmatch(self.value, value) is not None) is (self.operator == "=~")


@dataclass(frozen=True, slots=True)
class _Range:
    """A selector with a range; a value only as the argument of a function."""

    found: Callable[[Storage], Iterator[tuple[Labels, Series]]]
    seconds: float


class _Reader:
    """Reads by descending from the loosest operator."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._next = 0
        self.selected: set[str] = set()

    def _split(self) -> Iterator[tuple[str, str]]:
        at, text = 0, self._text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise SimulationError(f"{self._text!r}: {text[at : at + 20]!r} is not simulated")
            yield match.lastgroup, match[match.lastgroup]
            at = match.end()

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> str:
        found = self._peek()
        if not found or (wanted and found != wanted):
            raise SimulationError(f"{self._text!r}: {wanted or 'more'} expected, not {found or 'its end'!r}")
        self._next += 1
        return found

    def _took(self, wanted: str) -> bool:
        if self._peek() != wanted:
            return False
        self._next += 1
        return True

    def whole(self) -> Callable[[Storage, float], Value]:
        found = self._binary(0)
        if self._peek():
            raise SimulationError(f"{self._text!r}: {self._peek()!r} is not simulated there")
        return found

    def _binary(self, level: int) -> Callable[[Storage, float], Value]:
        if level == len(_LEVELS):
            return self._primary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            operator = self._take()
            as_number = self._took("bool")
            on = self._names() if self._took("on") else None
            if self._peek() in ("ignoring", "group_left", "group_right"):
                raise SimulationError(f"{self._text!r}: {self._peek()} is not simulated")
            right = self._binary(level + 1)
            left = _combined(operator, left, right, on, as_number=as_number)
        return left

    def _primary(self) -> Callable[[Storage, float], Value]:
        if self._took("("):
            inner = self._binary(0)
            self._take(")")
            return inner
        if self._kind() == "number":
            number = float(self._take())
            return lambda _storage, _now: number
        if self._kind() != "name":
            raise SimulationError(f"{self._text!r}: {self._peek() or 'its end'!r} is not simulated there")
        name = self._take()
        if name in _AGGREGATES:
            return self._aggregate(name)
        if self._peek() == "(":
            return self._function(name)
        selected = self._selector(name)
        if isinstance(selected, _Range):
            raise SimulationError(f"{self._text!r}: a range stands only in a function")
        return selected

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        names = []
        while self._peek() != ")":
            names.append(self._take())
            self._took(",")
        self._take(")")
        return tuple(names)

    def _aggregate(self, name: str) -> Callable[[Storage, float], Value]:
        by = self._names() if self._took("by") else None
        self._take("(")
        inner = self._binary(0)
        self._take(")")
        if by is None:
            by = self._names() if self._took("by") else ()
        return _aggregated(_AGGREGATES[name], inner, frozenset(by))

    def _function(self, name: str) -> Callable[[Storage, float], Value]:
        self._take("(")
        if name != "rate" and name not in _OVER_TIME:
            raise SimulationError(f"{self._text!r}: {name} is not simulated")
        selected = self._selector(self._take())
        if not isinstance(selected, _Range):
            raise SimulationError(f"{self._text!r}: {name} is of a range")
        self._take(")")
        return _rated(selected) if name == "rate" else _over_time(_OVER_TIME[name], selected)

    def _selector(self, name: str) -> _Range | Callable[[Storage, float], Value]:
        matchers = []
        self.selected.add(name)
        if self._took("{"):
            while not self._took("}"):
                label, operator, value = self._take(), self._take(), self._take()
                matchers.append(_Matcher(label, operator, value.strip('"')))
                self._took(",")
        found = _lookup(name, matchers)
        if not self._took("["):
            return lambda storage, now: {
                labels | {(NAME, name)}: value
                for labels, series in found(storage)
                if (value := series.last(now)) is not None
            }
        length_s = seconds(self._take())
        self._take("]")
        return _Range(found, length_s)


def _over_time(function: Callable[[Sequence[float]], float], selected: _Range) -> Callable[[Storage, float], Vector]:
    def evaluate(storage: Storage, now: float) -> Vector:
        found = ((labels, series.within(now - selected.seconds, now)[1]) for labels, series in selected.found(storage))
        return {labels: float(function(values)) for labels, values in found if values}

    return evaluate


def _rated(selected: _Range) -> Callable[[Storage, float], Vector]:
    def evaluate(storage: Storage, now: float) -> Vector:
        start = now - selected.seconds
        found = ((labels, _rate(*series.within(start, now), start, now)) for labels, series in selected.found(storage))
        return {labels: value for labels, value in found if value is not None}

    return evaluate


def _rate(times: Sequence[float], values: Sequence[float], start: float, end: float) -> float | None:
    """Increase a second; a value that falls is of a counter that began anew. Two samples are needed."""
    if len(times) < 2:  # noqa: PLR2004 - two, as said
        return None
    resets = math.fsum(before for before, after in pairwise(values) if after < before)
    increase = values[-1] - values[0] + resets
    sampled = times[-1] - times[0]
    between = sampled / (len(times) - 1)
    to_start, to_end = times[0] - start, end - times[-1]
    if to_start >= EXTRAPOLATED * between:
        to_start = between / 2
    if increase > 0 and values[0] >= 0:
        # A counter was never below 0, so it is not extrapolated to before it was 0.
        to_start = min(to_start, sampled * (values[0] / increase))
    if to_end >= EXTRAPOLATED * between:
        to_end = between / 2
    return increase * ((sampled + to_start + to_end) / sampled) / (end - start)


def _aggregated(
    function: Callable[[Sequence[float]], float], inner: Callable[[Storage, float], Value], by: frozenset[str]
) -> Callable[[Storage, float], Value]:
    def evaluate(storage: Storage, now: float) -> Value:
        groups: dict[Labels, list[float]] = {}
        for labels, value in _vector(inner(storage, now)).items():
            groups.setdefault(_only(labels, by), []).append(value)
        return {labels: float(function(values)) for labels, values in groups.items()}

    return evaluate


def _only(labels: Labels, names: Iterable[str]) -> Labels:
    wanted = frozenset(names)
    return frozenset(pair for pair in labels if pair[0] in wanted)


def unnamed(labels: Labels) -> Labels:
    """Labels without the series' name."""
    return frozenset(pair for pair in labels if pair[0] != NAME)


def _vector(value: Value) -> Vector:
    if isinstance(value, float):
        raise SimulationError("a number stands where a vector should")
    return value


def _arithmetic(operator: str, left: float, right: float) -> float:
    if operator == "/":
        if right == 0:
            return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left)
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def _combined(
    operator: str,
    left: Callable[[Storage, float], Value],
    right: Callable[[Storage, float], Value],
    on: tuple[str, ...] | None,
    *,
    as_number: bool,
) -> Callable[[Storage, float], Value]:
    def key(labels: Labels) -> Labels:
        return unnamed(labels) if on is None else _only(labels, on)

    if operator in ("or", "and"):
        return lambda storage, now: _set(operator, _vector(left(storage, now)), _vector(right(storage, now)), key)

    def evaluate(storage: Storage, now: float) -> Value:
        ours, theirs = left(storage, now), right(storage, now)
        if isinstance(ours, float) and isinstance(theirs, float):
            return _pair(operator, ours, theirs, as_number=as_number) or 0.0
        pairs = [
            (labels, _pair(operator, one, other, as_number=as_number))
            for labels, one, other in _partners(ours, theirs, key)
        ]
        keeps = operator in _COMPARISONS and not as_number
        return {labels if keeps else unnamed(labels): value for labels, value in pairs if value is not None}

    return evaluate


def _pair(operator: str, one: float, other: float, *, as_number: bool) -> float | None:
    """The value of a pair, or nothing where a comparison leaves it out."""
    if operator not in _COMPARISONS:
        return _arithmetic(operator, one, other)
    holds = _COMPARISONS[operator](one, other)
    return float(holds) if as_number else one if holds else None


def _set(operator: str, ours: Vector, theirs: Vector, key: Callable[[Labels], Labels]) -> Vector:
    if operator == "and":
        there = {key(labels) for labels in theirs}
        return {labels: value for labels, value in ours.items() if key(labels) in there}
    there = {key(labels) for labels in ours}
    return {**ours, **{labels: value for labels, value in theirs.items() if key(labels) not in there}}


def _partners(ours: Value, theirs: Value, key: Callable[[Labels], Labels]) -> Iterator[tuple[Labels, float, float]]:
    """What stands on the left beside what stands on the right: a number beside each sample, or samples one to one."""
    if isinstance(theirs, float):
        yield from ((labels, one, theirs) for labels, one in _vector(ours).items())
    elif isinstance(ours, float):
        yield from ((labels, ours, other) for labels, other in theirs.items())
    else:
        partners = {key(labels): other for labels, other in theirs.items()}
        yield from ((labels, one, partners[key(labels)]) for labels, one in ours.items() if key(labels) in partners)
