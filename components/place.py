"""Where the fleet runs, as the rest of the program needs to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi

    from components.gpu_cluster import GpuCluster


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and what else the fleet stands on."""

    cluster: GpuCluster
    handle: pulumi.Input[str] | None = None
    """Of the file system that the model store is on; None where it is a folder of the node."""
    mountable: Sequence[pulumi.Resource] = ()
    """What a mount of the file system needs."""
    after: Sequence[pulumi.Resource] = ()
    """What brings the nodes that pods wait for."""
    disks: Sequence[pulumi.Resource] = ()
    """What makes disks of AWS' for pods; empty where the cluster has it, or no pod wants one."""
