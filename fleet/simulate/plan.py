"""What is simulated, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.pods import Manifest
    from fleet.simulate.trace import Speed, Trace


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of a SKU. `room` is how many GPUs, or shares, one node has; 0 where nothing limits it."""

    sku: str
    room: int
    least: int
    most: int
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class Served:
    """A model on a SKU: its manifests, its speed, and what one replica takes of a node."""

    model: str
    sku: str
    deployment: Manifest
    autoscaler: Manifest | None
    """None where the settings say how many replicas there are."""
    speed: Speed
    takes: int
    fewest: int

    @property
    def name(self) -> str:
        return names.deployment_name(self.model, self.sku)


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is simulated."""

    environment: str
    namespace: str
    job: str
    served: tuple[Served, ...]
    pools: tuple[Pool, ...]
    rules: Manifest
    """A PrometheusRule."""
    monitor: Manifest
    """The PodMonitor of Triton."""
    relist_s: float
    trace: Trace


@dataclass(frozen=True, slots=True)
class Phases:
    """When what comes at intervals comes, seconds of the trace, as far as it was seen on a real cluster: each names one
    time of many. What is not named begins at a moment of chance.
    """

    looks: Mapping[str, float] = field(default_factory=dict)
    """Of an autoscaler, by Deployment."""
    rules: Mapping[str, float] = field(default_factory=dict)
    """By group of rules."""
    scrapes: Mapping[str, float] = field(default_factory=dict)
    """By replica: `<Deployment>-<n>` is the n-th that it ever had."""


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that changed a Deployment."""

    time: float
    deployment: str
    before: int
    after: int
    mean: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Sight:
    """How it stands at a time. Counts and latencies are of the time since the sight before."""

    time: float
    wanted: Mapping[str, int]
    ready: Mapping[str, int]
    ratio: Mapping[str, float | None]
    """By Deployment: what its autoscaler compares with the target."""
    waiting: int
    offered: int
    served: int
    failed: int
    p95_s: float | None
    nodes: Mapping[str, int]
    usd: float | None
    """Spent on nodes until then."""


@dataclass(frozen=True, slots=True)
class Run:
    """All that came of it."""

    plan: Plan
    sights: tuple[Sight, ...]
    changes: tuple[Change, ...]
    latencies: tuple[float, ...]
    offered: int
    failed: int
    served_by: Mapping[str, int]
