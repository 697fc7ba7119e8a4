"""The functions of the stand-in `aws`: what a program may ask an account for. Pure; any other is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rehearsal.account import Account, ApiError, Thing, Values, first
from rehearsal.kinds.cluster import ADDON, CLUSTER
from rehearsal.kinds.identity import ROLE
from rehearsal.kinds.network import SECURITY_GROUP, SUBNET, VPC, zone_id, zones

PARTITION = {"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"}
Function = Callable[[Account, str, Values], dict[str, Any]]


def _availability_zones(_account: Account, region: str, arguments: Values) -> dict[str, Any]:
    ids = {zone: zone_id(zone) for zone in zones(region)}
    names = [zone for zone in ids if ids[zone] not in (arguments.get("excludeZoneIds") or ())]
    return {
        "id": region,
        "names": names,
        "zoneIds": [ids[zone] for zone in names],
        "groupNames": [region],
        "region": region,
    }


def _caller(account: Account, _region: str, _arguments: Values) -> dict[str, Any]:
    arn = f"arn:aws:iam::{account.number}:user/rehearsal"
    return {"accountId": account.number, "arn": arn, "id": account.number, "userId": "AIDAREHEARSAL"}


def _region(_account: Account, region: str, _arguments: Values) -> dict[str, Any]:
    return {
        "id": region,
        "name": region,
        "region": region,
        "description": region,
        "endpoint": f"ec2.{region}.amazonaws.com",
    }


def _partition(_account: Account, _region: str, _arguments: Values) -> dict[str, Any]:
    return dict(PARTITION)


def _one(account: Account, token: str, by: str, value: object) -> Thing:
    found = account.find(token, by, value)
    if found is None:
        raise ApiError(account.kinds[token].missing, f"{token} {value} does not exist")
    return found


def _cluster(account: Account, region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, CLUSTER, "name", arguments.get("name"))
    outputs = dict(thing.outputs)
    authority = outputs.pop("certificateAuthority", {})
    return {
        **outputs,
        "id": thing.id,
        "region": region,
        "certificateAuthorities": [authority],
        "vpcConfig": {
            "endpointPrivateAccess": False,
            "endpointPublicAccess": True,
            "publicAccessCidrs": [],
            "securityGroupIds": [],
            **outputs["vpcConfig"],
        },
        "tags": outputs.get("tags", {}),
    }


def _cluster_auth(account: Account, region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, CLUSTER, "name", arguments.get("name"))
    return {"id": thing.id, "name": thing.id, "region": region, "token": "k8s-aws-v1.rehearsal"}


def _vpc(account: Account, _region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, VPC, "id", arguments.get("id"))
    return {**thing.outputs, "id": thing.id}


def _subnet(account: Account, _region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, SUBNET, "id", arguments.get("id"))
    return {**thing.outputs, "id": thing.id}


def _subnets(account: Account, region: str, arguments: Values) -> dict[str, Any]:
    wanted = {first(one, "name"): set(one.get("values", ())) for one in arguments.get("filters") or ()}
    unknown = set(wanted) - {"vpc-id", "subnet-id", "availability-zone"}
    if unknown:
        raise ApiError("InvalidParameterValue", f"the stand-in has no filter {', '.join(sorted(map(str, unknown)))}")
    fields = {"vpc-id": "vpcId", "subnet-id": "id", "availability-zone": "availabilityZone"}
    ids = [
        thing.id
        for thing in account.of(SUBNET)
        if all({"id": thing.id, **thing.outputs}.get(fields[str(name)]) in values for name, values in wanted.items())
    ]
    return {"id": region, "ids": ids, "region": region}


def _group(account: Account, _region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, SECURITY_GROUP, "id", arguments.get("id"))
    return {**thing.outputs, "id": thing.id}


def _role(account: Account, _region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, ROLE, "name", arguments.get("name"))
    return {**thing.outputs, "id": thing.id}


def _addon(account: Account, _region: str, arguments: Values) -> dict[str, Any]:
    thing = _one(account, ADDON, "id", f"{arguments.get('clusterName')}:{arguments.get('addonName')}")
    return {**thing.outputs, "id": thing.id}


FUNCTIONS: Mapping[str, Function] = {
    "aws:index/getAvailabilityZones:getAvailabilityZones": _availability_zones,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getPartition:getPartition": _partition,
    "aws:eks/getCluster:getCluster": _cluster,
    "aws:eks/getClusterAuth:getClusterAuth": _cluster_auth,
    "aws:eks/getAddon:getAddon": _addon,
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getSubnets:getSubnets": _subnets,
    "aws:ec2/getSecurityGroup:getSecurityGroup": _group,
    "aws:iam/getRole:getRole": _role,
}


def call(account: Account, token: str, region: str, arguments: Values) -> dict[str, Any]:
    """Raises ApiError for what does not exist, LookupError for a function that the stand-in does not have."""
    if token not in FUNCTIONS:
        raise LookupError(f"the stand-in aws has no function {token}; add it to rehearsal/functions.py")
    return FUNCTIONS[token](account, region, arguments)
