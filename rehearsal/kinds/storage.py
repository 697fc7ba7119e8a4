"""EFS: file systems, mount targets, access points, policies, backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rehearsal import policies
from rehearsal.account import UNKNOWN, Account, Kind, Made, Maker, Reference, Thing, Values, first, given, values_at
from rehearsal.kinds.identity import KEY
from rehearsal.kinds.network import SECURITY_GROUP, SUBNET, vpc_of_groups, vpc_of_subnets, zones_of_subnets

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
MOUNT_TARGET = "aws:efs/mountTarget:MountTarget"
ACCESS_POINT = "aws:efs/accessPoint:AccessPoint"
FILE_SYSTEM_POLICY = "aws:efs/fileSystemPolicy:FileSystemPolicy"
BACKUP_POLICY = "aws:efs/backupPolicy:BackupPolicy"

_DAYS = ("1_DAY", *(f"{days}_DAYS" for days in (7, 14, 30, 60, 90, 180, 270, 365)))
TRANSITIONS = frozenset(f"AFTER_{days}" for days in _DAYS)
"""TransitionToIARules and TransitionToArchiveRules in botocore 1.44's model of EFS."""
PROVISIONED_MIBPS = (1, 3414)
"""EFS quotas: provisioned throughput per file system, the largest of any region."""
GROUPS_PER_MOUNT_TARGET = 5
"""EFS quotas: security groups for each mount target."""


def _file_system(maker: Maker, inputs: Values) -> Made:
    identity = maker.id("fs")
    outputs = {
        "arn": maker.arn("elasticfilesystem", f"file-system/{identity}"),
        "creationToken": inputs.get("creationToken", maker.uuid()),
        "dnsName": f"{identity}.efs.{maker.region}.amazonaws.com",
        "ownerId": maker.number,
        "name": str((inputs.get("tags") or {}).get("Name", "")),
        "numberOfMountTargets": 0,
        "performanceMode": inputs.get("performanceMode", "generalPurpose"),
        "throughputMode": inputs.get("throughputMode", "bursting"),
        "sizeInBytes": [],
    }
    return Made(identity, outputs)


def _file_system_rule(_account: Account, inputs: Values) -> Iterator[str]:
    mode, rate = inputs.get("throughputMode", "bursting"), inputs.get("provisionedThroughputInMibps")
    if UNKNOWN in (mode, rate):
        return
    if mode == "provisioned" and rate is None:
        yield "BadRequest: throughputMode provisioned needs provisionedThroughputInMibps"
    if mode != "provisioned" and rate is not None:
        yield f"BadRequest: provisionedThroughputInMibps with throughputMode {mode}"
    low, high = PROVISIONED_MIBPS
    if isinstance(rate, int | float) and not low <= rate <= high:
        yield f"ThroughputLimitExceeded: {rate} MiB/s is not between {low} and {high}"
    if mode == "elastic" and inputs.get("performanceMode") == "maxIO":
        yield "BadRequest: elastic throughput is only there with performanceMode generalPurpose"
    if given(inputs, "kmsKeyId") and inputs.get("encrypted") is not True:
        yield "BadRequest: kmsKeyId without encrypted"
    for policy in inputs.get("lifecyclePolicies") or ():
        if isinstance(policy, dict) and len([name for name in policy if not name.startswith("__")]) != 1:
            yield f"BadRequest: each of lifecyclePolicies holds one transition, got {sorted(policy)}"


def _mount_target(maker: Maker, inputs: Values) -> Made:
    identity, system = maker.id("fsmt"), str(inputs["fileSystemId"])
    outputs = {
        "dnsName": f"{system}.efs.{maker.region}.amazonaws.com",
        "mountTargetDnsName": f"{identity}.{system}.efs.{maker.region}.amazonaws.com",
        "fileSystemArn": maker.arn("elasticfilesystem", f"file-system/{system}"),
        "networkInterfaceId": maker.id("eni"),
        "ownerId": maker.number,
    }
    return Made(identity, outputs)


def _mount_target_rule(account: Account, inputs: Values) -> Iterator[str]:
    subnets = values_at(inputs, "subnetId")
    zone, vpc = zones_of_subnets(account, subnets), vpc_of_subnets(account, subnets)
    groups = values_at(inputs, "securityGroups")
    for other in account.others(MOUNT_TARGET):
        if other.inputs.get("fileSystemId") != inputs.get("fileSystemId"):
            continue
        beside = values_at(other.inputs, "subnetId")
        if zone & zones_of_subnets(account, beside):
            yield f"MountTargetConflict: {other.id} of this file system is in {', '.join(zone)} already"
        if vpc and vpc != vpc_of_subnets(account, beside):
            yield f"MountTargetConflict: {other.id} of this file system is in another network"
    if vpc and groups and vpc_of_groups(account, groups) - vpc:
        yield "SecurityGroupNotFound: security group and subnet belong to different networks"
    if len(groups) > GROUPS_PER_MOUNT_TARGET:
        yield f"SecurityGroupLimitExceeded: {len(groups)} groups; at most {GROUPS_PER_MOUNT_TARGET}"
    system = account.get(FILE_SYSTEM, inputs.get("fileSystemId"))
    only = first(system.inputs, "availabilityZoneName") if system else None
    if only and zone and zone != {only}:
        yield f"AvailabilityZonesMismatch: the file system lies in {only} only"


def _access_point(maker: Maker, inputs: Values) -> Made:
    identity, system = maker.id("fsap"), str(inputs["fileSystemId"])
    outputs = {
        "arn": maker.arn("elasticfilesystem", f"access-point/{identity}"),
        "fileSystemArn": maker.arn("elasticfilesystem", f"file-system/{system}"),
        "ownerId": maker.number,
    }
    return Made(identity, outputs, part_of=f"{FILE_SYSTEM}|{system}")


def _access_point_rule(_account: Account, inputs: Values) -> Iterator[str]:
    path = first(inputs, "rootDirectory.path")
    if path is not None and not str(path).startswith("/"):
        yield f"BadRequest: rootDirectory.path starts with /: {path}"
    permissions = first(inputs, "rootDirectory.creationInfo.permissions")
    if permissions is not None and not (set(str(permissions)) <= set("01234567") and 3 <= len(str(permissions)) <= 4):  # noqa: PLR2004 - octal
        yield f"BadRequest: rootDirectory.creationInfo.permissions is octal: {permissions}"


def _policy_rule(account: Account, inputs: Values) -> Iterator[str]:
    yield from policies.faults(inputs.get("policy"), "resource")
    system = account.get(FILE_SYSTEM, inputs.get("fileSystemId"))
    for statement in policies.statements(inputs.get("policy")) or ():
        for resource in values_at(statement, "Resource"):
            if system is not None and resource not in ("*", system.outputs.get("arn")):
                yield f"InvalidPolicyException: Resource {resource} is not this file system"


def _part(maker: Maker, inputs: Values) -> Made:  # noqa: ARG001 - one signature for all
    return Made(str(inputs["fileSystemId"]), {}, part_of=f"{FILE_SYSTEM}|{inputs['fileSystemId']}")


def _protected(_account: Account, thing: Thing) -> Iterator[str]:
    if first(thing.inputs, "protection.replicationOverwrite") == "REPLICATING":
        yield f"ReplicationAlreadyExists: {thing.id} is a replica"


_SYSTEM = Reference("fileSystemId", FILE_SYSTEM, code="FileSystemNotFound")
_LOOSE = Reference("fileSystemId", FILE_SYSTEM, holds=False, code="FileSystemNotFound")

KINDS = (
    Kind(
        FILE_SYSTEM,
        _file_system,
        name="",
        scope=("creationToken",),
        taken="FileSystemAlreadyExists",
        in_use="FileSystemInUse",
        missing="FileSystemNotFound",
        immutable=frozenset({"availabilityZoneName", "creationToken", "encrypted", "kmsKeyId", "performanceMode"}),
        references=(Reference("kmsKeyId", KEY, by="arn", code="KmsKeyNotFound"),),
        allowed={
            "performanceMode": frozenset({"generalPurpose", "maxIO"}),
            "throughputMode": frozenset({"bursting", "provisioned", "elastic"}),
            "lifecyclePolicies.transitionToIa": TRANSITIONS,
            "lifecyclePolicies.transitionToArchive": TRANSITIONS,
            "lifecyclePolicies.transitionToPrimaryStorageClass": frozenset({"AFTER_1_ACCESS"}),
            "protection.replicationOverwrite": frozenset({"ENABLED", "DISABLED"}),
        },
        rules=(_file_system_rule,),
        delete_rules=(_protected,),
    ),
    Kind(
        MOUNT_TARGET,
        _mount_target,
        immutable=frozenset({"fileSystemId", "subnetId", "ipAddress", "ipAddressType", "ipv6Address"}),
        references=(
            _SYSTEM,
            Reference("subnetId", SUBNET, code="SubnetNotFound"),
            Reference("securityGroups", SECURITY_GROUP, code="SecurityGroupNotFound"),
        ),
        rules=(_mount_target_rule,),
    ),
    Kind(
        ACCESS_POINT,
        _access_point,
        immutable=frozenset({"fileSystemId", "posixUser", "rootDirectory"}),
        references=(_LOOSE,),
        rules=(_access_point_rule,),
    ),
    Kind(
        FILE_SYSTEM_POLICY,
        _part,
        scope=("fileSystemId",),
        immutable=frozenset({"fileSystemId"}),
        references=(_LOOSE,),
        rules=(_policy_rule,),
    ),
    Kind(
        BACKUP_POLICY,
        _part,
        scope=("fileSystemId",),
        immutable=frozenset({"fileSystemId"}),
        references=(_LOOSE,),
        allowed={"backupPolicy.status": frozenset({"ENABLED", "DISABLED"})},
    ),
)
