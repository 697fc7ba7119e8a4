"""What makes disks of EBS for the pods that want one.

Registers:
- identity of the EBS driver's controller
- the driver, as an add-on of the cluster
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.eks_addon import register_addon
from components.pod_identity import PodIdentity, PodIdentityArgs
from fleet import aws_addons, aws_policies, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from components.aws_account import AwsAccount


@dataclass(frozen=True, slots=True)
class DiskDriverArgs:
    """Of which cluster, and which version."""

    account: AwsAccount
    region: str
    cluster: str
    version: str
    after: Sequence[pulumi.Resource]
    """The cluster with the nodes that the driver runs on."""


class DiskDriver(pulumi.ComponentResource):
    """The driver, with the identity that it starts with."""

    def __init__(self, name: str, args: DiskDriverArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:cluster:DiskDriver", name, None, opts)
        identity = PodIdentity(
            name,
            PodIdentityArgs(
                account=args.account,
                region=args.region,
                cluster=args.cluster,
                namespace=names.NAMESPACE_SYSTEM,
                service_account=aws_addons.EBS_CONTROLLER_ACCOUNT,
                policy=None,
                managed_policies=aws_policies.DISK_POLICIES,
                after=args.after,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        register_addon(
            aws_addons.EBS_DRIVER,
            args.cluster,
            args.version,
            pulumi.ResourceOptions(parent=self, provider=args.account.provider, depends_on=[identity, *args.after]),
        )
        self.register_outputs({})
