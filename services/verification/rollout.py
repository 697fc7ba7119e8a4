"""Waits for the update of one Deployment, tells how it goes, and gives up as soon as it cannot succeed any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from fleet import rollout
from fleet.rollout import Verdict
from services.verification.cluster import ClusterError, KubernetesCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.rollout import NewPod, Progress

POLL_S: Final = 1.0


class Cluster(Protocol):
    """What waiting needs of a cluster; services.verification.cluster has the real one."""

    def rollout(self, namespace: str, name: str) -> tuple[Progress, list[NewPod]]: ...


def wait(cluster: Cluster, namespace: str, name: str, deadline_s: float, say: Callable[[str], None]) -> Verdict:
    """The verdict, once it is final. A cluster that does not answer for a moment is asked again."""
    until = time.monotonic() + deadline_s
    said = ""
    while True:
        try:
            verdict = rollout.judge(name, *cluster.rollout(namespace, name))
        except ClusterError as error:
            verdict = Verdict("waiting", f"{name}: {error}")
        if verdict.state != "waiting":
            return verdict
        if time.monotonic() > until:
            text = f"not done within {deadline_s:g} s: {verdict.text}"
            return Verdict("failed", text, f"describe deployment {name}")
        if verdict.text != said:
            said = verdict.text
            say(said)
        time.sleep(POLL_S)


def run(kubeconfig: str, namespace: str, name: str, deadline_s: float, say: Callable[[str], None]) -> Verdict:
    """Waits on the cluster of the kubeconfig."""
    return wait(KubernetesCluster(kubeconfig), namespace, name, deadline_s, say)
