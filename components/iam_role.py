"""An IAM role that may do what it must, and no more.

Registers:
- Role, its own policy if it has one, attachments of AWS' policies
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from fleet import aws_names

if TYPE_CHECKING:
    from components.aws_account import AwsAccount


@dataclass(frozen=True, slots=True)
class IamRoleArgs:
    """Who takes the role, and what it may do."""

    role_name: str
    trust: str
    account: AwsAccount
    region: str
    managed_policies: tuple[str, ...] = ()
    policy: pulumi.Input[str] | None = None


class IamRole(pulumi.ComponentResource):
    """A role; what uses it comes after its policies."""

    role: aws.iam.Role
    arn: pulumi.Output[str]
    ready: list[pulumi.Resource]
    """The role with all that it may do."""

    def __init__(self, name: str, args: IamRoleArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("triton-fleet:cloud:IamRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, provider=args.account.provider)
        self.role = aws.iam.Role(name, name=args.role_name, assume_role_policy=args.trust, opts=child)
        self.arn = self.role.arn
        self.ready = [self.role]
        for policy in args.managed_policies:
            arn = aws_names.managed_policy_arn(args.region, policy)
            self.ready.append(
                aws.iam.RolePolicyAttachment(f"{name}-{policy}", role=self.role.name, policy_arn=arn, opts=child)
            )
        if args.policy is not None:
            self.ready.append(aws.iam.RolePolicy(name, role=self.role.name, policy=args.policy, opts=child))
        self.register_outputs({})
