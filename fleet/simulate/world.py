"""A fleet in virtual time: clients, replicas, nodes, Prometheus, the metrics API, and the autoscalers of its manifests.

What is taken from the manifests: bounds, metrics and behavior of each autoscaler, the rules of the series that it
reads, intervals of scrapes and of rules, and what stops a replica. What is in no manifest comes from the trace, or is a
constant with its source.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from fleet import arrivals
from fleet.simulate.autoscaler import SYNC_S, Autoscaler, ScaledPod
from fleet.simulate.clock import Clock
from fleet.simulate.observed import Observer, begin
from fleet.simulate.plan import Change, Phases, Run, Sight
from fleet.simulate.replicas import Cluster, Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.simulate.plan import Plan, Served
    from fleet.simulate.trace import Load

RETRY_S: Final = 1.0
"""A user whose request failed tries again after that."""
LISTINGS_BEFORE: Final = 4
"""The fleet has been there for so many listings of the adapter before the trace begins, idle. By then each series is
known: two scrapes, a rule and a listing, none of which is longer than the time between two listings.
"""
SIGHTS: Final = 360
"""Points of a report's curves, about."""


class World:
    """Everything that happens."""

    def __init__(self, plan: Plan, phases: Phases | None = None) -> None:
        self._plan = plan
        self._phases = phases or Phases()
        self._end = float(plan.trace.duration_s)
        self._clock = Clock(-LISTINGS_BEFORE * plan.relist_s)
        self._chance = random.Random(plan.trace.seed)  # noqa: S311 - the same each time, which is the point
        self._scalers = {
            one.name: (one, Autoscaler.of(one.autoscaler)) for one in plan.served if one.autoscaler is not None
        }
        read = frozenset(metric for _, scaler in self._scalers.values() for metric, _ in scaler.targets)
        self._observer = Observer(plan, self._clock, self._chance, read, self._phases)
        self._cluster = Cluster(plan, self._clock, self._observer.watch)
        self._users: set[tuple[str, int]] = set()
        self._sights: list[Sight] = []
        self._changes: list[Change] = []
        self._latencies: list[float] = []
        self._served_by = {one.name: 0 for one in plan.served}
        self._offered = 0
        self._failed = 0
        self._seen = (0, 0, 0)
        """Offered, failed and answered at the last sight."""

    def run(self) -> Run:
        """Plays the whole trace."""
        for name in self._scalers:
            first = begin(self._clock, SYNC_S, self._chance, self._phases.looks.get(name))
            self._clock.every(SYNC_S, partial(self._look, name), first)
        self._clock.every(max(self._end / SIGHTS, 1.0), self._sight, 0.0)
        for load in self._plan.trace.loads:
            if load.rate is not None:
                self._arrive(load, self._arrivals(load.rate, load.model))
            self._visit(load)
        self._clock.run(self._end)
        return Run(
            plan=self._plan,
            sights=tuple(self._sights),
            changes=tuple(self._changes),
            latencies=tuple(self._latencies),
            offered=self._offered,
            failed=self._failed,
            served_by=self._served_by,
        )

    def _arrivals(self, points: Sequence[tuple[float, float]], model: str) -> Iterator[float]:
        """Chance of its own, so that the load is the same whatever the fleet does."""
        seed = f"{self._plan.trace.seed}/{model}"
        even = self._plan.trace.arrivals == "even"
        return arrivals.arrivals(points, self._end, None if even else random.Random(seed))  # noqa: S311 - as above

    def _arrive(self, load: Load, times: Iterator[float]) -> None:
        """The next request of a rate, and after it the next."""

        def arrive() -> None:
            self._ask(load, None)
            self._arrive(load, times)

        time = next(times, None)
        if time is not None:
            self._clock.at(time, arrive)

    def _visit(self, load: Load) -> None:
        """Users come at the points; those too many leave with their next answer."""
        before = 0
        for time, count in load.users or ():
            for number in range(before, count):
                self._clock.at(time, partial(self._come, load, number))
            before = count

    def _come(self, load: Load, number: int) -> None:
        if (load.model, number) not in self._users:
            self._users.add((load.model, number))
            self._ask(load, number)

    def _again(self, load: Load, number: int) -> None:
        if number < arrivals.stand(load.users or (), self._clock.now):
            self._ask(load, number)
        else:
            self._users.discard((load.model, number))

    def _ask(self, load: Load, user: int | None) -> None:
        """One connection a request: a replica is as likely to get it as any other, on whatever SKU."""
        self._offered += 1
        there = self._cluster.reachable(load.model)
        if not there:
            self._answered(load, user, self._clock.now, None, ok=False)
            return
        replica = self._chance.choice(there)
        answered = partial(self._heard, load, user, self._clock.now, replica.of.name)
        self._cluster.give(replica, Request(self._clock.now, answered))

    def _heard(self, load: Load, user: int | None, asked: float, by: str, ok: bool) -> None:  # noqa: FBT001 - a callback
        self._answered(load, user, asked, by, ok=ok)

    def _answered(self, load: Load, user: int | None, asked: float, by: str | None, *, ok: bool) -> None:
        if ok and by is not None:
            self._latencies.append(self._clock.now - asked)
            self._served_by[by] += 1
        else:
            self._failed += 1
        if user is not None:
            self._clock.after(load.think_s if ok else RETRY_S, partial(self._again, load, user))

    def _look(self, name: str) -> None:
        """An autoscaler looks, and decides."""
        served, scaler = self._scalers[name]
        replicas = self._cluster.replicas[name]
        pods = [ScaledPod(one.name, one.phase, one.deleting) for one in replicas]
        told = {metric: self._observer.told(metric, served, [pod.name for pod in pods]) for metric, _ in scaler.targets}
        before = self._cluster.wanted[name]
        decision = scaler.look(self._clock.now, before, pods, told)
        if decision.replicas != before:
            self._changes.append(
                Change(self._clock.now, name, before, decision.replicas, decision.mean, decision.reason)
            )
            self._cluster.scale(served, decision.replicas)

    def _sight(self) -> None:
        answered = len(self._latencies)
        offered, failed, seen = self._seen
        recent = self._latencies[seen:]
        self._seen = (self._offered, self._failed, answered)
        replicas = self._cluster.replicas
        self._sights.append(
            Sight(
                time=self._clock.now,
                wanted=dict(self._cluster.wanted),
                ready={name: sum(one.reachable for one in those) for name, those in replicas.items()},
                ratio={one.name: self._ratio(one) for one in self._plan.served},
                waiting=sum(len(one.queue) for those in replicas.values() for one in those),
                offered=self._offered - offered,
                served=answered - seen,
                failed=self._failed - failed,
                p95_s=quantile(recent, 0.95),
                nodes={
                    pool.sku: sum(node.sku == pool.sku for node in self._cluster.nodes) for pool in self._plan.pools
                },
                usd=self._cluster.usd(),
            )
        )

    def _ratio(self, served: Served) -> float | None:
        """Mean of the first metric over the pods that have it."""
        if served.name not in self._scalers:
            return None
        metric = self._scalers[served.name][1].targets[0][0]
        names = [one.name for one in self._cluster.replicas[served.name] if not one.deleting]
        values = [value for name in names if (value := self._observer.value(metric, served, name)) is not None]
        return sum(values) / len(values) if values else None


def quantile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that `part` of them do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None
