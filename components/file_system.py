"""The file system that the model store is on.

Registers:
- FileSystem with its policy, and its backups; retained and protected where the settings say so
- security group that lets in exactly the nodes, a mount target per zone, an access point with the pods' user
- identities of the EFS driver's pods, and the driver as an add-on of the cluster
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from components.eks_addon import register_addon
from components.pod_identity import PodIdentity, PodIdentityArgs
from fleet import aws_addons, aws_names, aws_policies, aws_store, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from components.aws_account import AwsAccount
    from fleet.schema import EfsStore, Serving


@dataclass(frozen=True, slots=True)
class FileSystemArgs:
    """What is made, whose it is, and where nodes reach it."""

    store: EfsStore
    serving: Serving
    account: AwsAccount
    region: str
    cluster: str
    vpc_id: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    """One by zone, in each zone that has nodes."""
    node_security_group_ids: Mapping[str, pulumi.Input[str]]
    """All groups that nodes are in, by a name; whoever is in one may mount."""
    driver_version: str | None
    """None where the cluster has the driver."""
    after: Sequence[pulumi.Resource]
    """The cluster with the nodes that the driver runs on."""


class FileSystem(pulumi.ComponentResource):
    """An encrypted file system, reachable from the nodes and by the driver's identity alone."""

    handle: pulumi.Output[str]
    """What a PersistentVolume calls it: file system and access point."""
    ready: list[pulumi.Resource]
    """What a mount needs."""

    def __init__(self, name: str, args: FileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:store:FileSystem", name, None, opts)
        self._args = args
        self._name = name
        files = self._make()
        targets = self._mount_targets(files)
        point = self._access_point(files)
        driver = self._driver(files, point)
        self.handle = pulumi.Output.all(files.id, point.id).apply(lambda ids: aws_store.handle(*ids))
        self.ready = [*targets, point, *driver]
        self.register_outputs({})

    def _child(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.account.provider, depends_on=list(depends_on))

    def _kept(self) -> pulumi.ResourceOptions:
        """What goes with the files: a destroyed stack leaves it, where the settings protect the store."""
        protect = self._args.store.protect or None
        return pulumi.ResourceOptions.merge(
            self._child(), pulumi.ResourceOptions(protect=protect, retain_on_delete=protect)
        )

    def _make(self) -> aws.efs.FileSystem:
        label = f"{self._args.cluster}-{self._name}"
        files = aws.efs.FileSystem(
            self._name,
            creation_token=label,
            tags=aws_names.named(label),
            **aws_store.file_system(self._args.store),
            opts=self._kept(),
        )
        aws.efs.BackupPolicy(
            self._name,
            file_system_id=files.id,
            backup_policy={"status": "ENABLED" if self._args.store.backup else "DISABLED"},
            opts=self._kept(),
        )
        return files

    def _mount_targets(self, files: aws.efs.FileSystem) -> list[pulumi.Resource]:
        """Field report B31: the way in is from the groups that nodes are really in, and from nowhere else."""
        label = f"{self._args.cluster}-{self._name}"
        group = aws.ec2.SecurityGroup(
            self._name,
            name=label,
            description="NFS from the nodes",
            vpc_id=self._args.vpc_id,
            tags=aws_names.named(label),
            opts=self._child(),
        )
        rules = [
            aws.vpc.SecurityGroupIngressRule(
                f"{self._name}-{source}",
                security_group_id=group.id,
                referenced_security_group_id=nodes,
                ip_protocol="tcp",
                from_port=aws_store.NFS_PORT,
                to_port=aws_store.NFS_PORT,
                opts=self._child(),
            )
            for source, nodes in self._args.node_security_group_ids.items()
        ]
        targets = [
            aws.efs.MountTarget(
                f"{self._name}-{zone}",
                file_system_id=files.id,
                subnet_id=subnet,
                security_groups=[group.id],
                opts=self._child(),
            )
            for zone, subnet in self._args.subnets.items()
        ]
        return [*rules, *targets]

    def _access_point(self, files: aws.efs.FileSystem) -> aws.efs.AccessPoint:
        label = f"{self._args.cluster}-{self._name}"
        return aws.efs.AccessPoint(
            self._name,
            file_system_id=files.id,
            tags=aws_names.named(label),
            **aws_store.access_point(self._args.serving),
            opts=self._child(),
        )

    def _driver(self, files: aws.efs.FileSystem, point: aws.efs.AccessPoint) -> list[pulumi.Resource]:
        """Identities come before the driver: a pod is given its identity when it starts."""
        client = self._identity(
            "efs-client",
            aws_addons.EFS_NODE_ACCOUNT,
            pulumi.Output.all(files.arn, point.arn).apply(lambda arns: aws_policies.store_client(*arns)),
        )
        controller = self._identity(
            "efs-controller",
            aws_addons.EFS_CONTROLLER_ACCOUNT,
            pulumi.Output.all(files.arn, point.arn).apply(lambda arns: aws_policies.store_controller(*arns)),
        )
        policy = aws.efs.FileSystemPolicy(
            self._name,
            file_system_id=files.id,
            policy=pulumi.Output.all(files.arn, point.arn, client.role_arn).apply(
                lambda arns: aws_policies.file_system(*arns)
            ),
            opts=self._kept(),
        )
        ready: list[pulumi.Resource] = [client, controller, policy]
        if self._args.driver_version is not None:
            ready.append(
                register_addon(
                    aws_addons.EFS_DRIVER,
                    self._args.cluster,
                    self._args.driver_version,
                    self._child(client, controller, *self._args.after),
                )
            )
        return ready

    def _identity(self, name: str, service_account: str, policy: pulumi.Output[str]) -> PodIdentity:
        return PodIdentity(
            name,
            PodIdentityArgs(
                account=self._args.account,
                region=self._args.region,
                cluster=self._args.cluster,
                namespace=names.NAMESPACE_SYSTEM,
                service_account=service_account,
                policy=policy,
                after=self._args.after,
            ),
            pulumi.ResourceOptions(parent=self),
        )
