"""The AWS account and region that the stack is in.

Registers:
- the stack's own AWS provider, which every AWS resource uses, and which tags all of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from fleet import aws_names, aws_network
from fleet.faults import Fault, Refused, shown

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        """The zones of the region that a cluster may be in, without those one must opt into."""
        found = aws.get_availability_zones(
            state="available",
            exclude_zone_ids=list(aws_network.ZONES_WITHOUT_EKS),
            filters=[{"name": "opt-in-status", "values": ["opt-in-not-required"]}],
            opts=self._asked,
        )
        return list(found.names)

    def subnets(self, subnet_ids: Sequence[str], setting: str) -> dict[str, aws_network.Found]:
        """Subnets that exist, by their ids; ends the program, naming the setting, where AWS does not tell of one."""
        found, faults = {}, []
        for each in subnet_ids:
            try:
                told = aws.ec2.get_subnet(id=each, opts=self._asked)
            except Exception as error:  # noqa: BLE001 - an invoke raises nothing narrower
                faults.append(_not_found(setting, each, error, "a subnet", "aws ec2 describe-subnets"))
            else:
                found[each] = aws_network.Found(told.vpc_id, told.availability_zone)
        if faults:
            raise pulumi.RunError(str(Refused(faults)))
        return found

    def cluster(self, name: str) -> aws.eks.AwaitableGetClusterResult:
        """A cluster that exists; ends the program where AWS does not tell of it."""
        try:
            return aws.eks.get_cluster(name=name, opts=self._asked)
        except Exception as error:
            fault = _not_found("cluster.name", name, error, "a cluster of EKS", "aws eks list-clusters")
            raise pulumi.RunError(str(Refused([fault]))) from error


def _not_found(setting: str, got: str, error: Exception, what: str, command: str) -> Fault:
    return Fault(
        setting,
        shown(got),
        f"{what} that AWS tells of, with these credentials, in the stack's region",
        str(error).rpartition("returned an error: ")[2].strip(),
        f"correct the setting, cluster.region or the credentials; `{command}` lists what there is",
    )
