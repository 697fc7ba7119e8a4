"""The place in AWS: account, images, network, cluster, file system and node autoscaler, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.aws_account import AwsAccount, AwsAccountArgs
from components.disk_driver import DiskDriver, DiskDriverArgs
from components.eks_cluster import EksCluster, EksClusterArgs
from components.existing_cluster import ExistingCluster, ExistingClusterArgs
from components.file_system import FileSystem, FileSystemArgs
from components.image_repositories import ImageRepositories, ImageRepositoriesArgs
from components.network import Network, NetworkArgs
from components.node_autoscaler import NodeAutoscaler, NodeAutoscalerArgs
from components.place import Place
from fleet import aws_addons, monitoring, names, workload

if TYPE_CHECKING:
    from fleet import schema


def of(settings: schema.Settings) -> Place:
    """The cluster that the settings name, made or found."""
    cluster = settings.cluster
    if cluster.source == "eks":
        return _make(settings, cluster)
    if cluster.source == "eks_existing":
        return _adopt(settings, cluster)
    raise TypeError(f"a cluster by {cluster.source} is not AWS'")


def _make(settings: schema.Settings, cluster: schema.EksCluster) -> Place:
    """A cluster of the stack's own, with all that it stands on."""
    account = _account(settings, cluster.region)
    network = Network("network", NetworkArgs(cluster.network, cluster.name, account))
    made = EksCluster("cluster", EksClusterArgs(settings, cluster, network, account))
    autoscaler = NodeAutoscaler(
        "cluster-autoscaler",
        NodeAutoscalerArgs(
            cluster=cluster,
            charts=settings.charts,
            account=account,
            role_arn=made.node_role_arn,
            auto_scaling_groups=made.auto_scaling_groups,
            provider=made.provider,
            drain_s=workload.longest_grace_s(settings),
            after=made.ready,
        ),
    )
    disks = [_disks(cluster, made, account)] if monitoring.needs_ebs(cluster, settings.monitoring) else []
    if settings.store.kind != "efs":
        return Place(made, after=[autoscaler], disks=disks)
    files = FileSystem(
        names.STORE_NAME,
        FileSystemArgs(
            store=settings.store,
            serving=settings.serving,
            account=account,
            region=cluster.region,
            cluster=cluster.name,
            vpc_id=network.vpc_id,
            subnets=network.one_per_zone(),
            node_security_group_ids={"nodes": made.node_security_group_id},
            driver_version=aws_addons.version(cluster.kubernetes_version, aws_addons.EFS_DRIVER, cluster.addons),
            after=made.ready,
        ),
    )
    return Place(made, files.handle, files.ready, [autoscaler], disks)


def _disks(cluster: schema.EksCluster, made: EksCluster, account: AwsAccount) -> DiskDriver:
    return DiskDriver(
        "ebs-csi",
        DiskDriverArgs(
            account=account,
            region=cluster.region,
            cluster=cluster.name,
            version=aws_addons.version(cluster.kubernetes_version, aws_addons.EBS_DRIVER, cluster.addons),
            after=made.ready,
        ),
    )


def _adopt(settings: schema.Settings, cluster: schema.EksExistingCluster) -> Place:
    """A cluster that exists; the file system is the stack's own, the cluster's driver mounts it."""
    account = _account(settings, cluster.region)
    found = ExistingCluster("cluster", ExistingClusterArgs(cluster, account))
    if settings.store.kind != "efs":
        return Place(found)
    files = FileSystem(
        names.STORE_NAME,
        FileSystemArgs(
            store=settings.store,
            serving=settings.serving,
            account=account,
            region=cluster.region,
            cluster=cluster.name,
            vpc_id=found.vpc_id,
            subnets=found.subnets,
            node_security_group_ids={"nodes": found.node_security_group_id},
            driver_version=None,
            after=[],
        ),
    )
    return Place(found, files.handle, files.ready)


def _account(settings: schema.Settings, region: str) -> AwsAccount:
    account = AwsAccount("aws", AwsAccountArgs(region, settings.environment))
    if settings.images.ecr:
        ImageRepositories("images", ImageRepositoriesArgs(settings.environment, account))
    return account
