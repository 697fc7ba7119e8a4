"""One managed node group.

Registers:
- launch template, and a placement group if its nodes stand close to each other
- NodeGroup
- tags of its Auto Scaling group, which tell the node autoscaler what a node will be
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from fleet import aws_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from components.aws_account import AwsAccount
    from fleet.aws_nodes import Group


@dataclass(frozen=True, slots=True)
class NodeGroupArgs:
    """Which group, in which cluster, where, as whom, and after what."""

    group: Group
    account: AwsAccount
    environment: str
    cluster: str
    kubernetes_version: str
    role_arn: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    security_group_ids: Sequence[pulumi.Input[str]]
    """Of nodes with EFA; else EKS gives nodes its own."""
    after: Sequence[pulumi.Resource]


class NodeGroup(pulumi.ComponentResource):
    """Nodes of one kind."""

    auto_scaling_group: pulumi.Output[str]
    """Name of the one Auto Scaling group that EKS makes for it."""
    ready: list[pulumi.Resource]

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("triton-fleet:cluster:NodeGroup", name, None, opts)
        self._args = args
        template = self._template(name)
        nodes = aws.eks.NodeGroup(
            name,
            cluster_name=args.cluster,
            node_role_arn=args.role_arn,
            subnet_ids=list(args.subnet_ids),
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            **aws_nodes.node_group(args.group, args.environment, args.kubernetes_version),
            opts=pulumi.ResourceOptions.merge(
                self._child(*args.after),
                # How many nodes there are, between the bounds, is the autoscaler's.
                pulumi.ResourceOptions(ignore_changes=["scalingConfig.desiredSize"]),
            ),
        )
        self.auto_scaling_group = nodes.resources.apply(lambda found: found[0].autoscaling_groups[0].name)
        self.ready = [nodes, *self._tag(name)]
        self.register_outputs({})

    def _child(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.account.provider, depends_on=list(depends_on))

    def _template(self, name: str) -> aws.ec2.LaunchTemplate:
        args = self._args
        arguments = aws_nodes.launch_template(args.group, args.cluster, args.security_group_ids)
        if args.group.placement_group:
            close = aws.ec2.PlacementGroup(name, name=arguments["name"], strategy="cluster", opts=self._child())
            arguments["placement"] = {"group_name": close.name}
        return aws.ec2.LaunchTemplate(name, **arguments, opts=self._child())

    def _tag(self, name: str) -> list[aws.autoscaling.Tag]:
        return [
            aws.autoscaling.Tag(
                f"{name}/{key.removeprefix(aws_nodes.TEMPLATE_TAG + '/')}",
                autoscaling_group_name=self.auto_scaling_group,
                tag={"key": key, "value": value, "propagate_at_launch": False},
                opts=self._child(),
            )
            for key, value in aws_nodes.template_tags(self._args.group).items()
        ]
