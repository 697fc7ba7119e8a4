"""A load that a Job makes inside the cluster; whoever watches it sees no difference from one on this machine."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from typing import TYPE_CHECKING, Final, Self

from fleet.load import job
from fleet.load.plan import together
from local.errors import LocalError
from local.state import PROJECT
from services.load.run import Told
from services.verification.cluster import ClusterError

if TYPE_CHECKING:
    from fleet.load.plan import Interval, Plan
    from fleet.settings import Settings
    from services.verification.cluster import JobPod, KubernetesCluster

START_S: Final = 180
"""A node may have to pull the image first."""
LOOK_S: Final = 1.0
SILENT_S: Final = 60
"""A pod tells each second: one that says nothing for so long is gone, or cannot be heard."""


class Inside:
    """The Job, its files and its policy; they go when the load is over."""

    def __init__(self, cluster: KubernetesCluster, settings: Settings, plan: Plan, count: int) -> None:
        self.plan = plan
        self.intervals: list[Interval] = []
        self._cluster = cluster
        self._namespace = settings.serving.namespace
        self._count = count
        self._told = [Told() for _ in range(count)]
        self._began_s: float | None = None
        self._faults: list[str] = []
        self._followers: list[threading.Thread] = []
        self._lock = threading.Lock()
        program = {path: (PROJECT / path).read_text(encoding="utf-8") for path in job.FILES}
        manifests = job.manifests(settings, plan, secrets.token_hex(3), count, program)
        self._job: str = manifests[-1]["metadata"]["name"]
        try:
            uid = cluster.create_job(manifests[-1])
            for manifest in manifests[:-1]:
                cluster.create_beside(manifest, self._job, uid)
        except KeyboardInterrupt:
            self._remove()
            raise
        except ClusterError as error:
            self._remove()
            raise LocalError(
                "the load could not be begun inside the cluster",
                details=str(error),
                fix="read what it says: the kubeconfig's user must make Jobs, ConfigMaps and NetworkPolicies",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._remove()
        if kind is KeyboardInterrupt:
            return
        for follower in self._followers:
            follower.join(timeout=self.plan.timeout_s)

    def started(self) -> float:
        """When the first pod began, of this machine's monotonic clock; waits until all of them run."""
        until = time.monotonic() + START_S
        while True:
            pods = self._pods()
            if len(pods) >= self._count and all(pod.started for pod in pods):
                break
            if time.monotonic() > until:
                waiting = "; ".join(pod.waiting for pod in pods if not pod.started)
                raise LocalError(
                    f"{sum(pod.started for pod in pods)} of {self._count} pods of the load run after {START_S} s",
                    details=waiting,
                    fix="the image images.load (or images.tools) must be on the nodes and have Locust: docs/load.md",
                )
            time.sleep(LOOK_S)
        for pod, told in zip(pods, self._told, strict=False):
            follower = threading.Thread(target=self._follow, args=(str(pod.name), told), daemon=True)
            follower.start()
            self._followers.append(follower)
        while self._began_s is None:
            if self.over or time.monotonic() > until:
                raise self._failure()
            time.sleep(0.1)
        return self._began_s

    def _pods(self) -> list[JobPod]:
        try:
            return self._cluster.job_pods(self._namespace, self._job)
        except ClusterError:
            return []

    def _follow(self, pod: str, told: Told) -> None:
        said: list[str] = []
        while not told.ended:
            try:
                for line in self._cluster.follow(self._namespace, pod, SILENT_S):
                    self._hear(line, told, said)
            except ClusterError as error:
                said.append(str(error))
            ended = next((one for one in self._pods() if one.name == pod), None)
            if ended is None or ended.ended:
                break
            # The API server was gone for a moment. A log is told from its beginning.
            time.sleep(LOOK_S)
            told.intervals.clear()
        if not told.ended:
            with self._lock:
                self._faults.append(f"{pod}: {' '.join(said[-5:]) or 'it said nothing'}")

    def _hear(self, line: str, told: Told, said: list[str]) -> None:
        with self._lock:
            if told.hear(line) is not None:
                self.intervals[:] = together([one.intervals for one in self._told])
            elif told.began_s is None:
                said.append(line)
            if told.began_s is not None and self._began_s is None:
                self._began_s = time.monotonic()

    def stop(self) -> None:
        """Nothing more is asked: pods that are to end wait for what was asked."""
        self._remove()

    @property
    def over(self) -> bool:
        return not any(follower.is_alive() for follower in self._followers)

    def made(self) -> None:
        """Waits for the load's end."""
        for follower in self._followers:
            follower.join()
        if self._faults:
            raise self._failure()

    def _failure(self) -> LocalError:
        return LocalError(
            "the load ended before its time inside the cluster",
            details="\n".join(self._faults) or "its pods said nothing",
            fix="the image images.load (or images.tools) must have Locust: docs/load.md",
        )

    def _remove(self) -> None:
        with contextlib.suppress(ClusterError):
            self._cluster.delete_job(self._namespace, self._job)
