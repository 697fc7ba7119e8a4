"""Replicas and nodes in virtual time: how they come, what they work on, and how they go."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from fleet.aws_autoscaler import UNNEEDED_MINUTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fleet.simulate.clock import Clock
    from fleet.simulate.plan import Plan, Pool, Served

PROPAGATION_S: Final = 1.0
"""From a replica's readiness, or its end, until clients know: EndpointSlices and kube-proxy take about that."""
NODE_SCAN_S: Final = 10.0
"""The node autoscaler's --scan-interval."""
UNNEEDED_PART: Final = 0.5
"""Its --scale-down-utilization-threshold, here of the node's GPUs."""
MICROSECONDS: Final = 1_000_000


@dataclass(slots=True, eq=False)
class Request:
    """One request; `answered` hears whether it was."""

    arrived: float
    answered: Callable[[bool], None]


@dataclass(slots=True, eq=False)
class Node:
    sku: str
    ready: float
    room: int
    used: int = 0
    pulled: bool = False
    unneeded_since: float = math.inf
    leaving: bool = False

    @property
    def free(self) -> int:
        return self.room - self.used


@dataclass(slots=True, eq=False)
class Replica:
    """A pod of Triton. Its counters are those that Triton has, which move when requests end."""

    name: str
    of: Served
    node: Node | None = None
    running: bool = False
    ready_at: float | None = None
    """When its model was ready: its metrics are there from then on."""
    reachable: bool = False
    deleting: bool = False
    may_go_at: float = math.inf
    gone: bool = False
    queue: deque[Request] = field(default_factory=deque)
    working: list[Request] = field(default_factory=list)
    busy: int = 0
    queue_us: float = 0.0
    compute_us: float = 0.0
    request_us: float = 0.0
    succeeded: int = 0
    executed: int = 0

    @property
    def phase(self) -> Literal["Pending", "Running"]:
        return "Running" if self.running else "Pending"


class Cluster:
    """The Deployments' replicas, and the nodes that they are on."""

    def __init__(self, plan: Plan, clock: Clock, watch: Callable[[Replica], None]) -> None:
        self._plan = plan
        self._clock = clock
        self._watch = watch
        self._pools = {pool.sku: pool for pool in plan.pools}
        self._numbers = {one.name: 0 for one in plan.served}
        self._usd: float | None = 0.0
        self._billed_s = 0.0
        self.wanted = {one.name: one.fewest for one in plan.served}
        self.replicas: dict[str, list[Replica]] = {one.name: [] for one in plan.served}
        self.nodes = [
            Node(pool.sku, clock.now, pool.room, pulled=True) for pool in plan.pools for _ in range(pool.least)
        ]
        for one in plan.served:
            for _ in range(one.fewest):
                self._settle(one)
        clock.every(NODE_SCAN_S, self._tidy, NODE_SCAN_S)

    def reachable(self, model: str) -> list[Replica]:
        """Where a request for the model may arrive, whatever the SKU."""
        served = [one for one in self._plan.served if one.model == model]
        return [replica for one in served for replica in self.replicas[one.name] if replica.reachable]

    def give(self, replica: Replica, request: Request) -> None:
        replica.queue.append(request)
        self._work(replica)

    def scale(self, served: Served, wanted: int) -> None:
        """Replicas are added, or those taken that Kubernetes would take: what has not begun first, then the youngest
        of where several are on one node.
        """
        self.wanted[served.name] = wanted
        staying = [replica for replica in self.replicas[served.name] if not replica.deleting]
        for _ in range(wanted - len(staying)):
            self._schedule(self._made(served))
        beside = {id(replica): sum(other.node is replica.node for other in staying) for replica in staying}
        staying.sort(
            key=lambda replica: (
                replica.node is not None,
                replica.running,
                replica.ready_at is not None,
                -beside[id(replica)],
                -(replica.ready_at or 0.0),
            )
        )
        for replica in staying[: max(len(staying) - wanted, 0)]:
            self._delete(replica)

    def usd(self) -> float | None:
        """Spent on nodes since the trace began; None where a price is unknown."""
        now = max(self._clock.now, 0.0)
        hours = (now - self._billed_s) / 3600
        self._billed_s = now
        for node in self.nodes:
            price = self._pools[node.sku].usd_per_hour
            self._usd = None if self._usd is None or price is None else self._usd + hours * price
        return self._usd

    def _made(self, served: Served) -> Replica:
        self._numbers[served.name] += 1
        replica = Replica(f"{served.name}-{self._numbers[served.name]}", served)
        self.replicas[served.name].append(replica)
        return replica

    def _settle(self, served: Served) -> None:
        """A replica that has been ready since long, on a node that has been there as long."""
        replica = self._made(served)
        node = self._room(served) or self._bought(self._pools[served.sku], 0.0)
        if node is not None:
            replica.node, node.pulled = node, True
            node.used += served.takes
            replica.running, replica.ready_at, replica.reachable = True, self._clock.now, True
            self._watch(replica)

    def _room(self, served: Served) -> Node | None:
        there = [node for node in self._ready_nodes(served.sku) if node.free >= served.takes and not node.leaving]
        return min(there, key=lambda node: node.used, default=None)

    def _bought(self, pool: Pool, delay_s: float) -> Node | None:
        if sum(node.sku == pool.sku for node in self.nodes) >= pool.most:
            return None
        self.usd()
        ready = self._clock.now + delay_s
        node = Node(pool.sku, ready, pool.room)
        self.nodes.append(node)
        return node

    def _schedule(self, replica: Replica) -> None:
        """Finds it a node, or buys one, or lets it wait for one that frees."""
        if replica.node is not None or replica.deleting:
            return
        served, node = replica.of, self._room(replica.of)
        if node is None:
            coming = [one for one in self.nodes if one.sku == served.sku and one.ready > self._clock.now]
            places = sum(one.free // served.takes for one in coming) if served.takes else len(coming)
            if self._unplaced(served.sku) > places:
                bought = self._bought(self._pools[served.sku], served.speed.node_s)
                if bought is not None:
                    self._clock.at(bought.ready, lambda: self._fill(served.sku))
            return
        replica.node = node
        node.used += served.takes
        self._clock.after(0.0 if node.pulled else served.speed.pull_s, lambda: self._start(replica))
        node.pulled = True

    def _unplaced(self, sku: str) -> int:
        return sum(
            replica.node is None and not replica.deleting
            for one in self._plan.served
            if one.sku == sku
            for replica in self.replicas[one.name]
        )

    def _fill(self, sku: str) -> None:
        for one in self._plan.served:
            if one.sku == sku:
                for replica in self.replicas[one.name]:
                    self._schedule(replica)

    def _start(self, replica: Replica) -> None:
        if not replica.gone:
            replica.running = True
            self._clock.after(replica.of.speed.load_s, lambda: self._ready(replica))

    def _ready(self, replica: Replica) -> None:
        if not replica.deleting:
            replica.ready_at = self._clock.now
            self._watch(replica)
            self._clock.after(PROPAGATION_S, lambda: self._reach(replica))

    def _reach(self, replica: Replica) -> None:
        replica.reachable = not replica.deleting

    def _delete(self, replica: Replica) -> None:
        """It takes no request once clients know, waits as its manifest says, and goes when it has answered all."""
        replica.deleting = True
        pod = replica.of.deployment["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        pause_s = container["lifecycle"]["preStop"]["sleep"]["seconds"] if replica.running else 0
        replica.may_go_at = self._clock.now + pause_s
        self._clock.after(min(PROPAGATION_S, pause_s), lambda: self._hide(replica))
        self._clock.after(pause_s, lambda: self._leave(replica))
        self._clock.after(pod["terminationGracePeriodSeconds"], lambda: self._leave(replica, killed=True))

    @staticmethod
    def _hide(replica: Replica) -> None:
        replica.reachable = False

    def _leave(self, replica: Replica, *, killed: bool = False) -> None:
        idle = not replica.queue and not replica.busy and self._clock.now >= replica.may_go_at
        if replica.gone or not replica.deleting or not (killed or idle):
            return
        replica.gone, replica.reachable = True, False
        if replica.node is not None:
            replica.node.used -= replica.of.takes
        self.replicas[replica.of.name].remove(replica)
        for request in (*replica.queue, *replica.working):
            request.answered(False)  # noqa: FBT003 - its only argument
        replica.queue.clear()
        self._fill(replica.of.sku)

    def _work(self, replica: Replica) -> None:
        speed = replica.of.speed
        while replica.queue and replica.busy < speed.instances:
            batch = [replica.queue.popleft() for _ in range(min(speed.batch, len(replica.queue)))]
            replica.busy += 1
            replica.working += batch
            duration_s = speed.service_s + speed.more_s * (len(batch) - 1)
            self._clock.after(duration_s, partial(self._done, replica, batch, self._clock.now))

    def _done(self, replica: Replica, batch: Sequence[Request], began: float) -> None:
        if replica.gone:
            return
        now = self._clock.now
        inside = replica.of.speed.queue == "backend"
        replica.busy -= 1
        replica.executed += 1
        for request in batch:
            replica.working.remove(request)
            replica.queue_us += 0.0 if inside else (began - request.arrived) * MICROSECONDS
            replica.compute_us += (now - (request.arrived if inside else began)) * MICROSECONDS
            replica.request_us += (now - request.arrived) * MICROSECONDS
            replica.succeeded += 1
            request.answered(True)  # noqa: FBT003 - its only argument
        self._work(replica)
        self._leave(replica)

    def _ready_nodes(self, sku: str) -> list[Node]:
        return [node for node in self.nodes if node.sku == sku and node.ready <= self._clock.now]

    def _tidy(self) -> None:
        """The node autoscaler takes nodes less than half of which has been in use for a while, if others have room."""
        for pool in self._plan.pools:
            if pool.room == 0:
                continue
            there = self._ready_nodes(pool.sku)
            for node in there:
                elsewhere = sum(other.free for other in there if other is not node and not other.leaving)
                if node.used < UNNEEDED_PART * node.room and node.used <= elsewhere:
                    node.unneeded_since = min(node.unneeded_since, self._clock.now)
                else:
                    node.unneeded_since = math.inf
            spare = len(there) - sum(node.leaving for node in there) - pool.least
            old = [node for node in there if self._clock.now - node.unneeded_since >= UNNEEDED_MINUTES * 60]
            for node in [node for node in old if not node.leaving][: max(min(spare, 1), 0)]:
                node.leaving = True
            for node in [node for node in there if node.leaving]:
                self._empty(node)

    def _empty(self, node: Node) -> None:
        """Moves replicas away, one of a model at a time, as the disruption budget wants it; an empty node goes."""
        if node.used == 0:
            self.usd()
            self.nodes.remove(node)
            return
        for one in self._plan.served:
            those = self.replicas[one.name]
            moved = next((replica for replica in those if replica.node is node and not replica.deleting), None)
            if moved is not None and all(replica.reachable for replica in those if not replica.deleting):
                self._delete(moved)
                self._schedule(self._made(one))
                return
