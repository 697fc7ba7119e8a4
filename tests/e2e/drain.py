"""What the tests of drain do to a fleet under load, and what its clients say of it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import subprocess
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from tests.e2e.checkout import PROJECT, kill_hard
from tests.e2e.cluster import condition, eventually, tritonservers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from tests.e2e.checkout import Checkout

CALLERS = PROJECT / "tests" / "e2e" / "callers.py"
NAMESPACE = "triton-local"
CLIENTS = "drain-clients"
NUMBERS = itertools.count(1)
SKUS = ("minilm-a100-40gb", "minilm-h100-80gb")
RESTARTED = "drain-test/restarted"
MANAGER = "drain-test"
LONG_S = 8.0
BEFORE_S = 2.0
"""A long request begins so long before Triton is told to stop, and is on its way when it is."""
MODEL = '''
import time
import numpy
import triton_python_backend_utils as pb


class TritonPythonModel:
    """Sleeps as long as it is asked to, so that a request can be long without the machine's two cores."""

    def execute(self, requests):
        texts = [pb.get_input_tensor_by_name(request, "TEXT").as_numpy().reshape(-1)[0] for request in requests]
        time.sleep(max(float(text.decode().removeprefix("sleep ")) for text in texts))
        embedding = numpy.zeros((1, 384), numpy.float32)
        return [pb.InferenceResponse([pb.Tensor("EMBEDDING", embedding)]) for _ in requests]
'''
LOOK_S = 1.5
INSTANCES = 4
"""So that the short requests need not wait for a long one."""


@dataclass(frozen=True, slots=True)
class Request:
    """How a request of a client ended; `error` is empty where it was answered."""

    kind: str
    began: float
    took_s: float
    error: str

    @classmethod
    def read(cls, lines: str) -> list[Self]:
        return [cls(*json.loads(line)) for line in lines.splitlines() if line.startswith("[")]


@dataclass(slots=True)
class Count:
    """Of one kind of client."""

    sent: int = 0
    failed: list[Request] = field(default_factory=list)
    slowest_s: float = 0.0


def counts(requests: Iterable[Request]) -> dict[str, Count]:
    found: dict[str, Count] = defaultdict(Count)
    for request in requests:
        count = found[request.kind]
        count.sent += 1
        count.slowest_s = max(count.slowest_s, request.took_s)
        if request.error:
            count.failed.append(request)
    return dict(found)


def failures(requests: Iterable[Request]) -> list[Request]:
    return [request for request in requests if request.error]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a Deployment says of how its replicas stop, in seconds."""

    pause_s: int
    drain_s: int
    grace_s: int

    @classmethod
    def of(cls, deployment: dict[str, Any]) -> Self:
        pod = deployment["spec"]["template"]["spec"]
        (triton,) = pod["containers"]
        (drain,) = [one for one in triton["command"] if one.startswith("--exit-timeout-secs=")]
        pause = triton.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        return cls(pause, int(drain.partition("=")[2]), pod["terminationGracePeriodSeconds"])


class Fleet:
    """The fleet of a checkout, with a pod of clients beside it."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.own: dict[Path, str] = {}
        """The files of the model that the stack serves, as they were."""

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.checkout.kubectl(f"--namespace={NAMESPACE}", *arguments, stdin=stdin)

    def deployment(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", "deployment", name, "--output=json"))
        return found

    def pods(self, deployment: str = "") -> list[dict[str, Any]]:
        """Those that are not told to stop."""
        pods = self.checkout.triton_pods()
        gone = stopping(pods)
        return [pod for pod in pods if pod not in gone and pod["metadata"]["name"].startswith(deployment)]

    def settled(self, ready: int) -> bool:
        pods = self.checkout.triton_pods()
        there = [pod for pod in pods if condition(pod, "Ready") == "True"]
        return len(there) == ready and not stopping(pods)

    def settle(self, ready: int = len(SKUS), within_s: float = 150) -> None:
        eventually(lambda: self.settled(ready), f"{ready} replicas Ready and none that stops", within_s)

    def patch(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, f"--patch={json.dumps(patch)}", f"--field-manager={MANAGER}")

    def forget(self, kind: str, name: str) -> None:
        """Takes the test's name from the fields that it changed and put back, else an update could not change them."""
        managers = json.loads(self.kubectl("get", kind, name, "--output=json", "--show-managed-fields"))["metadata"]
        gone = [at for at, one in enumerate(managers["managedFields"]) if one["manager"] == MANAGER]
        patch = [{"op": "remove", "path": f"/metadata/managedFields/{at}"} for at in reversed(gone)]
        if patch:
            self.kubectl("patch", kind, name, "--type=json", f"--patch={json.dumps(patch)}", "--field-manager=x")

    def restart(self, mark: str | None) -> None:
        """A rolling update of both SKUs at once; without a mark, back to the template that the stack made."""
        for name in SKUS:
            self.patch("deployment", name, {"spec": {"template": {"metadata": {"annotations": {RESTARTED: mark}}}}})

    def rolled_out(self) -> None:
        for name in SKUS:
            self.kubectl("rollout", "status", f"deployment/{name}", "--timeout=110s")

    def change(self, deployment: str, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Changes the template of a Deployment and waits for its new replicas; what the template was before."""
        before: dict[str, Any] = self.deployment(deployment)["spec"]["template"]
        changed = copy.deepcopy(before)
        change(changed["spec"]["containers"][0])
        self.put(deployment, changed)
        return before

    def put(self, deployment: str, template: dict[str, Any]) -> None:
        patch = json.dumps([{"op": "replace", "path": "/spec/template", "value": template}])
        self.kubectl("patch", "deployment", deployment, "--type=json", f"--patch={patch}", f"--field-manager={MANAGER}")
        self.rolled_out()
        self.settle()

    def least(self, deployment: str, replicas: int) -> None:
        self.patch("hpa", deployment, {"spec": {"minReplicas": replicas}})


def stopping(pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [pod for pod in pods if "deletionTimestamp" in pod["metadata"]]


def triton_process(pod: dict[str, Any]) -> int:
    """Triton in a pod, as the machine counts it."""
    found = tritonservers(pod["metadata"]["uid"])
    assert found, f"no tritonserver of {pod['metadata']['name']}"
    return min(found)


def kill_triton(pod: dict[str, Any]) -> None:
    kill_hard(triton_process(pod))


class Clients:
    """A pod of clients of these kinds in a namespace that may call the fleet. They call from when it is entered."""

    def __init__(self, fleet: Fleet, kinds: Sequence[str]) -> None:
        self.fleet, self.kinds = fleet, kinds
        self._name = f"{CLIENTS}-{next(NUMBERS)}"

    def __enter__(self) -> Self:
        labels = {"triton-fleet.io/client": "true"}
        self._apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._name, "labels": labels}})
        program = {"callers.py": CALLERS.read_text()}
        metadata = {"name": "callers", "namespace": self._name}
        self._apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": program})
        container = {
            "name": "callers",
            "image": "triton-fleet.local/tools:1",
            "imagePullPolicy": "Never",
            "command": ["python3", "/callers/callers.py", "load", self.fleet.checkout.service_address(), *self.kinds],
            "volumeMounts": [{"name": "callers", "mountPath": "/callers"}],
        }
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": "callers", "configMap": {"name": "callers"}}],
        }
        self._apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self._kubectl("wait", "pod/callers", "--for=condition=Ready", "--timeout=60s")
        eventually(lambda: {one.kind for one in self.requests()} == {*self.kinds}, "every kind has called", 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._kubectl("delete", "namespace", self._name, "--wait=false")

    def _apply(self, manifest: dict[str, Any]) -> None:
        self._kubectl("apply", "--filename=-", stdin=json.dumps(manifest))

    def _kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.fleet.checkout.kubectl(f"--namespace={self._name}", *arguments, stdin=stdin)

    def requests(self, since: float = 0.0) -> list[Request]:
        return [one for one in Request.read(self._kubectl("logs", "callers")) if one.began >= since]

    def long(self, address: str, at: float) -> list[Request]:
        """Sends long requests to one replica at that time, and waits for them."""
        command = ["python3", "/callers/callers.py", "long", address, f"{at}", f"{LONG_S}"]
        return Request.read(self._kubectl("exec", "callers", "--", *command))


class Watch:
    """While entered, each replica that begins to stop gets long requests shortly before its Triton is told."""

    def __init__(self, clients: Clients, promise: Promise) -> None:
        self._clients, self._promise = clients, promise
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=8)
        self._asked: dict[str, Future[list[Request]]] = {}
        self._earlier = {pod["metadata"]["name"] for pod in stopping(clients.fleet.checkout.triton_pods())}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        self._pool.shutdown()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self._look()

    def _look(self) -> None:
        for pod in stopping(self._clients.fleet.checkout.triton_pods()):
            metadata, address = pod["metadata"], pod["status"].get("podIP")
            if metadata["name"] not in {*self._asked, *self._earlier} and address:
                told = stopped_at(metadata) + self._promise.pause_s
                self._asked[metadata["name"]] = self._pool.submit(self._clients.long, address, told - BEFORE_S)

    def stopped(self) -> dict[str, list[Request]]:
        """By replica that stopped, its long requests."""
        return {name: asked.result(timeout=120) for name, asked in self._asked.items()}


def stopped_at(metadata: dict[str, Any]) -> float:
    """When a pod was told to stop: its time of deletion is when it will be killed."""
    killed = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
    return killed - float(metadata["deletionGracePeriodSeconds"])
