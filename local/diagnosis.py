"""Why an update failed, as the cluster tells it: the last words of each container that is not ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubernetes import client
from kubernetes.client import ApiException
from kubernetes.config import new_client_from_config
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGE_LINES = 12


def of(kubeconfig: Path, namespace: str) -> str:
    """A paragraph per pod of `namespace` that is not ready; empty where all are or the cluster does not answer."""
    try:
        with new_client_from_config(config_file=str(kubeconfig)) as api_client:
            api = client.CoreV1Api(api_client)
            pods = api.list_namespaced_pod(namespace, _request_timeout=10).items
            return "\n".join(line for pod in pods for line in _of_pod(pod))
    except (ApiException, HTTPError, OSError) as error:
        return f"(the pods could not be read: {type(error).__name__})"


def _of_pod(pod: client.V1Pod) -> Iterator[str]:
    if pod.status.phase == "Succeeded":
        return
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status != "True":
            yield f"pod {pod.metadata.name}: not scheduled: {condition.message}"
    for status in pod.status.container_statuses or []:
        if status.ready:
            continue
        waiting = status.state.waiting if status.state else None
        ended = (status.state.terminated if status.state else None) or (
            status.last_state.terminated if status.last_state else None
        )
        reason = (waiting and waiting.reason) or (ended and ended.reason) or "not ready"
        yield f"pod {pod.metadata.name}, container {status.name}: {reason}, restarted {status.restart_count} times"
        if waiting and waiting.message:
            yield f"  {waiting.message}"
        if ended:
            yield f"  exit status {ended.exit_code}; its last lines:"
            for line in (ended.message or "(none)").strip().splitlines()[-MESSAGE_LINES:]:
                yield f"    | {line}"
