"""The network that the cluster is in.

Registers, unless an existing VPC is named:
- VPC and internet gateway
- per zone: private subnet for nodes and pods, public subnet, route table of the private one
- NAT gateways with their addresses: one, or one per zone; routes to them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from fleet import aws_names, aws_network
from fleet.faults import Refused
from fleet.schema import ExistingNetwork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from components.aws_account import AwsAccount
    from fleet.aws_network import SubnetPlan
    from fleet.schema import NewNetwork

ANYWHERE = "0.0.0.0/0"
"""Where a default route leads; it lets nobody in."""


@dataclass(frozen=True, slots=True)
class NetworkArgs:
    """A network to make or to adopt, and what its parts are named after."""

    network: NewNetwork | ExistingNetwork
    cluster: str
    account: AwsAccount


class Network(pulumi.ComponentResource):
    """Subnets for nodes, with a way out, and nobody's way in."""

    vpc_id: pulumi.Input[str]
    private_subnet_ids: list[pulumi.Input[str]]
    public_subnet_ids: list[pulumi.Input[str]]
    zones: list[str]
    """Of the private subnets, in their order."""
    ready: list[pulumi.Resource]
    """Without these a node cannot reach what it needs to join."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:cluster:Network", name, None, opts)
        self._args = args
        self.ready = []
        if isinstance(args.network, ExistingNetwork):
            self._adopt(args.network)
        else:
            self._make(name, args.network)
        self.register_outputs({})

    def in_zone(self, zone: str | None) -> list[pulumi.Input[str]]:
        """The private subnets of a zone, or all."""
        if zone is None:
            return self.private_subnet_ids
        try:
            return aws_network.in_zone(self.private_subnet_ids, self.zones, zone)
        except ValueError as error:
            raise pulumi.RunError(f"skus[].instance.zone: {error}") from error

    def one_per_zone(self) -> dict[str, pulumi.Input[str]]:
        """A private subnet by zone."""
        return aws_network.one_per_zone(self.private_subnet_ids, self.zones)

    def _adopt(self, network: ExistingNetwork) -> None:
        self.vpc_id = network.vpc_id
        self.private_subnet_ids = list(network.private_subnet_ids)
        self.public_subnet_ids = list(network.public_subnet_ids)
        found = {
            **self._args.account.subnets(network.private_subnet_ids, "cluster.network.private_subnet_ids"),
            **self._args.account.subnets(network.public_subnet_ids, "cluster.network.public_subnet_ids"),
        }
        faults = list(aws_network.unfit(network, found))
        if faults:
            raise pulumi.RunError(str(Refused(faults)))
        self.zones = [found[subnet].zone for subnet in network.private_subnet_ids]

    def _make(self, name: str, network: NewNetwork) -> None:
        self.zones = self._zones(network)
        layout = aws_network.layout(network.vpc_cidr, len(self.zones))
        vpc = aws.ec2.Vpc(
            name,
            cidr_block=network.vpc_cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self._tags(),
            opts=self._child(),
        )
        gateway = aws.ec2.InternetGateway(name, vpc_id=vpc.id, tags=self._tags(), opts=self._child())
        public = self._subnets(vpc, layout.public)
        private = self._subnets(vpc, layout.private)
        self._open(name, vpc, gateway, public)
        self._route_out(vpc, private, self._translators(public, 1 if network.nat == "single" else len(public)))
        self.vpc_id = vpc.id
        self.private_subnet_ids = [subnet.id for subnet in private]
        self.public_subnet_ids = [subnet.id for subnet in public]

    def _zones(self, network: NewNetwork) -> list[str]:
        if not isinstance(network.zones, int):
            return list(network.zones)
        try:
            return aws_network.first_zones(self._args.account.available_zones(), network.zones)
        except ValueError as error:
            raise pulumi.RunError(f"cluster.network.zones: {error}") from error

    def _child(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.account.provider, depends_on=list(depends_on))

    def _tags(self, part: str = "") -> dict[str, str]:
        return aws_names.named(f"{self._args.cluster}-{part}" if part else self._args.cluster)

    def _subnets(self, vpc: aws.ec2.Vpc, plans: Sequence[SubnetPlan]) -> list[aws.ec2.Subnet]:
        return [
            aws.ec2.Subnet(
                plan.name,
                vpc_id=vpc.id,
                cidr_block=plan.cidr,
                availability_zone=self.zones[plan.zone],
                map_public_ip_on_launch=False,
                tags={**self._tags(plan.name), **aws_network.ELB_TAGS[plan.kind]},
                opts=self._child(),
            )
            for plan in plans
        ]

    def _open(
        self, name: str, vpc: aws.ec2.Vpc, gateway: aws.ec2.InternetGateway, public: list[aws.ec2.Subnet]
    ) -> None:
        """Public subnets reach the internet through the gateway."""
        table = aws.ec2.RouteTable(f"{name}-public", vpc_id=vpc.id, tags=self._tags("public"), opts=self._child())
        self.ready.append(
            aws.ec2.Route(
                f"{name}-public",
                route_table_id=table.id,
                destination_cidr_block=ANYWHERE,
                gateway_id=gateway.id,
                opts=self._child(),
            )
        )
        self._associate(public, [table] * len(public), "public")

    def _translators(self, public: list[aws.ec2.Subnet], count: int) -> list[aws.ec2.NatGateway]:
        """What private subnets reach the internet through. A gateway answers only once its subnet has its route."""
        routes = list(self.ready)
        translators = []
        for zone in range(count):
            label = f"nat-{zone}"
            address = aws.ec2.Eip(label, domain="vpc", tags=self._tags(label), opts=self._child(*routes))
            translators.append(
                aws.ec2.NatGateway(
                    label,
                    allocation_id=address.id,
                    subnet_id=public[zone].id,
                    tags=self._tags(label),
                    opts=self._child(*routes),
                )
            )
        return translators

    def _route_out(
        self, vpc: aws.ec2.Vpc, private: list[aws.ec2.Subnet], translators: list[aws.ec2.NatGateway]
    ) -> None:
        tables = []
        for zone, _ in enumerate(private):
            label = f"private-{zone}"
            table = aws.ec2.RouteTable(label, vpc_id=vpc.id, tags=self._tags(label), opts=self._child())
            tables.append(table)
            self.ready.append(
                aws.ec2.Route(
                    label,
                    route_table_id=table.id,
                    destination_cidr_block=ANYWHERE,
                    nat_gateway_id=translators[min(zone, len(translators) - 1)].id,
                    opts=self._child(),
                )
            )
        self._associate(private, tables, "private")

    def _associate(self, subnets: list[aws.ec2.Subnet], tables: list[aws.ec2.RouteTable], kind: str) -> None:
        for zone, (subnet, table) in enumerate(zip(subnets, tables, strict=True)):
            self.ready.append(
                aws.ec2.RouteTableAssociation(
                    f"{kind}-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=self._child()
                )
            )
