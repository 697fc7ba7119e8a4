"""What the pods of a service account may do in AWS.

Registers:
- IamRole that only pods can take
- PodIdentityAssociation of the service account
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from components.iam_role import IamRole, IamRoleArgs
from fleet import aws_policies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from components.aws_account import AwsAccount


@dataclass(frozen=True, slots=True)
class PodIdentityArgs:
    """A service account, and what its pods may do."""

    account: AwsAccount
    region: str
    cluster: str
    namespace: str
    service_account: str
    policy: pulumi.Input[str] | None
    """None where `managed_policies` say all."""
    after: Sequence[pulumi.Resource]
    managed_policies: tuple[str, ...] = ()


class PodIdentity(pulumi.ComponentResource):
    """The identity of pods. It must be there before a pod starts, which is given it then or never."""

    role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PodIdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("triton-fleet:cloud:PodIdentity", name, None, opts)
        role = IamRole(
            name,
            IamRoleArgs(
                account=args.account,
                region=args.region,
                role_name=f"{args.cluster}-{name}",
                trust=aws_policies.trust_pods(),
                managed_policies=args.managed_policies,
                policy=args.policy,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.role_arn = role.arn
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster,
            namespace=args.namespace,
            service_account=args.service_account,
            role_arn=role.arn,
            opts=pulumi.ResourceOptions(
                parent=self, provider=args.account.provider, depends_on=[*role.ready, *args.after]
            ),
        )
        self.register_outputs({})
