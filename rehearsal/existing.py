"""What a stack names that exists already, a network or a cluster, so that it can be planned without the account.

Pure. The stack file has the names; all else is made up: a network with a block of 10.0.0.0/16, its subnets dealt to the
zones of the region in turn, those first that SKUs ask for. Nothing of it is the stack's own, so nothing of it is ever
counted, changed or deleted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from fleet import names
from rehearsal.account import Account, Maker, Thing
from rehearsal.kinds.cluster import CLUSTER
from rehearsal.kinds.network import SECURITY_GROUP, SUBNET, VPC, zones

BLOCK: Final = "10.0.0.0/16"
NOBODY: Final = "https://127.0.0.1:9"
"""Where a plan's cluster answers: nowhere, and at once (port 9, discard). A name would be looked up in the DNS."""
SUBNET_BITS: Final = 5
"""32 subnets: a stack names at most 16 private and 16 public ones."""

Config = Mapping[str, Any]
"""A stack file's `config`: Pulumi's keys, `<namespace>:<name>`."""


def play(account: Account, config: Config, endpoint: str = "", authority: str = "") -> list[str]:
    """Puts into the account what the stack names; returns what was made up, a line each.

    `endpoint` and `authority` (PEM in base64) are those of the machine that plays the cluster, where one does.
    Settings of another form are none of this function's business: the program refuses them.
    """
    cluster = config.get(f"{names.CONFIG_NAMESPACE}:cluster")
    if not isinstance(cluster, Mapping) or not isinstance(cluster.get("region"), str):
        return []
    region, network = cluster["region"], cluster.get("network")
    if cluster.get("source") == "eks_existing" and isinstance(cluster.get("name"), str):
        return _cluster(account, cluster["name"], region, endpoint, authority)
    if cluster.get("source") == "eks" and isinstance(network, Mapping) and isinstance(network.get("vpc_id"), str):
        return _network(account, network, _zones_asked_for(config, region))
    return []


def _zones_asked_for(config: Config, region: str) -> list[str]:
    skus = config.get(f"{names.CONFIG_NAMESPACE}:skus")
    instances = [sku.get("instance") for sku in skus or () if isinstance(sku, Mapping)]
    asked = [one.get("zone") for one in instances if isinstance(one, Mapping)]
    here = zones(region)
    wanted = [zone for zone in here if zone in asked]
    return [*wanted, *(zone for zone in here if zone not in wanted)]


def _network(account: Account, network: Mapping[str, Any], order: list[str]) -> list[str]:
    vpc = str(network["vpc_id"])
    _put(account, VPC, vpc, {"cidrBlock": BLOCK, "ownerId": account.number})
    blocks = ipaddress.IPv4Network(BLOCK).subnets(prefixlen_diff=SUBNET_BITS)
    lists = [network.get(kind) for kind in ("private_subnet_ids", "public_subnet_ids")]
    said = []
    for subnets in lists:
        ids = list(dict.fromkeys(map(str, subnets))) if isinstance(subnets, list) else []
        for number, (subnet, block) in enumerate(zip(ids, blocks, strict=False)):
            zone = order[number % len(order)]
            _put(
                account,
                SUBNET,
                subnet,
                {"vpcId": vpc, "cidrBlock": str(block), "availabilityZone": zone, "ownerId": account.number},
            )
            said.append(f"{subnet} in {zone}")
    return [f"network {vpc} is played, with {', '.join(said) or 'no subnets'}: the zones are made up"]


def _cluster(account: Account, name: str, region: str, endpoint: str, authority: str) -> list[str]:
    maker = Maker(account, region, 0)
    vpc, group = maker.id("vpc"), maker.id("sg", "cluster")
    subnets = [maker.id("subnet", zone) for zone in zones(region)[:2]]
    _network(account, {"vpc_id": vpc, "private_subnet_ids": subnets}, zones(region))
    _put(account, SECURITY_GROUP, group, {"name": f"eks-cluster-sg-{name}", "vpcId": vpc})
    made = {
        "name": name,
        "arn": maker.arn("eks", f"cluster/{name}"),
        "endpoint": endpoint or NOBODY,
        "certificateAuthority": {"data": authority},
        "status": "ACTIVE",
        "accessConfig": {"authenticationMode": "API"},
        "vpcConfig": {"subnetIds": subnets, "vpcId": vpc, "clusterSecurityGroupId": group},
    }
    _put(account, CLUSTER, name, made)
    return [f"cluster {name} in {region} is played: its network, its subnets in two zones and its nodes are made up"]


def _put(account: Account, kind: str, identity: str, outputs: Mapping[str, Any]) -> None:
    made = Thing(kind, identity, "", {}, {"id": identity, **outputs})
    account.things[made.key] = made
