"""Kubernetes' HorizontalPodAutoscaler, from its manifest, in virtual time.

What it does is that of kube-controller-manager v1.34.4, package k8s.io/kubernetes/pkg/controller/podautoscaler: the
number of replicas of `replica_calculator.go` (calcPlainMetricReplicas, groupPods), the limits in time and rate of
`horizontal.go` (normalizeDesiredReplicas and normalizeDesiredReplicasWithBehaviors). Values are whole thousandths, as
there. Times are seconds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from fleet.schema_autoscaling import SYNC_S
from fleet.simulate.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fleet.pods import Manifest

__all__ = ["SYNC_S", "TOLERANCE", "Autoscaler", "Decision", "ScaledPod"]

TOLERANCE: Final = 0.1
"""--horizontal-pod-autoscaler-tolerance: pkg/controller/podautoscaler/config/v1alpha1/defaults.go."""
DOWNSCALE_STABILIZATION_S: Final = 300
"""--horizontal-pod-autoscaler-downscale-stabilization, of the same file: where `behavior` says nothing."""
SCALE_UP_FACTOR: Final = 2
SCALE_UP_LEAST: Final = 4
"""Without any `behavior`: horizontal.go, scaleUpLimitFactor and scaleUpLimitMinimum."""
UP_DEFAULTS: Final[Mapping[str, Any]] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
"""What the API server fills in beside a `behavior` that is there: pkg/apis/autoscaling/v2/defaults.go."""
DOWN_DEFAULTS: Final[Mapping[str, Any]] = {
    "stabilizationWindowSeconds": DOWNSCALE_STABILIZATION_S,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|)")
_SUFFIX: Final = {"m": 1, "": 1000, "k": 1_000_000, "M": 1_000_000_000}

Policy = Literal["Max", "Min", "Disabled"]


@dataclass(frozen=True, slots=True)
class ScaledPod:
    """A pod of the Deployment, as the autoscaler sees it."""

    name: str
    phase: Literal["Pending", "Running", "Failed"]
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What one look came to."""

    replicas: int
    """Of the Deployment from now on."""
    proposed: int | None
    """What the metrics alone asked for; None where they were not asked, or said nothing."""
    mean: float | None
    """Of the metric that asked for most, over the pods that have it; of the first where none asked."""
    reason: str


@dataclass(frozen=True, slots=True)
class _Rules:
    window_s: float
    select: Policy
    policies: tuple[tuple[str, int, float], ...]
    """Type, value, period."""


@dataclass(slots=True)
class Autoscaler:
    """One autoscaler, with all that it remembers between two looks."""

    name: str
    least: int
    most: int
    targets: tuple[tuple[str, int], ...]
    """Metric and its target, thousandths."""
    up: _Rules | None
    down: _Rules | None
    tolerance: float = TOLERANCE
    recommendations: list[tuple[float, int]] = field(default_factory=list)
    ups: list[tuple[float, int]] = field(default_factory=list)
    downs: list[tuple[float, int]] = field(default_factory=list)

    @classmethod
    def of(cls, manifest: Manifest) -> Autoscaler:
        """From a manifest of autoscaling/v2. SimulationError where it says something that is not simulated."""
        name = manifest["metadata"]["name"]
        if (manifest["apiVersion"], manifest["kind"]) != ("autoscaling/v2", "HorizontalPodAutoscaler"):
            raise SimulationError(f"{name}: only a HorizontalPodAutoscaler of autoscaling/v2 is simulated")
        spec = manifest["spec"]
        _known(name, "spec", spec, {"scaleTargetRef", "minReplicas", "maxReplicas", "metrics", "behavior"})
        behavior = spec.get("behavior")
        if behavior is not None:
            _known(name, "spec.behavior", behavior, {"scaleUp", "scaleDown"})
        return cls(
            name=name,
            least=spec.get("minReplicas", 1),
            most=spec["maxReplicas"],
            targets=tuple(_target(name, metric) for metric in spec["metrics"]),
            up=None if behavior is None else _rules(name, behavior.get("scaleUp", {}), UP_DEFAULTS),
            down=None if behavior is None else _rules(name, behavior.get("scaleDown", {}), DOWN_DEFAULTS),
        )

    def look(
        self,
        now: float,
        current: int,
        pods: Sequence[ScaledPod],
        metrics: Mapping[str, Mapping[str, int] | None],
    ) -> Decision:
        """One look at `current` wanted replicas. `metrics` has thousandths by pod; None for one that gave no answer."""
        if not self.recommendations:
            self.recommendations.append((now, current))
        if current > self.most:
            return self._scaled(now, current, self.most, None, None, "above the maximum")
        if current < self.least:
            return self._scaled(now, current, self.least, None, None, "below the minimum")
        proposed, mean, reason = self._proposal(current, pods, metrics)
        if proposed is None:
            return Decision(current, None, mean, reason)
        limited = (
            self._default_limits(now, current, proposed) if self.up is None else self._limits(now, current, proposed)
        )
        return self._scaled(now, current, limited, proposed, mean, reason)

    def _scaled(  # noqa: PLR0913, PLR0917 - what is told of one look
        self, now: float, current: int, wanted: int, proposed: int | None, mean: float | None, reason: str
    ) -> Decision:
        if wanted != current and self.up is not None and self.down is not None:
            events, rules = (self.ups, self.up) if wanted > current else (self.downs, self.down)
            longest = max((period for _, _, period in rules.policies), default=0)
            event = (now, abs(wanted - current))
            # Kubernetes puts an event in the place of one that is older than its own policies look back, and keeps the
            # others, which the opposite direction's policies may still count.
            past = [index for index, (when, _) in enumerate(events) if when < now - longest]
            if past:
                events[past[-1]] = event
            else:
                events.append(event)
        return Decision(wanted, proposed, mean, reason)

    def _proposal(
        self, current: int, pods: Sequence[ScaledPod], metrics: Mapping[str, Mapping[str, int] | None]
    ) -> tuple[int | None, float | None, str]:
        """The largest that a metric asks for. Where one says nothing, the others may add replicas, and take none."""
        best, first, silent, why = 0, None, 0, ""
        mean, by = None, ""
        for index, (metric, target) in enumerate(self.targets):
            answer = _replicas(current, pods, metrics.get(metric), target, self.tolerance)
            if index == 0:
                first = answer.mean
            if answer.replicas is None:
                silent += 1
                why = why or f"{metric}: {answer.reason}"
            elif answer.replicas > best or not by:
                best, mean, by = answer.replicas, answer.mean, metric
        if silent == len(self.targets) or (silent and best < current):
            return None, first, why
        return best, mean, f"by {by}"

    def _default_limits(self, now: float, current: int, proposed: int) -> int:
        """Without `behavior`: the highest proposal of five minutes, and at most twice as many, or four."""
        cutoff = now - DOWNSCALE_STABILIZATION_S
        stable = max([proposed, *(size for when, size in self.recommendations if when >= cutoff)])
        self._remember(now, proposed, cutoff)
        ceiling = min(self.most, max(SCALE_UP_FACTOR * current, SCALE_UP_LEAST))
        return self.least if stable < self.least else min(stable, ceiling)

    def _limits(self, now: float, current: int, proposed: int) -> int:
        assert self.up is not None  # noqa: S101 - both are there, or none is
        assert self.down is not None  # noqa: S101
        up_from, down_from = now - self.up.window_s, now - self.down.window_s
        lowest = min([proposed, *(size for when, size in self.recommendations if when > up_from)])
        highest = max([proposed, *(size for when, size in self.recommendations if when > down_from)])
        self._remember(now, proposed, min(up_from, down_from))
        stable = min(max(current, lowest), highest)
        if stable > current:
            allowed = max(self._up_limit(now, current, self.up), current)
            return min(stable, self.most, allowed)
        if stable < current:
            allowed = min(self._down_limit(now, current, self.down), current)
            return max(stable, self.least, allowed)
        return stable

    def _remember(self, now: float, proposed: int, cutoff: float) -> None:
        """Kubernetes reuses one place of what is too old, and keeps the rest, which it never reads again."""
        self.recommendations[:] = [one for one in self.recommendations if one[0] >= cutoff]
        self.recommendations.append((now, proposed))

    def _start_of_period(self, now: float, current: int, period_s: float) -> int:
        since = now - period_s
        added = sum(count for when, count in self.ups if when > since)
        taken = sum(count for when, count in self.downs if when > since)
        return current - added + taken

    def _up_limit(self, now: float, current: int, rules: _Rules) -> int:
        if rules.select == "Disabled":
            return current
        proposals = [
            start + value if kind == "Pods" else math.ceil(start * (1 + value / 100))
            for kind, value, period_s in rules.policies
            for start in (self._start_of_period(now, current, period_s),)
        ]
        return min(proposals) if rules.select == "Min" else max(proposals)

    def _down_limit(self, now: float, current: int, rules: _Rules) -> int:
        if rules.select == "Disabled":
            return current
        proposals = [
            start - value if kind == "Pods" else int(start * (1 - value / 100))
            for kind, value, period_s in rules.policies
            for start in (self._start_of_period(now, current, period_s),)
        ]
        return max(proposals) if rules.select == "Min" else min(proposals)


@dataclass(frozen=True, slots=True)
class _Answer:
    replicas: int | None
    mean: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Usage:
    """What one metric says of the pods that have it, and which have not."""

    counted: Mapping[str, int]
    missing: frozenset[str]
    """Pods that run and have no value."""
    unready: frozenset[str]
    """Pods that have not begun."""
    target: int
    tolerance: float

    def mean(self, more: Mapping[str, int]) -> int:
        every = {**self.counted, **more}
        return sum(every.values()) // len(every)

    def within(self, ratio: float) -> bool:
        return 1 - self.tolerance <= ratio <= 1 + self.tolerance


def _replicas(
    current: int, pods: Sequence[ScaledPod], values: Mapping[str, int] | None, target: int, tolerance: float
) -> _Answer:
    """How many replicas one metric asks for. Pods that go are not there."""
    if not values:
        return _Answer(None, None, "no value")
    leaving = {pod.name for pod in pods if pod.deleting or pod.phase == "Failed"}
    unready = frozenset(pod.name for pod in pods if pod.name not in leaving and pod.phase == "Pending")
    begun = frozenset(pod.name for pod in pods) - leaving - unready
    # A value of a pod that is not in the list counts, as in Kubernetes: the list of pods may be the older one.
    counted = {name: value for name, value in values.items() if name not in leaving | unready}
    if not counted or not pods:
        return _Answer(None, None, "no value of a pod that has begun")
    usage = _Usage(counted, begun - values.keys(), unready, target, tolerance)
    return _Answer(_asked(current, usage, len(begun & values.keys())), usage.mean({}) / 1000)


def _asked(current: int, usage: _Usage, with_value: int) -> int:
    """A pod that has not begun counts as idle where replicas are to be added. So does one that runs and has no value;
    where replicas are to be taken it counts as being at the target. If that turns the direction, nothing changes.
    """
    ratio = usage.mean({}) / usage.target
    adding = ratio > 1
    if not usage.missing and not (usage.unready and adding):
        return current if usage.within(ratio) else math.ceil(ratio * with_value)
    more: dict[str, int] = {}
    if ratio != 1:
        more |= dict.fromkeys(usage.missing, 0 if adding else usage.target)
    if adding:
        more |= dict.fromkeys(usage.unready, 0)
    anew = usage.mean(more) / usage.target
    wanted = math.ceil(anew * (len(usage.counted) + len(more)))
    turned = (
        (ratio < 1 < anew) or (anew < 1 < ratio) or (anew < 1 and wanted > current) or (anew > 1 and wanted < current)
    )
    return current if turned or usage.within(anew) else wanted


def quantity(text: str | float) -> int:
    """A quantity of Kubernetes in thousandths: `1250m` is 1250, `2` is 2000."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise SimulationError(f"{text!r} is no quantity that is simulated: a number, alone or with m, k or M")
    return round(float(match[1]) * _SUFFIX[match[2]])


def _target(name: str, metric: Mapping[str, Any]) -> tuple[str, int]:
    source = metric.get("pods", {})
    target = source.get("target", {})
    if metric["type"] != "Pods" or target.get("type") != "AverageValue" or "selector" in source["metric"]:
        raise SimulationError(f"{name}: only metrics of type Pods with a target of type AverageValue are simulated")
    return source["metric"]["name"], quantity(target["averageValue"])


def _rules(name: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> _Rules:
    _known(name, "spec.behavior", given, defaults)
    rules = {**defaults, **given}
    for policy in rules["policies"]:
        if policy["type"] not in ("Pods", "Percent"):
            raise SimulationError(f"{name}: policies of type {policy['type']} are not simulated")
    return _Rules(
        window_s=rules["stabilizationWindowSeconds"],
        select=rules["selectPolicy"],
        policies=tuple((policy["type"], policy["value"], policy["periodSeconds"]) for policy in rules["policies"]),
    )


def _known(name: str, where: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuses what is not simulated rather than leave it out of the answer."""
    if strange := sorted(set(given) - set(known)):
        raise SimulationError(f"{name}: {where}.{strange[0]} is not simulated")
