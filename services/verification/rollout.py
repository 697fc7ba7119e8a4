"""Waits for the update of one Deployment, tells how it goes, and gives up as soon as it cannot succeed any more."""

from __future__ import annotations

import time
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Awaited:
    """A Deployment, the replicas that it has at least, and how long its update may take."""

    namespace: str
    name: str
    fewest: int
    deadline_s: float


def wait(cluster: Cluster, awaited: Awaited, say: Callable[[str], None]) -> Verdict:
    """The verdict, once it is final. A cluster that does not answer for a moment is asked again."""
    name, deadline_s = awaited.name, awaited.deadline_s
    until = time.monotonic() + deadline_s
    said = ""
    while True:
        try:
            verdict = rollout.judge(name, *cluster.rollout(awaited.namespace, name), awaited.fewest)
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


def run(kubeconfig: str, awaited: Awaited, say: Callable[[str], None]) -> Verdict:
    """Waits on the cluster of the kubeconfig."""
    return wait(KubernetesCluster(kubeconfig), awaited, say)
