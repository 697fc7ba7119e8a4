"""How far the update of a Deployment has come, and whether it can still succeed.

Kubernetes itself says only after the whole progress deadline that an update has failed, and not why. A new pod that has
crashed several times while starting says both at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

CRASHES: Final = 3
"""Restarts of a new pod's container after which its update is given up; once or twice a neighbour may come late."""
FINAL_REASONS: Final = frozenset({"ErrImageNeverPull", "InvalidImageName"})
"""What a container waits for that does not come by itself."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A Deployment's status. `seen` says whether it is about the Deployment as it is now."""

    seen: bool
    wanted: int
    updated: int
    available: int
    total: int
    given_up: str
    """What Kubernetes says when its progress deadline has passed, else nothing."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod that the update brought."""

    name: str
    ready: bool
    restarts: int
    reason: str
    """What its container waits for, in one word; empty when it waits for nothing."""
    waiting: str
    """Why it is not ready, as far as its status says."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the update stands; `text` says it to people, `look` what of kubectl shows most where it failed."""

    state: Literal["waiting", "done", "failed"]
    text: str
    look: str = ""


def judge(name: str, progress: Progress, pods: Sequence[NewPod], fewest: int = 0) -> Verdict:
    """Judges the update of the Deployment `name` by its status and its new pods.

    An autoscaler brings a new Deployment from one replica to the `fewest` only when it looks at it.
    """
    wanted = max(progress.wanted, fewest)
    if not progress.seen:
        return Verdict("waiting", f"{name}: the update is about to begin")
    held_up = [pod for pod in pods if not pod.ready]
    why = "; ".join(f"{pod.name}: {pod.waiting}" for pod in held_up)
    hopeless = [pod for pod in held_up if pod.restarts >= CRASHES or pod.reason in FINAL_REASONS]
    if hopeless:
        worst = hopeless[0]
        crashed = worst.restarts >= CRASHES
        what = f"crashed {worst.restarts} times" if crashed else "cannot start"
        look = f"logs {worst.name} --previous" if crashed else f"describe pod {worst.name}"
        return Verdict("failed", f"{name}: the new pod {worst.name} {what}: {worst.waiting}", look)
    if progress.given_up:
        text = f"{name}: {progress.given_up}" + (f" {why}" if why else "")
        return Verdict("failed", text, f"describe deployment {name}")
    counts = f"{progress.updated} of {wanted} replicas new, {progress.available} available"
    if progress.updated < wanted or progress.available < wanted:
        return Verdict("waiting", f"{name}: {counts}" + (f"; {why}" if why else ""))
    if progress.total > progress.updated:
        return Verdict("waiting", f"{name}: {counts}, {progress.total - progress.updated} old to go")
    return Verdict("done", f"{name}: {counts}")
