"""A model whose speed is set, served by the manifests that the product renders: what autoscaling is measured on.

It has a namespace of its own on a cluster that is up, with its own monitor, rules and autoscalers, so the stack on that
cluster is left alone. Of what the product renders, two things differ: the model's files come from a ConfigMap, and no
replica takes a GPU.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlencode

import yaml

from fleet import autoscaling, names, pods, recording, scraping, settings, store, workload
from fleet.schema import GPU_TAINTS
from local import stack
from local.cluster import lifecycle
from local.cluster.topology import NODES
from local.errors import LocalError
from local.state import PROJECT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.pods import Manifest
    from fleet.schema import Settings
    from local.state import State

DIGEST: Final = "paced"
"""Stands for the digest of the model's files, which are not in the store."""
CONFIG: Final = """
backend: "python"
max_batch_size: 0
input [{ name: "IN", data_type: TYPE_INT32, dims: [ 1 ] }]
output [{ name: "OUT", data_type: TYPE_INT32, dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU, count: 1 }]
"""
MODEL: Final = """
import time

import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep({service_s})
            tensor = pb.Tensor("OUT", pb.get_input_tensor_by_name(request, "IN").as_numpy())
            answers.append(pb.InferenceResponse([tensor]))
        return answers
"""
"""One request at a time, each as long: what waits is known by reckoning."""
BODY: Final = json.dumps({"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]})
ANSWER_DEADLINE_S: Final = 30.0
RETRY_S: Final = 1.0
"""As a user of the simulation does."""
TRIES: Final = 3
BUSY: Final = ("Timeout", "timeout", "deadline exceeded", "no answer within")
"""What kubectl says of an API server that answers late: once more, since nothing asked of it here harms twice."""
READY_DEADLINE_S: Final = 120.0
GONE_DEADLINE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Paced:
    """A model: how long it works on a request, seconds, by SKU; and what its settings say beside that."""

    name: str
    service_s: Mapping[str, float]
    more: Mapping[str, Any]


def skus() -> dict[str, Mapping[str, object]]:
    """By name, the SKUs of stack `local` as nodes of which no GPU is asked for."""
    return {
        sku: {
            "name": sku,
            "labels": names.gpu_node_labels(node.gpu_product),
            "taints": GPU_TAINTS,
            "nodes": {"min": 1, "max": 1},
        }
        for sku, node in ((node.name.removeprefix("gpu-"), node) for node in NODES)
        if node.gpu_product
    }


def fleet(namespace: str, models: Sequence[Paced], monitoring: Mapping[str, object] | None = None) -> Settings:
    """Settings of stack `local` that serve these models instead, with the product's own defaults of autoscaling."""
    key = f"{names.CONFIG_NAMESPACE}:"
    config = yaml.safe_load(stack.tracked_settings("local").read_text())["config"]
    plain = {name.removeprefix(key): value for name, value in config.items()}
    base = {name: value for name, value in plain["models"][0].items() if name not in ("autoscaling", "placements")}
    found = skus()
    return settings.load(
        {
            **plain,
            "serving": {**plain["serving"], "namespace": namespace},
            "skus": list(found.values()),
            "models": [
                {
                    **base,
                    "name": model.name,
                    "resources": {"cpu": 0.01, "memory_mib": 500},
                    "placements": [{"sku": sku, "replicas": {"min": 1, "max": 2}} for sku in model.service_s],
                    **model.more,
                }
                for model in models
            ],
            "monitoring": {**plain["monitoring"], **(monitoring or {})},
        },
        PROJECT,
    )


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def served(loaded: Settings, models: Sequence[Paced]) -> list[Manifest]:
    """Services and Deployments, and the ConfigMaps with the models' files."""
    found = []
    for paced, model in zip(models, loaded.models, strict=True):
        found.append(workload.service(loaded, model))
        for placement in model.placements:
            deployment = workload.deployment(loaded, model, placement, DIGEST)
            text = MODEL.format(service_s=paced.service_s[placement.sku])
            found += with_files(deployment, model.name, {"config.pbtxt": CONFIG, f"{model.version}/model.py": text})
    return found


def with_files(deployment: Manifest, model: str, files: Mapping[str, str]) -> list[Manifest]:
    """A Deployment with its model's files in place of the store, and the ConfigMap that has them."""
    name, spec = deployment["metadata"]["name"], deployment["spec"]["template"]["spec"]
    folder = f"{store.repository_path(model, DIGEST).removeprefix(names.STORE_MOUNT + '/')}/{model}"
    keys = {path.replace("/", "_"): path for path in files}
    volume, mount = pods.config_volume(
        "store", name, names.STORE_MOUNT, {key: f"{folder}/{path}" for key, path in keys.items()}
    )
    spec["volumes"] = [volume, *(one for one in spec["volumes"] if one["name"] != "store")]
    (container,) = spec["containers"]
    container["volumeMounts"] = [mount, *(one for one in container["volumeMounts"] if one["name"] != "store")]
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": deployment["metadata"]["namespace"]},
        "data": {key: files[path] for key, path in keys.items()},
    }
    return [config_map, deployment]


def observed(loaded: Settings) -> list[Manifest]:
    """What has them scraped, and the series that autoscalers read."""
    return [scraping.pod_monitor(loaded), recording.rules(loaded)]


def autoscalers(loaded: Settings) -> list[Manifest]:
    return [
        autoscaling.hpa(loaded, model, placement)
        for model in loaded.models
        for placement in model.placements
        if placement.autoscaled
    ]


class Bed:
    """A cluster that is up, as somebody sees it who measures autoscaling on it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._prometheus = ""

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        for _ in range(TRIES):
            done = lifecycle.kubectl(self.state, *arguments, text=text)
            if done.returncode == 0 or not any(said in done.stderr for said in BUSY):
                break
        if done.returncode != 0:
            raise LocalError(
                f"kubectl {' '.join(arguments)} failed", details=done.stderr, fix="is the cluster up? make verify"
            )
        return done.stdout

    def create(self, manifests: Sequence[Manifest]) -> float:
        """When the API server had them all."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "--server-side", "--filename=-", text=json.dumps(document))
        return time.time()

    def remove(self, *namespaces: str) -> None:
        self.kubectl("delete", "namespace", *namespaces, "--ignore-not-found", "--wait=false")
        until = time.monotonic() + GONE_DEADLINE_S
        while self.kubectl("get", "namespaces", *namespaces, "--ignore-not-found", "--output=name"):
            if time.monotonic() > until:
                raise LocalError(
                    f"namespaces {', '.join(namespaces)} do not go within {GONE_DEADLINE_S:g} s",
                    fix="kubectl get all in them, or make down",
                )
            time.sleep(1)

    def address(self, service: str, namespace: str) -> str:
        """Its cluster IP, which the machine reaches."""
        path = "--output=jsonpath={.spec.clusterIP}"
        return self.kubectl("get", "service", service, f"--namespace={namespace}", path)

    def ask_prometheus(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """`data` of an answer of its API, https://prometheus.io/docs/prometheus/latest/querying/api/."""
        if not self._prometheus:
            self._prometheus = self.address("prometheus-kube-prometheus-prometheus", names.NAMESPACE_MONITORING)
        connection = http.client.HTTPConnection(self._prometheus, 9090, timeout=ANSWER_DEADLINE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise LocalError(f"Prometheus answers {path} with {answer.status}", details=body.decode(), fix="is it up?")
        return json.loads(body)["data"]

    def samples(self, selector: str, since_s: float) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Of each series its labels, and times and values as they were recorded."""
        data = self.ask_prometheus(f"/api/v1/query?{urlencode({'query': f'{selector}[{since_s:.0f}s]'})}")
        return [
            (one["metric"], [(float(when), float(value)) for when, value in one["values"]]) for one in data["result"]
        ]


@dataclass(frozen=True, slots=True)
class Size:
    """A Deployment at a time."""

    time: float
    replicas: int
    ready: int


class Sizes:
    """Follows the Deployments of a namespace, from their own size and not from what an autoscaler says of it."""

    def __init__(self, bed: Bed, namespace: str) -> None:
        path = '{.metadata.name} {.spec.replicas} {.status.readyReplicas}{"\\n"}'
        self._seen: dict[str, list[Size]] = {}
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            lifecycle.kubectl_argv(
                bed.state, "get", "deployments", f"--namespace={namespace}", "--watch", f"--output=jsonpath={path}"
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._thread.join()
        # It ends with its output, which this closes.
        with self._process:
            pass

    def _follow(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for
        for line in self._process.stdout:
            name, replicas, *ready = line.split()
            size = Size(time.time(), int(replicas), int(ready[0]) if ready else 0)
            with self._changed:
                self._seen.setdefault(name, []).append(size)
                self._changed.notify_all()

    def of(self, name: str) -> list[Size]:
        """All that was seen of a Deployment, in order."""
        with self._changed:
            return list(self._seen.get(name, []))

    def changes(self, name: str, since: float) -> list[tuple[float, int]]:
        """When its number of replicas became another, and which."""
        sizes = self.of(name)
        return [
            (after.time, after.replicas)
            for before, after in pairwise(sizes)
            if after.replicas != before.replicas and after.time >= since
        ]

    def wait(self, name: str, replicas: int, ready: int, *, since: float, within_s: float) -> float:
        """When it first had so many wanted and so many ready."""
        until = time.monotonic() + within_s
        with self._changed:
            while True:
                for size in self._seen.get(name, []):
                    if size.time >= since and size.replicas == replicas and size.ready >= ready:
                        return size.time
                left = until - time.monotonic()
                if left <= 0:
                    last = self._seen.get(name, [None])[-1]
                    raise LocalError(
                        f"Deployment {name} has not {replicas} replicas, {ready} of them ready, within {within_s:g} s",
                        details=f"last seen: {last}",
                        fix="kubectl describe its pods and its autoscaler",
                    )
                self._changed.wait(min(left, 1.0))


class Users:
    """Callers of one model, each with one request at a time and a connection for each."""

    def __init__(self, address: str, model: str) -> None:
        self._address, self._path = address, f"/v2/models/{model}/infer"
        self._wanted = 0
        self._there: set[int] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.answered = 0
        self.failures: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.be(0)

    def be(self, count: int) -> None:
        """From now on so many. Those too many leave with their next answer."""
        with self._lock:
            # One that was too many and is still asking just goes on.
            new = [number for number in range(count) if number not in self._there]
            self._there.update(new)
            self._wanted = count
        for number in new:
            thread = threading.Thread(target=self._come, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        if not count:
            for thread in self._threads:
                thread.join(ANSWER_DEADLINE_S)
            self._threads.clear()

    def _come(self, number: int) -> None:
        while self._stays(number):
            connection = http.client.HTTPConnection(self._address, names.PORT_HTTP, timeout=ANSWER_DEADLINE_S)
            try:
                connection.request("POST", self._path, BODY)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status == http.HTTPStatus.OK:
                    self.answered += 1
                    continue
                self._failed(f"HTTP {answer.status}: {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self._failed(f"{type(error).__name__}: {error}")
            finally:
                connection.close()

    def _stays(self, number: int) -> bool:
        with self._lock:
            if number < self._wanted:
                return True
            self._there.discard(number)
            return False

    def _failed(self, why: str) -> None:
        self.failures.append(f"{time.time():.1f} {why}")
        time.sleep(RETRY_S)


def sleep_until(moment: float) -> None:
    """`moment` is of time.time()."""
    time.sleep(max(moment - time.time(), 0))
