"""The few things that verification asks of a cluster, over the Kubernetes API."""

# ruff: noqa: ANN401 - the client's own types call every field optional

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from fleet import names
from fleet.rollout import NewPod, Progress
from fleet.verification import Node, Pod
from fleet.verification_observe import DaemonPod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet.pods import Manifest

CALL_TIMEOUT_S: Final = 15
"""One call of the API; a longer silence means that the API server is not there."""
GONE: Final = 404
REVISION: Final = "deployment.kubernetes.io/revision"
"""Annotation by which a Deployment and its newest ReplicaSet find each other."""
TEMPLATE_HASH: Final = "pod-template-hash"
REASON_CHARS: Final = 400
ENDED: Final = frozenset({"Succeeded", "Failed"})


class ClusterError(Exception):
    """The cluster did not answer, or refused; the text says what was asked of it."""


@dataclass(frozen=True, slots=True)
class JobPod:
    """The pod of a Job as far as it has come; `waiting` says what holds it up, or how it failed."""

    name: str | None
    phase: str
    waiting: str

    @property
    def started(self) -> bool:
        return self.phase == "Running" or self.ended

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except client.ApiException as error:
        raise ClusterError(f"{what}: the API server answered {error.status}: {_message(error)}") from error
    except (HTTPError, OSError) as error:
        raise ClusterError(f"{what}: {error}") from error


def _message(error: client.ApiException) -> str:
    """What the API server says, or Prometheus behind it; the body is bytes where the answer was to be read raw."""
    body = error.body.decode(errors="replace") if isinstance(error.body, bytes) else str(error.body)
    try:
        said = yaml.safe_load(body)
        return str(said["message"] if "message" in said else said["error"])
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return body[:REASON_CHARS]


class KubernetesCluster:
    """A cluster reached by the text of a kubeconfig; no file and no environment variable is read beside it."""

    def __init__(self, kubeconfig: str) -> None:
        try:
            self._api: Any = config.new_client_from_config_dict(yaml.safe_load(kubeconfig), persist_config=False)
        except (config.ConfigException, yaml.YAMLError, TypeError) as error:
            raise ClusterError(f"the kubeconfig cannot be used: {error}") from error
        self._core: Any = client.CoreV1Api(self._api)
        self._batch: Any = client.BatchV1Api(self._api)
        self._apps: Any = client.AppsV1Api(self._api)
        self._autoscaling: Any = client.AutoscalingV2Api(self._api)
        self._custom: Any = client.CustomObjectsApi(self._api)

    def must_answer(self, timeout_s: float) -> None:
        """ClusterError unless an API server answers in time and takes the credentials; anyone may read its version."""
        # Retries would multiply the time-out.
        self._api.rest_client.pool_manager.connection_pool_kw["retries"] = False
        with _asking("asking what the API server serves"):
            raw = self._core.get_api_resources(_preload_content=False, _request_timeout=timeout_s)
        try:
            served = yaml.safe_load(raw.data)["kind"]
        except (yaml.YAMLError, TypeError, KeyError):
            served = None
        if served != "APIResourceList":
            raise ClusterError("what answers there is no Kubernetes API server")

    def nodes(self) -> list[Node]:
        with _asking("listing nodes"):
            found = self._core.list_node(_request_timeout=CALL_TIMEOUT_S).items
        return [_node(item) for item in found]

    def triton_pods(self, namespace: str) -> list[Pod]:
        """Triton's pods that are to stay: those that are being deleted or have ended are left out."""
        selector = ",".join(f"{key}={value}" for key, value in names.fleet_selector().items())
        with _asking(f"listing pods of {namespace}"):
            found = self._core.list_namespaced_pod(
                namespace, label_selector=selector, _request_timeout=CALL_TIMEOUT_S
            ).items
        staying = [item for item in found if item.metadata.deletion_timestamp is None]
        return [_pod(item) for item in staying if item.status.phase not in ENDED]

    def rollout(self, namespace: str, name: str) -> tuple[Progress, list[NewPod]]:
        """How far the update of a Deployment has come, and the pods that it brought."""
        with _asking(f"reading Deployment {name}"):
            deployment = self._apps.read_namespaced_deployment(name, namespace, _request_timeout=CALL_TIMEOUT_S)
            selector = ",".join(f"{key}={value}" for key, value in deployment.spec.selector.match_labels.items())
            sets = self._apps.list_namespaced_replica_set(
                namespace, label_selector=selector, _request_timeout=CALL_TIMEOUT_S
            ).items
            found = self._core.list_namespaced_pod(
                namespace, label_selector=selector, _request_timeout=CALL_TIMEOUT_S
            ).items
        revision = (deployment.metadata.annotations or {}).get(REVISION)
        newest = {
            one.metadata.labels[TEMPLATE_HASH]
            for one in sets
            if (one.metadata.annotations or {}).get(REVISION) == revision
        }
        new = [pod for pod in found if pod.metadata.labels.get(TEMPLATE_HASH) in newest]
        staying = [pod for pod in new if pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED]
        return _progress(deployment), [_new_pod(pod) for pod in sorted(staying, key=lambda pod: pod.metadata.name)]

    def delete_autoscaler(self, namespace: str, name: str) -> bool:
        """Deletes a HorizontalPodAutoscaler; whether it was there."""
        with _asking(f"deleting HorizontalPodAutoscaler {name}"):
            return _deleted(self._autoscaling.delete_namespaced_horizontal_pod_autoscaler, name, namespace)

    def delete_scaled_object(self, namespace: str, name: str) -> bool:
        """Deletes a ScaledObject of KEDA; whether it was there. A cluster without KEDA has none."""
        with _asking(f"deleting ScaledObject {name}"):
            return _deleted(
                self._custom.delete_namespaced_custom_object,
                group="keda.sh",
                version="v1alpha1",
                namespace=namespace,
                plural="scaledobjects",
                name=name,
            )

    def create_job(self, manifest: Manifest) -> str:
        """Makes a Job; returns its UID."""
        metadata = manifest["metadata"]
        with _asking(f"creating Job {metadata['name']}"):
            made = self._batch.create_namespaced_job(metadata["namespace"], manifest, _request_timeout=CALL_TIMEOUT_S)
        return str(made.metadata.uid)

    def create_beside(self, manifest: Manifest, job: str, uid: str) -> None:
        """Makes a ConfigMap or a NetworkPolicy that goes when a Job goes."""
        metadata = manifest["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}
        owned = {**manifest, "metadata": {**metadata, "ownerReferences": [owner]}}
        create = {
            "ConfigMap": self._core.create_namespaced_config_map,
            "NetworkPolicy": client.NetworkingV1Api(self._api).create_namespaced_network_policy,
        }[manifest["kind"]]
        with _asking(f"creating {manifest['kind']} {metadata['name']}"):
            create(metadata["namespace"], owned, _request_timeout=CALL_TIMEOUT_S)

    def job_pods(self, namespace: str, job: str) -> list[JobPod]:
        """How far each pod of a Job has come; without a pod, what the Job's own events say."""
        with _asking(f"reading the pods of Job {job}"):
            found = self._core.list_namespaced_pod(
                namespace, label_selector=f"batch.kubernetes.io/job-name={job}", _request_timeout=CALL_TIMEOUT_S
            ).items
        if not found:
            return [JobPod(None, "Pending", self.last_event(namespace, job) or "it has no pod yet")]
        return [self._job_pod(namespace, pod) for pod in found]

    def job_pod(self, namespace: str, job: str) -> JobPod:
        """The same of a Job that has one pod."""
        return self.job_pods(namespace, job)[0]

    def _job_pod(self, namespace: str, pod: Any) -> JobPod:
        waiting = _waiting(pod)
        if pod.status.phase == "Pending":
            waiting = self.last_event(namespace, pod.metadata.name) or waiting
        return JobPod(pod.metadata.name, pod.status.phase, waiting)

    def last_event(self, namespace: str, name: str) -> str:
        """The newest warning about an object, or nothing."""
        with _asking(f"reading events of {name}"):
            found = self._core.list_namespaced_event(
                namespace, field_selector=f"involvedObject.name={name},type=Warning", _request_timeout=CALL_TIMEOUT_S
            ).items
        newest = sorted(found, key=lambda event: str(event.last_timestamp or event.event_time or ""))
        return f"{newest[-1].reason}: {newest[-1].message}" if newest else ""

    def follow(self, namespace: str, pod: str, timeout_s: float) -> Iterator[str]:
        """The lines of a pod's log as they are written, until its end or until nothing came for `timeout_s`."""
        with _asking(f"following the log of {pod}"):
            stream = self._core.read_namespaced_pod_log(
                pod, namespace, follow=True, _preload_content=False, _request_timeout=(CALL_TIMEOUT_S, timeout_s)
            )
            rest = b""
            for chunk in stream.stream(amt=None, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")

    def log(self, namespace: str, pod: str) -> list[str]:
        """The lines of a pod's log so far."""
        with _asking(f"reading the log of {pod}"):
            raw = self._core.read_namespaced_pod_log(
                pod, namespace, _preload_content=False, _request_timeout=CALL_TIMEOUT_S
            )
            text: str = raw.data.decode(errors="replace")
            return text.splitlines()

    def delete_job(self, namespace: str, job: str) -> None:
        with _asking(f"deleting Job {job}"):
            try:
                self._batch.delete_namespaced_job(
                    job, namespace, propagation_policy="Background", _request_timeout=CALL_TIMEOUT_S
                )
            except client.ApiException as error:
                if error.status != GONE:
                    raise

    def daemon_pods(self, namespace: str, name: str) -> list[DaemonPod] | None:
        """The pods of a DaemonSet, but those that are being deleted; None where there is no such DaemonSet."""
        with _asking(f"reading the pods of DaemonSet {name}"):
            try:
                daemon_set = self._apps.read_namespaced_daemon_set(name, namespace, _request_timeout=CALL_TIMEOUT_S)
            except client.ApiException as error:
                if error.status == GONE:
                    return None
                raise
            selector = ",".join(f"{key}={value}" for key, value in daemon_set.spec.selector.match_labels.items())
            found = self._core.list_namespaced_pod(
                namespace, label_selector=selector, _request_timeout=CALL_TIMEOUT_S
            ).items
        return [_daemon_pod(item) for item in found if item.metadata.deletion_timestamp is None]

    def get(self, path: str) -> Any:
        """The JSON that the API server answers on a path, or what it hands the request on to."""
        asked, _, query = path.partition("?")
        with _asking(f"asking {asked}"):
            raw = self._api.call_api(
                asked,
                "GET",
                query_params=parse_qsl(query),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=CALL_TIMEOUT_S,
            )
        try:
            return json.loads(raw.data)
        except ValueError as error:
            raise ClusterError(f"asking {asked}: the answer is no JSON") from error

    def renew(self, manifest: Manifest) -> None:
        """Makes a ConfigMap anew: its age begins now."""
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        with _asking(f"making ConfigMap {name} anew"):
            try:
                self._core.delete_namespaced_config_map(name, namespace, _request_timeout=CALL_TIMEOUT_S)
            except client.ApiException as error:
                if error.status != GONE:
                    raise
            self._core.create_namespaced_config_map(namespace, manifest, _request_timeout=CALL_TIMEOUT_S)


def _deleted(delete: Callable[..., Any], *names: str, **more: str) -> bool:
    try:
        delete(*names, **more, _request_timeout=CALL_TIMEOUT_S)
    except client.ApiException as error:
        if error.status != GONE:
            raise
        return False
    return True


def _quantity(container: Any) -> int:
    limits = (container.resources.limits if container.resources else None) or {}
    return int(limits.get(names.GPU_RESOURCE, 0))


def _condition(item: Any, kind: str) -> bool:
    return any(one.type == kind and one.status == "True" for one in item.status.conditions or ())


def _node(item: Any) -> Node:
    return Node(
        name=item.metadata.name,
        labels=item.metadata.labels or {},
        ready=_condition(item, "Ready"),
        gpus=int((item.status.allocatable or {}).get(names.GPU_RESOURCE, 0)),
    )


def _pod(item: Any) -> Pod:
    labels = item.metadata.labels or {}
    ready = _condition(item, "Ready")
    return Pod(
        name=item.metadata.name,
        model=labels.get(names.LABEL_MODEL, ""),
        sku=labels.get(names.LABEL_SKU, ""),
        node=item.spec.node_name,
        address=item.status.pod_ip,
        ready=ready,
        gpus=sum(_quantity(container) for container in item.spec.containers),
        waiting="" if ready else _waiting(item),
    )


def _daemon_pod(item: Any) -> DaemonPod:
    ready = _condition(item, "Ready")
    return DaemonPod(
        name=item.metadata.name, node=item.spec.node_name, ready=ready, waiting="" if ready else _waiting(item)
    )


def _waiting(item: Any) -> str:
    """What a pod's status says about why it is not running, the most telling part first."""
    for status in item.status.container_statuses or ():
        now, last = status.state, status.last_state
        for ended in (now.terminated, last.terminated if last else None):
            if ended is not None and ended.exit_code != 0:
                said = last_words(ended.message or "") or ended.reason or "it said nothing"
                return f"container {status.name} exited with {ended.exit_code}: {said}"
        if now.waiting is not None:
            return ": ".join(part for part in (now.waiting.reason, now.waiting.message) if part)
    for condition in item.status.conditions or ():
        if condition.status == "False" and condition.message:
            return f"{condition.reason}: {condition.message}"
    return str(item.status.phase)


def last_words(log: str) -> str:
    """The end of a log, from its last line that begins with `error` if there is one, on one line."""
    lines = log.splitlines()
    errors = [number for number, line in enumerate(lines) if line.lower().startswith("error")]
    if errors:
        return " ".join(" ".join(lines[errors[-1] :]).split())[:REASON_CHARS]
    return " ".join(log.split())[-REASON_CHARS:]


def _progress(deployment: Any) -> Progress:
    status = deployment.status
    given_up = [
        condition.message
        for condition in status.conditions or ()
        if condition.type == "Progressing" and condition.status == "False"
    ]
    seen = (status.observed_generation or 0) >= deployment.metadata.generation
    return Progress(
        seen=seen,
        wanted=deployment.spec.replicas,
        updated=status.updated_replicas or 0,
        available=status.available_replicas or 0,
        total=status.replicas or 0,
        given_up=given_up[0] if given_up else "",
    )


def _new_pod(item: Any) -> NewPod:
    ready = _condition(item, "Ready")
    statuses = item.status.container_statuses or ()
    reasons = [status.state.waiting.reason for status in statuses if status.state.waiting is not None]
    return NewPod(
        name=item.metadata.name,
        ready=ready,
        restarts=max((status.restart_count for status in statuses), default=0),
        reason=reasons[0] if reasons else "",
        waiting="" if ready else _waiting(item),
    )
