"""Prometheus and the metrics API in virtual time: scrapes, rules as rendered, and what an autoscaler is told."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fleet import scraping
from fleet.simulate import promql
from fleet.simulate.errors import SimulationError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from fleet.simulate.clock import Clock
    from fleet.simulate.plan import Phases, Plan, Served
    from fleet.simulate.promql import Labels, Query
    from fleet.simulate.replicas import Replica

DISCOVERY_S: Final = 5.0
"""Prometheus takes up and drops targets that often: discovery/manager.go, updatert."""
KEPT_S: Final = 600.0
"""Series that ended before that are forgotten."""
THOUSANDTHS: Final = 1000

METRICS: Final[Mapping[str, Callable[[Replica], float]]] = {
    "up": lambda _: 1.0,
    "nv_inference_queue_duration_us": lambda replica: replica.queue_us,
    "nv_inference_compute_infer_duration_us": lambda replica: replica.compute_us,
    "nv_inference_request_duration_us": lambda replica: replica.request_us,
    "nv_inference_request_success": lambda replica: replica.succeeded,
    "nv_inference_count": lambda replica: replica.succeeded,
    "nv_inference_exec_count": lambda replica: replica.executed,
    "nv_inference_pending_request_count": lambda replica: (
        len(replica.queue) if replica.of.speed.queue == "triton" else 0
    ),
    "nv_trt_llm_request_metrics": lambda replica: len(replica.queue),
}
"""What a replica shows. Triton: docs/user_guide/metrics.md; of the last, what waits inside TensorRT-LLM."""
MORE_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "up": {},
    "nv_trt_llm_request_metrics": {"request_type": "waiting"},
}


class Observer:
    """What is known of the replicas, and since when."""

    def __init__(self, plan: Plan, clock: Clock, chance: random.Random, read: frozenset[str], phases: Phases) -> None:
        """`read` are the series that autoscalers read. SimulationError where no rule makes one of them."""
        self._plan = plan
        self._clock = clock
        self._chance = chance
        self._read = read
        self._phases = phases
        self._storage = promql.Storage()
        self._scrape_s = interval(plan.monitor["spec"]["podMetricsEndpoints"][0]["interval"])
        self._recorded: dict[str, set[Labels]] = {}
        self._listed: frozenset[str] = frozenset()
        groups = plan.rules["spec"]["groups"]
        needed = _needed([rule for group in groups for rule in group["rules"]], read)
        for group in groups:
            rules = [(rule, needed[rule["record"]]) for rule in group["rules"] if rule["record"] in needed]
            if rules:
                period_s = interval(group["interval"])
                first = begin(clock, period_s, chance, phases.rules.get(group["name"]))
                clock.every(period_s, partial(self._evaluate, rules), first)
        clock.every(plan.relist_s, self._list, begin(clock, plan.relist_s, chance, None))
        clock.every(KEPT_S, lambda: self._storage.forget(clock.now - KEPT_S), KEPT_S)

    def watch(self, replica: Replica) -> None:
        """Each target is scraped at moments of its own."""
        labels = self._labels(replica.of, replica.name)
        first = begin(self._clock, self._scrape_s, self._chance, self._phases.scrapes.get(replica.name))
        self._clock.at(first, lambda: self._scrape(replica, labels))

    def told(self, metric: str, served: Served, pods: Sequence[str]) -> dict[str, int] | None:
        """What the metrics API answers for pods, thousandths; None while it knows of no such metric."""
        if metric not in self._listed:
            return None
        found = {name: value for name in pods if (value := self.value(metric, served, name)) is not None}
        return {name: 0 if math.isnan(value) else int(value * THOUSANDTHS) for name, value in found.items()}

    def value(self, metric: str, served: Served, pod: str) -> float | None:
        """The newest of a recorded series of a pod."""
        series = self._storage.of(metric).get(self._labels_of_pod(served, pod))
        return None if series is None else series.last(self._clock.now)

    def _labels_of_pod(self, served: Served, pod: str) -> Labels:
        return frozenset(
            {
                (scraping.LABEL_ENVIRONMENT, self._plan.environment),
                (scraping.LABEL_NAMESPACE, self._plan.namespace),
                (scraping.LABEL_POD, pod),
                (scraping.LABEL_SKU, served.sku),
                (scraping.LABEL_DEPLOYED_MODEL, served.model),
            }
        )

    def _labels(self, served: Served, pod: str) -> dict[str, Labels]:
        """By metric."""
        target = self._labels_of_pod(served, pod) | {("job", self._plan.job)}
        model = {(scraping.LABEL_MODEL, served.model), ("version", "1")}
        return {
            name: target | (frozenset(MORE_LABELS[name].items()) if name in MORE_LABELS else model) for name in METRICS
        }

    def _scrape(self, replica: Replica, labels: Mapping[str, Labels]) -> None:
        now = self._clock.now
        if replica.gone:
            for name, those in labels.items():
                self._storage.end(name, those, now)
            return
        for name, read in METRICS.items():
            self._storage.add(name, labels[name], now, float(read(replica)))
        self._clock.after(self._scrape_s, lambda: self._scrape(replica, labels))

    def _evaluate(self, rules: Sequence[tuple[Mapping[str, Any], Query]]) -> None:
        now = self._clock.now
        for rule, query in rules:
            name, more = rule["record"], frozenset(rule.get("labels", {}).items())
            values = {promql.unnamed(labels) | more: value for labels, value in query.at(self._storage, now).items()}
            for labels, value in values.items():
                self._storage.add(name, labels, now, value)
            for labels in self._recorded.get(name, set()) - values.keys():
                self._storage.end(name, labels, now)
            self._recorded[name] = set(values)

    def _list(self) -> None:
        """The adapter knows the series that had a sample since it last looked."""
        since = self._clock.now - self._plan.relist_s
        self._listed = frozenset(
            name
            for name in self._read
            if any(series.within(since, self._clock.now)[0] for series in self._storage.of(name).values())
        )


def begin(clock: Clock, period_s: float, chance: random.Random, known: float | None) -> float:
    """The first time from now on of what comes every so many seconds; `known` is any of its times."""
    drawn = chance.uniform(0, period_s)
    return clock.now + (drawn if known is None else (known - clock.now) % period_s)


def interval(text: str) -> float:
    """`10s` in seconds."""
    return promql.seconds(text)


def _needed(rules: Sequence[Mapping[str, Any]], read: frozenset[str]) -> dict[str, Query]:
    """The recorded series that are read, and those that they are made of.

    SimulationError where no rule records a series, or a rule reads what no replica shows.
    """
    recorded = {rule["record"]: rule for rule in rules}
    found: dict[str, Query] = {}
    wanted = sorted(read)
    for name in wanted:
        if name not in recorded:
            raise SimulationError(f"{name}: an autoscaler reads it, and no rule records it")
        if name in found:
            continue
        found[name] = promql.query(recorded[name]["expr"])
        for series in sorted(found[name].names - METRICS.keys()):
            if series not in recorded:
                raise SimulationError(f"{name}: {series} is not simulated")
            wanted.append(series)
    return found
