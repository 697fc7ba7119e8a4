"""VPC, subnets, routes, gateways, security groups."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rehearsal.account import (
    UNKNOWN,
    Account,
    Kind,
    Made,
    Maker,
    Part,
    Reference,
    Thing,
    Values,
    first,
    given,
    values_at,
)

VPC = "aws:ec2/vpc:Vpc"
SUBNET = "aws:ec2/subnet:Subnet"
INTERNET_GATEWAY = "aws:ec2/internetGateway:InternetGateway"
NAT_GATEWAY = "aws:ec2/natGateway:NatGateway"
EIP = "aws:ec2/eip:Eip"
ROUTE_TABLE = "aws:ec2/routeTable:RouteTable"
ROUTE = "aws:ec2/route:Route"
ROUTE_TABLE_ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
SECURITY_GROUP_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS_RULE = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
VPC_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
DEFAULT_SECURITY_GROUP = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"

ZONES = {"a": 1, "b": 2, "c": 4, "d": 3}
"""Letters and numbers of the zones that a played region has. Which letter has which number differs by account; three
zones are left where the third is one that EKS puts no control plane into."""
_DIRECTIONS = {
    "north": "n", "northeast": "ne", "east": "e", "southeast": "se", "south": "s", "southwest": "sw", "west": "w",
    "northwest": "nw", "central": "c", "gov": "g",
}  # fmt: skip
VPC_PREFIXES = (16, 28)
"""Smallest and largest prefix of a VPC and of a subnet (VPC User Guide, "VPC CIDR blocks")."""
RESERVED_ADDRESSES = 5
"""Of each subnet (VPC User Guide, "Subnet sizing for IPv4")."""


def zones(region: str) -> list[str]:
    return [f"{region}{letter}" for letter in ZONES]


def zone_id(zone: str) -> str:
    """The id of a zone, by AWS's pattern: eu-central-1a is euc1-az1. Which name has which id differs by account."""
    area, *directions, number = zone[:-1].split("-")
    return f"{area}{''.join(_DIRECTIONS.get(one, one) for one in directions)}{number}-az{ZONES[zone[-1]]}"


def vpc_of_subnets(account: Account, subnets: Iterable[object]) -> set[str]:
    found = (account.get(SUBNET, subnet) for subnet in subnets)
    return {str(one.outputs["vpcId"]) for one in found if one is not None}


def zones_of_subnets(account: Account, subnets: Iterable[object]) -> set[str]:
    found = (account.get(SUBNET, subnet) for subnet in subnets)
    return {str(one.outputs["availabilityZone"]) for one in found if one is not None}


def vpc_of_groups(account: Account, groups: Iterable[object]) -> set[str]:
    found = (account.get(SECURITY_GROUP, group) for group in groups)
    return {str(one.outputs["vpcId"]) for one in found if one is not None}


def _block(text: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(str(text)) if text is not None and text != UNKNOWN else None
    except ValueError:
        return None


def _cidr_rule(_account: Account, inputs: Values) -> Iterator[str]:
    text = inputs.get("cidrBlock")
    if text is None or text == UNKNOWN:
        return
    block = _block(text)
    if block is None:
        yield f"InvalidParameterValue: {text} is not a CIDR block whose host bits are zero"
    elif not VPC_PREFIXES[0] <= block.prefixlen <= VPC_PREFIXES[1]:
        yield f"InvalidVpc.Range: {text} is not between /{VPC_PREFIXES[0]} and /{VPC_PREFIXES[1]}"


def _vpc(maker: Maker, _inputs: Values) -> Made:
    vpc = maker.id("vpc")
    group = maker.id("sg", "default")
    outputs = {
        "arn": maker.arn("ec2", f"vpc/{vpc}"),
        "ownerId": maker.number,
        "defaultSecurityGroupId": group,
        "mainRouteTableId": maker.id("rtb", "main"),
        "defaultRouteTableId": maker.id("rtb", "main"),
        "defaultNetworkAclId": maker.id("acl", "default"),
        "dhcpOptionsId": maker.id("dopt"),
        "enableDnsSupport": True,
        "instanceTenancy": "default",
    }
    default = Part(SECURITY_GROUP, {"id": group, "name": "default", "vpcId": vpc})
    return Made(vpc, outputs | dict(_inputs), (default,))


def _subnet(maker: Maker, inputs: Values) -> Made:
    subnet = maker.id("subnet")
    zone = inputs.get("availabilityZone") or f"{maker.region}a"
    outputs = {
        "arn": maker.arn("ec2", f"subnet/{subnet}"),
        "ownerId": maker.number,
        "availabilityZone": zone,
        "availabilityZoneId": zone_id(str(zone)),
    }
    return Made(subnet, outputs)


def _subnet_rule(account: Account, inputs: Values) -> Iterator[str]:
    yield from _cidr_rule(account, inputs)
    block, vpc = _block(inputs.get("cidrBlock")), account.get(VPC, inputs.get("vpcId"))
    if block is None or vpc is None:
        return
    whole = _block(vpc.outputs.get("cidrBlock"))
    if whole is not None and not block.subnet_of(whole):
        yield f"InvalidSubnet.Range: {block} is not within the VPC's {whole}"
    for other in account.others(SUBNET):
        if other.outputs.get("vpcId") != vpc.id:
            continue
        beside = _block(other.outputs.get("cidrBlock"))
        if beside is not None and beside.overlaps(block):
            yield f"InvalidSubnet.Conflict: {block} overlaps {beside} of {other.id}"


def _zone_rule(_account: Account, inputs: Values) -> Iterator[str]:
    zone = inputs.get("availabilityZone")
    if isinstance(zone, str) and zone != UNKNOWN and zone[-1] not in ZONES:
        yield f"InvalidParameterValue: availability zone {zone} is not available to this account"


def _gateway(maker: Maker, _inputs: Values) -> Made:
    gateway = maker.id("igw")
    return Made(gateway, {"arn": maker.arn("ec2", f"internet-gateway/{gateway}"), "ownerId": maker.number})


def _one_gateway(account: Account, inputs: Values) -> Iterator[str]:
    for other in account.others(INTERNET_GATEWAY):
        if inputs.get("vpcId") == other.outputs.get("vpcId"):
            yield f"InvalidParameterValue: {inputs['vpcId']} already has an internet gateway attached"


def _no_mapped_address(account: Account, thing: Thing) -> Iterator[str]:
    """A gateway cannot be detached from a VPC in which public addresses are mapped."""
    for other in account.of(NAT_GATEWAY):
        if given(other.inputs, "allocationId") and vpc_of_subnets(account, [other.inputs.get("subnetId")]) == {
            thing.outputs.get("vpcId")
        }:
            yield f"DependencyViolation: the network has a mapped public address: NAT gateway {other.id}"


def _address(maker: Maker, _inputs: Values) -> Made:
    allocation = maker.id("eipalloc")
    number = int(maker.hexes(4), 16)
    public = f"203.0.113.{number % 254 + 1}"
    outputs = {
        "allocationId": allocation,
        "arn": maker.arn("ec2", f"elastic-ip/{allocation}"),
        "publicIp": public,
        "publicDns": f"ec2-{public.replace('.', '-')}.{maker.region}.compute.amazonaws.com",
        "domain": "vpc",
    }
    return Made(allocation, outputs)


def _nat(maker: Maker, _inputs: Values) -> Made:
    return Made(maker.id("nat"), {"networkInterfaceId": maker.id("eni"), "privateIp": "10.0.0.4"})


def _nat_rule(account: Account, inputs: Values) -> Iterator[str]:
    public = inputs.get("connectivityType", "public") == "public"
    if public and not given(inputs, "allocationId"):
        yield "InvalidParameterCombination: a public NAT gateway needs an allocationId"
    if not public and given(inputs, "allocationId"):
        yield "InvalidParameterCombination: a private NAT gateway takes no allocationId"
    vpcs = vpc_of_subnets(account, values_at(inputs, "subnetId"))
    attached = {one.outputs.get("vpcId") for one in account.of(INTERNET_GATEWAY)}
    if public and vpcs and not vpcs <= attached:
        yield f"Gateway.NotAttached: network {', '.join(vpcs)} has no internet gateway attached"
    for other in account.others(NAT_GATEWAY):
        if first(other.inputs, "allocationId") in values_at(inputs, "allocationId"):
            yield f"Resource.AlreadyAssociated: {inputs['allocationId']} is used by {other.id}"


def _table(maker: Maker, _inputs: Values) -> Made:
    table = maker.id("rtb")
    return Made(table, {"arn": maker.arn("ec2", f"route-table/{table}"), "ownerId": maker.number})


_DESTINATIONS = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
_TARGETS = (
    "gatewayId",
    "natGatewayId",
    "egressOnlyGatewayId",
    "networkInterfaceId",
    "transitGatewayId",
    "vpcEndpointId",
    "vpcPeeringConnectionId",
    "carrierGatewayId",
    "coreNetworkArn",
    "localGatewayId",
)


def _route(maker: Maker, inputs: Values) -> Made:
    target = next((str(inputs[name]) for name in _DESTINATIONS if given(inputs, name)), "")
    identity = f"r-{inputs['routeTableId']}{maker.hexes(10, target)}"
    return Made(
        identity, {"origin": "CreateRoute", "state": "active"}, part_of=f"{ROUTE_TABLE}|{inputs['routeTableId']}"
    )


def _route_rule(account: Account, inputs: Values) -> Iterator[str]:
    for other in account.others(ROUTE):
        same_table = other.inputs.get("routeTableId") == inputs.get("routeTableId")
        same_target = [other.inputs.get(name) for name in _DESTINATIONS] == [inputs.get(name) for name in _DESTINATIONS]
        if same_table and same_target:
            yield f"RouteAlreadyExists: the table has a route to {first(inputs, 'destinationCidrBlock')}"
    table = account.get(ROUTE_TABLE, inputs.get("routeTableId"))
    gateway = account.get(INTERNET_GATEWAY, inputs.get("gatewayId"))
    if table and gateway and table.outputs.get("vpcId") != gateway.outputs.get("vpcId"):
        yield f"InvalidParameterValue: {gateway.id} and {table.id} belong to different networks"


def _inline_routes_rule(account: Account, inputs: Values) -> Iterator[str]:
    for route in inputs.get("routes") or ():
        if not isinstance(route, Mapping):
            continue
        for name, kind in (("gatewayId", INTERNET_GATEWAY), ("natGatewayId", NAT_GATEWAY)):
            for value in values_at(route, name):
                if account.get(kind, value) is None:
                    yield f"InvalidGatewayID.NotFound: {value} does not exist"


def _association(maker: Maker, inputs: Values) -> Made:
    return Made(maker.id("rtbassoc"), {}, part_of=f"{SUBNET}|{inputs.get('subnetId')}")


def _association_rule(account: Account, inputs: Values) -> Iterator[str]:
    for other in account.others(ROUTE_TABLE_ASSOCIATION):
        if first(other.inputs, "subnetId") in values_at(inputs, "subnetId"):
            yield f"Resource.AlreadyAssociated: {inputs['subnetId']} is associated with {other.inputs['routeTableId']}"
    table = account.get(ROUTE_TABLE, inputs.get("routeTableId"))
    vpcs = vpc_of_subnets(account, values_at(inputs, "subnetId"))
    if table and vpcs and vpcs != {table.outputs.get("vpcId")}:
        yield f"InvalidParameterValue: {table.id} and {inputs['subnetId']} belong to different networks"


def _group(maker: Maker, inputs: Values) -> Made:
    group = maker.id("sg")
    outputs = {
        "arn": maker.arn("ec2", f"security-group/{group}"),
        "ownerId": maker.number,
        "description": inputs.get("description", "Managed by Pulumi"),
    }
    return Made(group, outputs)


def _group_rule(account: Account, inputs: Values) -> Iterator[str]:
    name = inputs.get("name")
    if isinstance(name, str) and name.startswith("sg-"):
        yield f"InvalidParameterValue: a group's name cannot start with sg-: {name}"
    for rule in [*(inputs.get("ingress") or ()), *(inputs.get("egress") or ())]:
        if isinstance(rule, Mapping):
            yield from _ports(rule, "protocol")
            yield from _blocks(rule, ("cidrBlocks",))
            for group in values_at(rule, "securityGroups"):
                if account.get(SECURITY_GROUP, group) is None:
                    yield f"InvalidGroup.NotFound: {group} does not exist"


def _blocks(rule: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for text in values_at(rule, name):
            if _block(text) is None:
                yield f"InvalidParameterValue: {text} is not a CIDR block whose host bits are zero"


def _ports(rule: Mapping[str, Any], protocol: str) -> Iterator[str]:
    low, high = rule.get("fromPort"), rule.get("toPort")
    if UNKNOWN in (low, high, rule.get(protocol)):
        return
    everything = rule.get(protocol) in ("-1", "all")
    if everything and (low, high) not in ((0, 0), (None, None), (-1, -1)):
        yield f"InvalidParameterValue: protocol {rule.get(protocol)} takes no ports, got {low} to {high}"
    if rule.get(protocol) in ("tcp", "udp", "6", "17") and not (
        isinstance(low, int) and isinstance(high, int) and 0 <= low <= high <= 65535  # noqa: PLR2004 - the last port
    ):
        yield f"InvalidParameterValue: ports {low} to {high}"


def _group_rule_thing(maker: Maker, inputs: Values) -> Made:
    return Made(
        f"sgrule-{int(maker.hexes(8), 16)}",
        {"securityGroupRuleId": maker.id("sgr")},
        part_of=f"{SECURITY_GROUP}|{inputs['securityGroupId']}",
    )


def _modern_rule_thing(maker: Maker, inputs: Values) -> Made:
    rule = maker.id("sgr")
    outputs = {"securityGroupRuleId": rule, "arn": maker.arn("ec2", f"security-group-rule/{rule}")}
    return Made(rule, outputs, part_of=f"{SECURITY_GROUP}|{inputs['securityGroupId']}")


_SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")


def _rule_rule(account: Account, inputs: Values) -> Iterator[str]:
    yield from _ports(inputs, "ipProtocol" if "ipProtocol" in inputs else "protocol")
    yield from _blocks(inputs, ("cidrIpv4", "cidrBlocks"))
    others = [one for kind in (SECURITY_GROUP_RULE, INGRESS_RULE, EGRESS_RULE) for one in account.others(kind)]
    wanted = _without_words(inputs)
    if any(isinstance(value, str) and value == UNKNOWN for value in wanted.values()):
        return
    for other in others:
        if _without_words(other.inputs) == wanted and same_direction(other, inputs):
            yield f"InvalidPermission.Duplicate: the group has this rule: {other.id}"
    own = vpc_of_groups(account, values_at(inputs, "securityGroupId"))
    named = vpc_of_groups(
        account, [*values_at(inputs, "referencedSecurityGroupId"), *values_at(inputs, "sourceSecurityGroupId")]
    )
    if own and named and own != named:
        yield "InvalidGroup.NotFound: the groups of a rule belong to different networks"


def same_direction(other: Thing, inputs: Values) -> bool:
    """Rules of the old type say their direction; of the new ones each type is a direction of its own."""
    return bool("type" in inputs) == bool("type" in other.inputs)


def _without_words(inputs: Values) -> dict[str, Any]:
    return {
        name: value
        for name, value in inputs.items()
        if name not in ("description", "tags") and not name.startswith("__")
    }


def _endpoint(maker: Maker, _inputs: Values) -> Made:
    endpoint = maker.id("vpce")
    return Made(endpoint, {"arn": maker.arn("ec2", f"vpc-endpoint/{endpoint}"), "state": "available"})


def _endpoint_rule(account: Account, inputs: Values) -> Iterator[str]:
    gateway = inputs.get("vpcEndpointType", "Gateway") == "Gateway"
    if gateway and (given(inputs, "subnetIds") or given(inputs, "securityGroupIds")):
        yield "InvalidParameter: a gateway endpoint takes route tables, not subnets or security groups"
    if not gateway and given(inputs, "routeTableIds"):
        yield "InvalidParameter: an interface endpoint takes subnets, not route tables"
    vpcs = vpc_of_subnets(account, values_at(inputs, "subnetIds")) | vpc_of_groups(
        account, values_at(inputs, "securityGroupIds")
    )
    if vpcs and vpcs != {inputs.get("vpcId")}:
        yield f"InvalidParameter: subnets and groups are not all in {inputs.get('vpcId')}"


_VPC = Reference("vpcId", VPC, code="InvalidVpcID.NotFound")
_GROUP = Reference("securityGroupId", SECURITY_GROUP, holds=False, code="InvalidGroup.NotFound")

KINDS = (
    Kind(
        VPC,
        _vpc,
        in_use="DependencyViolation",
        immutable=frozenset({"cidrBlock", "instanceTenancy", "ipv4IpamPoolId", "ipv4NetmaskLength"}),
        allowed={"instanceTenancy": frozenset({"default", "dedicated"})},
        exactly_one=(("cidrBlock", "ipv4IpamPoolId"),),
        rules=(_cidr_rule,),
    ),
    Kind(
        SUBNET,
        _subnet,
        in_use="DependencyViolation",
        immutable=frozenset(
            {"vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "outpostArn", "ipv6Native"}
        ),
        references=(_VPC,),
        at_most_one=(("availabilityZone", "availabilityZoneId"),),
        rules=(_zone_rule, _subnet_rule),
    ),
    Kind(
        INTERNET_GATEWAY,
        _gateway,
        in_use="DependencyViolation",
        references=(_VPC,),
        rules=(_one_gateway,),
        delete_rules=(_no_mapped_address,),
    ),
    Kind(
        EIP,
        _address,
        in_use="AuthFailure",
        immutable=frozenset({"domain", "networkBorderGroup", "publicIpv4Pool", "address"}),
        allowed={"domain": frozenset({"vpc", "standard"})},
    ),
    Kind(
        NAT_GATEWAY,
        _nat,
        in_use="DependencyViolation",
        immutable=frozenset({"allocationId", "subnetId", "connectivityType", "privateIp"}),
        references=(
            Reference("subnetId", SUBNET, code="InvalidSubnetID.NotFound"),
            Reference("allocationId", EIP, code="InvalidAllocationID.NotFound"),
        ),
        allowed={"connectivityType": frozenset({"public", "private"})},
        rules=(_nat_rule,),
    ),
    Kind(
        ROUTE_TABLE,
        _table,
        in_use="DependencyViolation",
        immutable=frozenset({"vpcId"}),
        references=(_VPC,),
        rules=(_inline_routes_rule,),
    ),
    Kind(
        ROUTE,
        _route,
        immutable=frozenset({"routeTableId", *_DESTINATIONS}),
        references=(
            Reference("routeTableId", ROUTE_TABLE, holds=False, code="InvalidRouteTableID.NotFound"),
            Reference("natGatewayId", NAT_GATEWAY, holds=False, code="InvalidNatGatewayID.NotFound"),
            Reference("gatewayId", INTERNET_GATEWAY, holds=False, code="InvalidGatewayID.NotFound", within="igw-"),
        ),
        exactly_one=(_DESTINATIONS, _TARGETS),
        rules=(_route_rule,),
    ),
    Kind(
        ROUTE_TABLE_ASSOCIATION,
        _association,
        immutable=frozenset({"subnetId", "gatewayId"}),
        references=(
            Reference("routeTableId", ROUTE_TABLE, code="InvalidRouteTableID.NotFound"),
            Reference("subnetId", SUBNET, holds=False, code="InvalidSubnetID.NotFound"),
        ),
        exactly_one=(("subnetId", "gatewayId"),),
        rules=(_association_rule,),
    ),
    Kind(
        SECURITY_GROUP,
        _group,
        name="name",
        scope=("vpcId", "name"),
        taken="InvalidGroup.Duplicate",
        in_use="DependencyViolation",
        immutable=frozenset({"name", "namePrefix", "description", "vpcId"}),
        references=(_VPC,),
        at_most_one=(("name", "namePrefix"),),
        rules=(_group_rule,),
    ),
    Kind(
        SECURITY_GROUP_RULE,
        _group_rule_thing,
        immutable=frozenset(
            {
                "securityGroupId",
                "type",
                "fromPort",
                "toPort",
                "protocol",
                "cidrBlocks",
                "ipv6CidrBlocks",
                "prefixListIds",
                "self",
                "sourceSecurityGroupId",
            }
        ),
        references=(
            _GROUP,
            Reference("sourceSecurityGroupId", SECURITY_GROUP, code="InvalidGroup.NotFound"),
        ),
        allowed={"type": frozenset({"ingress", "egress"})},
        exactly_one=(("cidrBlocks", "sourceSecurityGroupId", "self", "ipv6CidrBlocks", "prefixListIds"),),
        rules=(_rule_rule,),
    ),
    *(
        Kind(
            token,
            _modern_rule_thing,
            immutable=frozenset({"securityGroupId"}),
            references=(
                _GROUP,
                Reference("referencedSecurityGroupId", SECURITY_GROUP, code="InvalidGroup.NotFound"),
            ),
            exactly_one=(_SOURCES,),
            rules=(_rule_rule,),
        )
        for token in (INGRESS_RULE, EGRESS_RULE)
    ),
    Kind(
        VPC_ENDPOINT,
        _endpoint,
        in_use="DependencyViolation",
        immutable=frozenset({"vpcId", "serviceName", "vpcEndpointType", "serviceRegion"}),
        references=(
            _VPC,
            Reference("subnetIds", SUBNET, code="InvalidSubnetID.NotFound"),
            Reference("securityGroupIds", SECURITY_GROUP, code="InvalidGroup.NotFound"),
            Reference("routeTableIds", ROUTE_TABLE, holds=False, code="InvalidRouteTableID.NotFound"),
        ),
        allowed={"vpcEndpointType": frozenset({"Gateway", "Interface", "GatewayLoadBalancer"})},
        rules=(_endpoint_rule,),
    ),
    Kind(
        DEFAULT_SECURITY_GROUP,
        lambda maker, inputs: Made(
            maker.id("sg", str(inputs.get("vpcId"))), {"name": "default"}, part_of=f"{VPC}|{inputs.get('vpcId')}"
        ),
        scope=("vpcId",),
        immutable=frozenset({"vpcId"}),
        references=(Reference("vpcId", VPC, holds=False, code="InvalidVpcID.NotFound"),),
        rules=(_group_rule,),
    ),
)
