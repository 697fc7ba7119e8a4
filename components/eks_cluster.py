"""A cluster of EKS, made for the fleet.

Registers:
- key that encrypts Secrets, roles of the control plane and of the nodes, log group of the control plane
- eks.Cluster: the control plane alone, with access by the API's entries
- an access entry and its policy per administrator
- add-ons of the nodes (VPC CNI, kube-proxy, Pod Identity agent), the system nodes, CoreDNS
- NodeGroup per SKU, and the security group of nodes with EFA
- the stack's own Kubernetes provider, behind all of these
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks

from components.eks_addon import register_addon
from components.gpu_cluster import GpuCluster
from components.iam_role import IamRole, IamRoleArgs
from components.node_group import NodeGroup, NodeGroupArgs
from fleet import aws_access, aws_addons, aws_names, aws_nodes, aws_policies, catalog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from components.aws_account import AwsAccount
    from components.network import Network
    from fleet import schema
    from fleet.aws_nodes import Group
    from fleet.schema import Settings
    from fleet.schema_base import AddonName


@dataclass(frozen=True, slots=True)
class EksClusterArgs:
    """The settings, whose cluster is one to make, and the network that it is in."""

    settings: Settings
    cluster: schema.EksCluster
    network: Network
    account: AwsAccount


class EksCluster(GpuCluster):
    """The cluster, its nodes and the one way to it."""

    name: str
    node_security_group_id: pulumi.Output[str]
    """EKS makes it, and every managed node is in it, whatever else it is in."""
    node_role_arn: pulumi.Output[str]
    auto_scaling_groups: list[pulumi.Output[str]]
    """Of the node groups, for what changes their size."""
    ready: list[pulumi.Resource]
    """What an object in the cluster needs to live and to be deleted."""

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pulumi.ComponentResource.__init__(self, "triton-fleet:cluster:GpuCluster", name, None, opts)
        self._args = args
        self.name = args.cluster.name
        self._efa: pulumi.Output[str] | None = None
        control_plane = self._control_plane(name)
        self.node_security_group_id = control_plane.cluster_security_group_id
        access = [entry for admin in args.cluster.admins for entry in self._access(admin, control_plane)]
        before = [self._addon(addon, control_plane) for addon in aws_addons.BEFORE_NODES]
        role = self._node_role()
        self.node_role_arn = role.arn
        after = [control_plane, *args.network.ready, *role.ready, *before]
        system = self._node_group(
            aws_nodes.system_group(
                args.cluster.system_nodes,
                catalog.instance(args.cluster.system_nodes.instance_type).architecture,
            ),
            role,
            after,
        )
        late = [self._addon(addon, control_plane, *system.ready) for addon in aws_addons.AFTER_NODES]
        groups = [system, *(self._node_group(group, role, after) for group in self._sku_groups())]
        self.auto_scaling_groups = [group.auto_scaling_group for group in groups]
        nodes = [one for group in groups for one in group.ready]
        self.ready = [control_plane, *access, *before, *args.network.ready, *nodes, *late]
        self._provide(name, control_plane.kubeconfig_json, self.ready)
        self.register_outputs({})

    def _child(self, *depends_on: pulumi.Resource, protect: bool | None = None) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self,
            provider=self._args.account.provider,
            depends_on=list(depends_on),
            protect=protect,
        )

    def _control_plane(self, name: str) -> eks.Cluster:
        cluster, network = self._args.cluster, self._args.network
        key = aws.kms.Key(
            "secrets",
            description=f"Secrets of {cluster.name}",
            enable_key_rotation=True,
            deletion_window_in_days=cluster.key_deletion_days,
            opts=self._child(protect=cluster.protect or None),
        )
        aws.kms.Alias("secrets", name=f"alias/{cluster.name}-secrets", target_key_id=key.id, opts=self._child())
        role = IamRole(
            "control-plane",
            IamRoleArgs(
                account=self._args.account,
                region=cluster.region,
                role_name=f"{cluster.name}-control-plane",
                trust=aws_policies.trust_service("eks"),
                managed_policies=aws_policies.CLUSTER_POLICIES,
                policy=key.arn.apply(aws_policies.secrets_encryption),
            ),
            pulumi.ResourceOptions(parent=self),
        )
        logs = aws.cloudwatch.LogGroup(
            "control-plane",
            name=aws_names.log_group(cluster.name),
            retention_in_days=cluster.log_retention_days,
            opts=self._child(),
        )
        public = cluster.access == "public"
        return eks.Cluster(
            name,
            name=cluster.name,
            version=cluster.kubernetes_version,
            vpc_id=network.vpc_id,
            private_subnet_ids=network.private_subnet_ids,
            public_subnet_ids=network.public_subnet_ids or None,
            service_role=role.role,
            endpoint_private_access=True,
            endpoint_public_access=public,
            public_access_cidrs=list(cluster.public_cidrs) if public else None,
            authentication_mode=eks.AuthenticationMode.API,
            encryption_config_key_arn=key.arn,
            enabled_cluster_log_types=list(cluster.log_types),
            create_oidc_provider=False,
            skip_default_node_group=True,
            # Managed nodes are in the group that EKS makes; another one would hold none of them (field report B31).
            skip_default_security_groups=True,
            node_associate_public_ip_address=False,
            # The add-ons are the stack's own resources, each with its version.
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            coredns_addon_options={"enabled": False},
            kube_proxy_addon_options={"enabled": False},
            opts=pulumi.ResourceOptions(
                parent=self,
                providers={"aws": self._args.account.provider},
                depends_on=[*role.ready, *network.ready, logs],
                protect=cluster.protect or None,
            ),
        )

    def _access(self, admin: schema.Admin, control_plane: eks.Cluster) -> list[pulumi.Resource]:
        """Nodes need no entry here: EKS makes that of a managed group's role itself (field report B35)."""
        region, label = self._args.cluster.region, aws_access.label(admin.principal_arn)
        entry = aws.eks.AccessEntry(
            label,
            cluster_name=self.name,
            principal_arn=admin.principal_arn,
            type="STANDARD",
            opts=self._child(control_plane),
        )
        policy = aws.eks.AccessPolicyAssociation(
            label,
            cluster_name=self.name,
            principal_arn=entry.principal_arn,
            policy_arn=aws_names.access_policy_arn(region, aws_access.POLICIES[admin.policy]),
            access_scope=aws_access.scope(admin.namespaces),
            opts=self._child(entry),
        )
        return [entry, policy]

    def _addon(self, addon: AddonName, *after: pulumi.Resource) -> aws.eks.Addon:
        cluster = self._args.cluster
        version = aws_addons.version(cluster.kubernetes_version, addon, cluster.addons)
        return register_addon(addon, self.name, version, self._child(*after))

    def _node_role(self) -> IamRole:
        cluster = self._args.cluster
        return IamRole(
            "nodes",
            IamRoleArgs(
                account=self._args.account,
                region=cluster.region,
                role_name=f"{cluster.name}-nodes",
                trust=aws_policies.trust_service("ec2"),
                managed_policies=aws_policies.NODE_POLICIES,
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _sku_groups(self) -> list[Group]:
        groups = []
        for sku in self._args.settings.skus:
            if sku.instance is not None:
                types = [catalog.instance(each) for each in sku.instance.instance_types]
                groups += aws_nodes.sku_groups(sku, types[0].architecture, min(each.efa_interfaces for each in types))
        return groups

    def _node_group(self, group: Group, role: IamRole, after: Sequence[pulumi.Resource]) -> NodeGroup:
        return NodeGroup(
            group.name,
            NodeGroupArgs(
                group=group,
                account=self._args.account,
                environment=self._args.settings.environment,
                cluster=self.name,
                kubernetes_version=self._args.cluster.kubernetes_version,
                role_arn=role.arn,
                subnet_ids=self._args.network.in_zone(group.zone),
                security_group_ids=[self.node_security_group_id, self._efa_group()] if group.efa_interfaces else [],
                after=after,
            ),
            pulumi.ResourceOptions(parent=self),
        )

    def _efa_group(self) -> pulumi.Output[str]:
        """EFA asks for a group that lets itself in and out:
        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html
        """
        if self._efa is None:
            group = aws.ec2.SecurityGroup(
                "efa",
                name=f"{self.name}-efa",
                description="EFA between nodes",
                vpc_id=self._args.network.vpc_id,
                tags=aws_names.named(f"{self.name}-efa"),
                opts=self._child(),
            )
            rule = {"security_group_id": group.id, "referenced_security_group_id": group.id, "ip_protocol": "-1"}
            aws.vpc.SecurityGroupIngressRule("efa", **rule, opts=self._child())
            aws.vpc.SecurityGroupEgressRule("efa", **rule, opts=self._child())
            self._efa = group.id
        return self._efa
