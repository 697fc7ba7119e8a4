"""What gives the cluster nodes when pods wait, and takes them when they are empty.

Registers:
- identity of its pods: the node groups' Auto Scaling groups and no others
- Helm release of cluster-autoscaler
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.pod_identity import PodIdentity, PodIdentityArgs
from components.release import ReleaseArgs, register_release
from fleet import aws_autoscaler, aws_names, aws_policies, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_kubernetes as kubernetes

    from components.aws_account import AwsAccount
    from fleet import schema


@dataclass(frozen=True, slots=True)
class NodeAutoscalerArgs:
    """Which cluster's groups it changes, and whose chart it is."""

    cluster: schema.EksCluster
    charts: schema.Charts
    account: AwsAccount
    role_arn: pulumi.Input[str]
    """Of any role in the account, which it names."""
    auto_scaling_groups: Sequence[pulumi.Input[str]]
    provider: kubernetes.Provider
    drain_s: int
    """The longest that a pod of a node that goes may take to stop."""
    after: Sequence[pulumi.Resource]


class NodeAutoscaler(pulumi.ComponentResource):
    """The node autoscaler, running."""

    def __init__(self, name: str, args: NodeAutoscalerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:cluster:NodeAutoscaler", name, None, opts)
        cluster = args.cluster
        policy = pulumi.Output.all(args.role_arn, *args.auto_scaling_groups).apply(
            lambda known: aws_policies.autoscaler(
                cluster.region, aws_names.account_of(known[0]), cluster.name, known[1:]
            )
        )
        identity = PodIdentity(
            name,
            PodIdentityArgs(
                account=args.account,
                region=cluster.region,
                cluster=cluster.name,
                namespace=names.NAMESPACE_SYSTEM,
                service_account=aws_autoscaler.SERVICE_ACCOUNT,
                policy=policy,
                after=args.after,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        register_release(
            aws_autoscaler.RELEASE,
            ReleaseArgs(
                charts=args.charts,
                chart=aws_autoscaler.CHART,
                namespace=names.NAMESPACE_SYSTEM,
                values=aws_autoscaler.values(cluster.name, cluster.region, cluster.kubernetes_version, args.drain_s),
            ),
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[identity]),
        )
        self.register_outputs({})
