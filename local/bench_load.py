"""Benchmarks that ask the fleet: a closed load of 100 users, and how the plain Service spreads requests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from fleet import names
from fleet.load import outcome
from fleet.load.plan import Plan
from local import load, preflight_table
from local.cluster import lifecycle
from local.cluster.handle import Handle
from local.errors import LocalError
from local.processes import cgroups, family
from services.load import run
from services.verification.cluster import KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fleet.load.plan import Interval
    from local.state import State

    Progress = Callable[[str], None]

USERS: Final = 100
USERS_S: Final = 300
"""Issue 6: a closed load of 100 virtual users for 5 minutes, 0 errors."""
SPREAD_S: Final = 10
ROUNDS: Final = 4
"""Connections that are kept fall on replicas anew in each."""
NEW_S: Final = 60
HALF_S: Final = 10
CLIENTS: Final = 8
THINK_S: Final = 0.3
"""So that replicas are idle most of the time: what is measured is who is asked, not who is full."""
REPLICAS: Final = 2
"""Of each SKU, while balance is measured."""
POLL_S: Final = 0.2
READY_S: Final = 180
DUTY_S: Final = 0.01
"""A replica at half speed is stopped for so long, and runs for so long."""

POLLER: Final = """
import http.client, json, sys, time
for line in sys.stdin:
    counts = {}
    for address in line.split():
        try:
            connection = http.client.HTTPConnection(address, 8000, timeout=2)
            connection.request("GET", "/v2/models/MODEL/stats")
            stats = json.loads(connection.getresponse().read())
            counts[address] = sum(one["inference_stats"]["success"]["count"] for one in stats["model_stats"])
            connection.close()
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            pass
    print(json.dumps([time.monotonic(), counts]), flush=True)
"""
"""Runs on a node, from which a policy lets the machine ask each replica by itself."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the model."""

    name: str
    uid: str
    sku: str
    address: str
    ready: bool


class Fleet:
    """The bench's cluster, as its benchmarks ask and change it."""

    def __init__(self, state: State) -> None:
        found = Handle.read(state)
        if found is None:
            raise LocalError("the cluster is gone", fix="run the benchmark again")
        self.state = state
        self.handle = found
        self.cluster = KubernetesCluster(state.kubeconfig.read_text())
        self.settings = preflight_table.accepted("local")
        self.model = self.settings.models[0]
        self.namespace = self.settings.serving.namespace
        given = load.Given("local", {})
        self._address = load.service_address(self.cluster, self.settings, self.model, given)
        self._case = load.known_case(self.model, "infer")

    def plan(self, users: int, duration_s: float, **more: Any) -> Plan:  # noqa: ANN401 - a plan's own
        return Plan(
            host=self._address,
            model=self.model.name,
            scenario="infer",
            arrivals="closed",
            points=((0, users),),
            duration_s=duration_s,
            case=self._case,
            **more,
        )

    def replicas(self) -> list[Replica]:
        """Those that are to stay."""
        selector = ",".join(f"{key}={value}" for key, value in names.model_selector(self.model.name).items())
        items = self.cluster.get(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}")["items"]
        return [
            Replica(
                name=pod["metadata"]["name"],
                uid=pod["metadata"]["uid"],
                sku=pod["metadata"]["labels"][names.LABEL_SKU],
                address=pod["status"].get("podIP", ""),
                ready=any(
                    one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ())
                ),
            )
            for pod in items
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def fewest(self, count: int) -> None:
        """Sets the fewest replicas of each SKU, past the stack: the cluster goes with the benchmark."""
        for placement in self.model.placements:
            name = names.deployment_name(self.model.name, placement.sku)
            patch = json.dumps({"spec": {"minReplicas": count}})
            done = lifecycle.kubectl(
                self.state, "patch", "hpa", name, f"--namespace={self.namespace}", "--patch", patch
            )
            if done.returncode != 0:
                raise LocalError(f"the autoscaler {name} was not changed: {done.stderr}", fix="run the benchmark again")

    def until(self, count: int) -> list[Replica]:
        """Waits for so many replicas, all of them ready."""
        until = time.monotonic() + READY_S
        while True:
            found = self.replicas()
            if len(found) == count and all(one.ready for one in found):
                return found
            if time.monotonic() > until:
                raise LocalError(f"{len(found)} replicas, not {count} that are ready", fix="run the benchmark again")
            time.sleep(0.5)


class Poller:
    """Counts of requests that each replica has answered, asked of the replicas themselves."""

    def __init__(self, fleet: Fleet) -> None:
        argv = fleet.handle.inside(
            [sys.executable, "-S", "-c", POLLER.replace("MODEL", fleet.model.name)], node="system"
        )
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def counts(self, replicas: list[Replica]) -> tuple[float, dict[str, int]]:
        """The moment, of the monotonic clock, and the count of each that answered, by pod."""
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write(" ".join(one.address for one in replicas if one.address) + "\n")
        self._process.stdin.flush()
        moment, counts = json.loads(self._process.stdout.readline())
        return moment, {one.name: counts[one.address] for one in replicas if one.address in counts}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def users(state: State, progress: Progress) -> float:
    """Requests of 100 users in 5 minutes that failed."""
    fleet = Fleet(state)
    with run.Running(fleet.plan(USERS, USERS_S), requests=False) as running:
        made = running.made()
    got = outcome.figures(made.intervals, USERS_S)
    progress(
        f"bench: {USERS} users for {USERS_S} s: {got.served} answered ({got.rps:.1f}/s), {got.failed} failed, "
        f"p50 {got.p50_ms} ms, p95 {got.p95_ms} ms, p99 {got.p99_ms} ms; "
        f"replicas at the end: {_by_sku({one.name: 1 for one in fleet.replicas()}, fleet.replicas())}"
    )
    if not got.served:
        raise LocalError("nothing was answered, so nothing was measured", fix="make verify")
    return got.failed


def balance(state: State, progress: Progress) -> float:
    """The p99 with one of the replicas at half speed by that with all at full speed; the rest is printed."""
    fleet = Fleet(state)
    fleet.fewest(REPLICAS)
    replicas = fleet.until(REPLICAS * len(fleet.model.placements))
    try:
        with Poller(fleet) as poller:
            for keep_alive in (False, True):
                _spread(fleet, poller, replicas, progress, keep_alive=keep_alive)
            for keep_alive in (False, True):
                replicas = _arrival(fleet, poller, progress, keep_alive=keep_alive)
            return _halved(fleet, poller, replicas, progress)
    finally:
        fleet.fewest(fleet.model.placements[0].replicas.min)


def _clients(keep_alive: bool) -> str:  # noqa: FBT001 - how it is said
    return "connections kept" if keep_alive else "a connection for each request"


def _spread(fleet: Fleet, poller: Poller, replicas: list[Replica], progress: Progress, *, keep_alive: bool) -> None:
    for _ in range(ROUNDS):
        _, before = poller.counts(replicas)
        run.run(fleet.plan(CLIENTS, SPREAD_S, think_s=THINK_S, keep_alive=keep_alive))
        _, after = poller.counts(replicas)
        counts = {name: after[name] - before[name] for name in after}
        progress(
            f"bench: spread, {CLIENTS} clients, {_clients(keep_alive)}: {sorted(counts.values())} by replica, "
            f"most by least {max(counts.values()) / max(min(counts.values()), 1):.1f}; {_by_sku(counts, replicas)}"
        )


def _arrival(fleet: Fleet, poller: Poller, progress: Progress, *, keep_alive: bool) -> list[Replica]:
    """One more replica of each SKU while clients ask: how long after it is Ready it is asked first, and how much."""
    before = {one.name for one in fleet.replicas()}
    count = len(before) // len(fleet.model.placements)
    ready: dict[str, float] = {}
    asked: dict[str, float] = {}
    counts: dict[str, int] = {}
    with run.Running(fleet.plan(CLIENTS, READY_S + NEW_S, think_s=THINK_S, keep_alive=keep_alive)) as running:
        running.started()
        fleet.fewest(count + 1)
        until = time.monotonic() + READY_S
        while time.monotonic() < until and not (ready and time.monotonic() > max(ready.values()) + NEW_S):
            new = [one for one in fleet.replicas() if one.name not in before]
            moment, now = poller.counts(new)
            for one in new:
                if one.ready:
                    ready.setdefault(one.name, moment)
                # What verification and probes ask does not count as inference.
                if now.get(one.name, 0) > 0:
                    asked.setdefault(one.name, moment)
            counts = {**counts, **now}
            time.sleep(POLL_S)
        running.stop()
        made = running.made()
    for name, moment in ready.items():
        first = f"asked first {asked[name] - moment:.1f} s after it was Ready" if name in asked else "never asked"
        progress(
            f"bench: new replica, {CLIENTS} clients, {_clients(keep_alive)}: {first}, {counts.get(name, 0)} requests "
            f"in the {NEW_S} s after; {len(made.failures)} of {len(made.requests)} failed"
        )
    fleet.fewest(count)
    return fleet.until(len(before))


def _halved(fleet: Fleet, poller: Poller, replicas: list[Replica], progress: Progress) -> float:
    """Both arms in turns, so that what else the machine does falls on both."""
    slow = replicas[0]
    told: dict[str, list[Interval]] = {"full speed": [], "half speed": []}
    counts: dict[str, list[int]] = {"full speed": [0, 0], "half speed": [0, 0]}
    for _ in range(ROUNDS):
        for name, intervals in told.items():
            _, before = poller.counts(replicas)
            with _half(fleet, slow if name == "half speed" else None):
                intervals.extend(run.run(fleet.plan(CLIENTS, HALF_S, think_s=THINK_S)).intervals)
            _, after = poller.counts(replicas)
            counts[name][0] += after[slow.name] - before[slow.name]
            counts[name][1] += sum(after[one] - before[one] for one in after)
    figures = {name: outcome.figures(intervals, ROUNDS * HALF_S) for name, intervals in told.items()}
    for name, got in figures.items():
        progress(
            f"bench: one of {len(replicas)} replicas at {name}, {_clients(keep_alive=False)}: p50 {got.p50_ms} ms, "
            f"p95 {got.p95_ms} ms, p99 {got.p99_ms} ms, {got.failed} of {got.offered} failed; "
            f"it answered {counts[name][0] / max(counts[name][1], 1):.0%}"
        )
    full, half = figures["full speed"].p99_ms, figures["half speed"].p99_ms
    if not full or not half:
        raise LocalError("nothing was answered, so nothing was measured", fix="make verify")
    return half / full


@contextlib.contextmanager
def _half(fleet: Fleet, replica: Replica | None) -> Iterator[None]:
    """Half of the time the replica's processes are stopped: whatever they do takes them twice as long."""
    if replica is None:
        yield
        return
    pids = [pid for pid in family(fleet.handle.pid) if replica.uid in cgroups(pid)]
    if not pids:
        raise LocalError(f"no process of {replica.name} was found", fix="run the benchmark again")
    done = threading.Event()

    def stop_and_go() -> None:
        while not done.is_set():
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(DUTY_S)

    thread = threading.Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _by_sku(counts: Mapping[str, int], replicas: list[Replica]) -> str:
    total = sum(counts.values())
    skus = sorted({one.sku for one in replicas})
    sums = {sku: sum(counts.get(one.name, 0) for one in replicas if one.sku == sku) for sku in skus}
    return ", ".join(f"{sku} {count} ({count / max(total, 1):.0%})" for sku, count in sums.items())
