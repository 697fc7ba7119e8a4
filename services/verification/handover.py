"""Removes autoscalers that a Deployment is to have no longer, before it is told its number of replicas."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from services.verification.cluster import ClusterError, KubernetesCluster

if TYPE_CHECKING:
    from fleet.autoscaling import Owner

POLL_S: Final = 0.5
DEADLINE_S: Final = 60.0
"""KEDA takes its own autoscaler away before its object goes."""


class Cluster(Protocol):
    """What a handover needs of a cluster; services.verification.cluster has the real one."""

    def delete_autoscaler(self, namespace: str, name: str) -> bool: ...
    def delete_scaled_object(self, namespace: str, name: str) -> bool: ...


def take(cluster: Cluster, namespace: str, name: str, owner: Owner, deadline_s: float = DEADLINE_S) -> str:
    """Removes what would overrule `owner`; the reason why it could not, or nothing. What is not there is gone."""
    until = time.monotonic() + deadline_s
    removals = (
        [cluster.delete_autoscaler] if owner == "keda" else [cluster.delete_autoscaler, cluster.delete_scaled_object]
    )
    said = "it is still there"
    while removals:
        try:
            if not removals[0](namespace, name):
                del removals[0]
                continue
        except ClusterError as error:
            said = str(error)
        if time.monotonic() > until:
            return f"{name}: an autoscaler that is to go did not within {deadline_s:g} s: {said}"
        time.sleep(POLL_S)
    return ""


def run(kubeconfig: str, namespace: str, name: str, owner: Owner) -> str:
    """Works on the cluster of the kubeconfig."""
    return take(KubernetesCluster(kubeconfig), namespace, name, owner)
