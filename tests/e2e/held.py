"""A fleet above its minimum because its own autoscalers want it so, under a light load, for faults to be made in it.

A Deployment that was scaled by hand would be scaled in by an autoscaler that works. Here the autoscalers themselves
hold two replicas of each SKU: their target is lowered so far that the light load is above it, and they may take a
replica at once. So whatever made a value of nothing would be seen at the next look, 15 s later.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fleet import recording
from fleet.schema_autoscaling import SYNC_S
from tests.e2e.checkout import infer, known_case
from tests.e2e.cluster import alertmanager, condition, eventually, get, nodes, prometheus, tritonservers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout

REPLICAS = 2
TARGET = "1m"
"""The smallest that the API can say. A request that finds Triton idle waits some 0.1 ms of 10 to 50 ms in all."""
CALLERS = 4
PAUSE_S = 0.25
TIMEOUT_S = 10
"""Of a request. One takes some 20 ms; on a busy machine seconds."""
IMPATIENT_FOR_S = 30
"""How long causes must last until an alert fires, where the tests do not wait for minutes."""


class Call(NamedTuple):
    """A request: when it began and ended, and why it failed, if it did."""

    began: float
    ended: float
    error: str = ""


class Callers:
    """Some callers that ask all the time, each request on a connection of its own, and note each."""

    def __init__(self, address: str) -> None:
        self.calls: list[Call] = []
        self._address = address
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * TIMEOUT_S)

    def failed(self, since: float) -> list[Call]:
        """Requests that failed and ended after that moment, with times from there."""
        return [
            Call(round(began - since, 1), round(ended - since, 1), error)
            for began, ended, error in self.calls
            if error and ended >= since
        ]

    def count(self, since: float) -> int:
        return sum(call.ended >= since for call in self.calls)

    def silence_s(self, since: float) -> float:
        """The longest time from then until now in which nobody was answered."""
        answers = sorted(call.ended for call in self.calls if not call.error and call.ended >= since)
        moments = [since, *answers, time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(moments))

    def _run(self) -> None:
        case = known_case()
        while not self._stop.wait(PAUSE_S):
            began, error = time.monotonic(), ""
            try:
                values = infer(self._address, timeout_s=TIMEOUT_S)
                if max(abs(got - want) for got, want in zip(values, case["expected"], strict=True)) > case["tolerance"]:
                    error = "a wrong answer"
            # What is no embedding of that length is a failure too, not the end of this caller.
            except (OSError, AssertionError, http.client.HTTPException, ValueError, LookupError, TypeError) as failure:
                error = f"{type(failure).__name__}: {failure}"
            self.calls.append(Call(began, time.monotonic(), error))


@dataclass
class Held:
    """The fleet, and what is asked of it."""

    checkout: Checkout
    callers: Callers
    made: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By Deployment, its generation and its wanted replicas before the fault. A generation counts each change."""

    def wanted(self) -> dict[str, tuple[int, int]]:
        return {
            item["metadata"]["name"]: (item["metadata"]["generation"], item["spec"]["replicas"])
            for item in self.checkout.objects("deployments")
        }

    def seeing(self) -> dict[str, str]:
        """Whether each autoscaler has a value to decide by."""
        return {
            item["metadata"]["name"]: condition(item, "ScalingActive")
            for item in self.checkout.objects("horizontalpodautoscalers")
        }

    def are_seeing(self, *, are: bool) -> bool:
        return {*self.seeing().values()} == {"True" if are else "False"}

    def ready(self) -> dict[str, bool]:
        """By Triton pod."""
        return {pod["metadata"]["name"]: condition(pod, "Ready") == "True" for pod in self.checkout.triton_pods()}

    def alert_states(self, name: str) -> set[str]:
        """What Prometheus has of an alert: `pending`, `firing`, both or nothing."""
        alerts = get(self.checkout, prometheus("/api/v1/alerts"))["data"]["alerts"]
        return {alert["state"] for alert in alerts if alert["labels"]["alertname"] == name}

    def told(self, name: str, **labels: str) -> list[dict[str, Any]]:
        """What Alertmanager has of an alert, of those that carry these labels."""
        alerts: list[dict[str, Any]] = get(self.checkout, alertmanager("/api/v2/alerts"))
        return [alert for alert in alerts if {"alertname": name, **labels}.items() <= alert["labels"].items()]

    def hears(self, name: str, within_s: float, **labels: str) -> None:
        """Waits until Alertmanager has an alert with these labels."""
        eventually(lambda: bool(self.told(name, **labels)), f"{name} at Alertmanager", within_s)

    def ends(self, name: str, within_s: float) -> None:
        """Waits until Prometheus has nothing of an alert any more, and has values to say so."""
        eventually(lambda: self.alert_states(name) == set(), f"the end of {name}", within_s)

    @contextlib.contextmanager
    def fault(self, *, idle: bool = False) -> Iterator[float]:
        """The moment when the fault begins. When all is as it was again, no replica was ever added or taken.

        With `idle`, replicas come back that nobody asked meanwhile. That is a value, and one may have been taken and
        brought back for it, as no stabilization window holds them here.
        """
        self.made = self.wanted()
        began = time.monotonic()
        yield began
        self.recovered()
        replicas = {name: count for name, (_, count) in self.made.items()}
        assert {name: count for name, (_, count) in self.wanted().items()} == replicas
        assert idle or self.wanted() == self.made
        lost, asked = self.callers.failed(began), self.callers.count(began)
        assert asked, "nobody asked meanwhile, so nothing was shown"
        last_s = max((call.began for call in lost), default=0)
        sys.stderr.write(f"\n  lost {len(lost)} of {asked} requests, the last one sent after {last_s:.0f} s")

    def recovered(self, within_s: float = 120) -> None:
        """Every pod is Ready, every node too, and each autoscaler has a value once more."""
        eventually(
            lambda: all(self.ready().values()) and len(self.ready()) == REPLICAS * len(self.made),
            f"{REPLICAS} Ready replicas of each SKU",
            within_s,
        )
        eventually(lambda: all(condition(node, "Ready") == "True" for node in nodes(self.checkout).values()), "nodes")
        eventually(lambda: self.are_seeing(are=True), "autoscalers that have a value", within_s)


@contextlib.contextmanager
def held(checkout: Checkout) -> Iterator[Held]:
    """The fleet with two replicas of each SKU, held by load; after it as it was."""
    scalers = {item["metadata"]["name"]: item["spec"] for item in checkout.objects("horizontalpodautoscalers")}

    def patch(name: str, spec: dict[str, Any]) -> None:
        changes = json.dumps({"spec": spec})
        checkout.kubectl("patch", "hpa", name, "--namespace=triton-local", "--type=merge", f"--patch={changes}")

    def change(spec: dict[str, Any]) -> None:
        for name in scalers:
            patch(name, spec)

    def settled(replicas: int) -> bool:
        ready = [condition(pod, "Ready") for pod in checkout.triton_pods()]
        return ready == ["True"] * replicas * len(scalers)

    metric = {
        "type": "Pods",
        "pods": {
            "metric": {"name": recording.QUEUE_COMPUTE_RATIO},
            "target": {"type": "AverageValue", "averageValue": TARGET},
        },
    }
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    try:
        with Callers(checkout.service_address()) as callers:
            change({"maxReplicas": REPLICAS, "metrics": [metric], "behavior": at_once})
            eventually(lambda: settled(REPLICAS), f"{REPLICAS} Ready replicas of each SKU", 180)
            yield Held(checkout, callers)
        # Above its maximum an autoscaler does not wait.
        change({"maxReplicas": 1})
        eventually(lambda: settled(1), "one Ready replica of each SKU", 120)
    finally:
        for name, spec in scalers.items():
            patch(name, spec)


def tritonserver(uid: str) -> int:
    """The server's process in a pod, which has one."""
    (pid,) = tritonservers(uid)
    return pid


def looks(count: int) -> float:
    """Seconds in which each autoscaler looks so many times."""
    return count * SYNC_S
