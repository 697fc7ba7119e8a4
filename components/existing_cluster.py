"""A cluster of EKS that exists, adopted by its name. Nothing of it is made or changed.

Registers:
- the stack's own Kubernetes provider
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.gpu_cluster import GpuCluster
from fleet import aws_access, aws_network

if TYPE_CHECKING:
    from components.aws_account import AwsAccount
    from fleet.schema import EksExistingCluster


@dataclass(frozen=True, slots=True)
class ExistingClusterArgs:
    """Which cluster."""

    cluster: EksExistingCluster
    account: AwsAccount


class ExistingCluster(GpuCluster):
    """The cluster, and the one way to it."""

    name: str
    vpc_id: str
    node_security_group_id: str
    """The one that EKS made: managed nodes are in it."""
    subnets: dict[str, str]
    """One by zone."""

    def __init__(self, name: str, args: ExistingClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pulumi.ComponentResource.__init__(self, "triton-fleet:cluster:GpuCluster", name, None, opts)
        self.name = args.cluster.name
        found = args.account.cluster(self.name)
        subnets = args.account.subnets(sorted(found.vpc_config.subnet_ids), "cluster.name")
        self.vpc_id = found.vpc_config.vpc_id
        self.node_security_group_id = found.vpc_config.cluster_security_group_id
        self.subnets = aws_network.one_per_zone(list(subnets), [one.zone for one in subnets.values()])
        self._provide(
            name,
            aws_access.kubeconfig(
                self.name, args.cluster.region, found.endpoint, found.certificate_authorities[0].data
            ),
        )
        self.register_outputs({})
