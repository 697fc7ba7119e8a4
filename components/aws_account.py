"""The AWS account and region that the stack is in.

Registers:
- the stack's own AWS provider, which every AWS resource uses, and which tags all of them
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from fleet import aws_names


@dataclass(frozen=True, slots=True)
class AwsAccountArgs:
    """Where, and for which environment. Who is asked of the ambient credentials, as every AWS tool does."""

    region: str
    environment: str


class AwsAccount(pulumi.ComponentResource):
    """The account, and the one way to it."""

    provider: aws.Provider

    def __init__(self, name: str, args: AwsAccountArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:cloud:AwsAccount", name, None, opts)
        self.provider = aws.Provider(
            name,
            region=args.region,
            default_tags={"tags": aws_names.tags(args.environment)},
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})

    @property
    def _asked(self) -> pulumi.InvokeOptions:
        return pulumi.InvokeOptions(provider=self.provider)

    def available_zones(self) -> list[str]:
        """The zones of the region that the account may use, without those one must opt into."""
        found = aws.get_availability_zones(
            state="available", filters=[{"name": "opt-in-status", "values": ["opt-in-not-required"]}], opts=self._asked
        )
        return list(found.names)

    def zones(self, subnet_ids: list[str]) -> dict[str, str]:
        """The zone of each subnet that exists."""
        return {each: aws.ec2.get_subnet(id=each, opts=self._asked).availability_zone for each in subnet_ids}

    def cluster(self, name: str) -> aws.eks.AwaitableGetClusterResult:
        """A cluster that exists."""
        return aws.eks.get_cluster(name=name, opts=self._asked)
