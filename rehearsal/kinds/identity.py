"""IAM roles and policies, KMS keys, log groups, image repositories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rehearsal import policies
from rehearsal.account import UNKNOWN, Account, Kind, Made, Maker, Reference, Thing, Values, given

if TYPE_CHECKING:
    from collections.abc import Iterator

ROLE = "aws:iam/role:Role"
POLICY = "aws:iam/policy:Policy"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
ROLE_POLICY_ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
INSTANCE_PROFILE = "aws:iam/instanceProfile:InstanceProfile"
OPEN_ID_CONNECT_PROVIDER = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
KEY = "aws:kms/key:Key"
ALIAS = "aws:kms/alias:Alias"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
REPOSITORY = "aws:ecr/repository:Repository"
LIFECYCLE_POLICY = "aws:ecr/lifecyclePolicy:LifecyclePolicy"

MANAGED = frozenset(
    f"arn:aws:iam::aws:policy/{name}"
    for name in (
        "AmazonEKSClusterPolicy",
        "AmazonEKSServicePolicy",
        "AmazonEKSVPCResourceController",
        "AmazonEKSWorkerNodePolicy",
        "AmazonEKSWorkerNodeMinimalPolicy",
        "AmazonEKS_CNI_Policy",
        "AmazonEC2ContainerRegistryReadOnly",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonSSMManagedInstanceCore",
        "CloudWatchAgentServerPolicy",
        "service-role/AmazonEBSCSIDriverPolicy",
        "service-role/AmazonEFSCSIDriverPolicy",
        "service-role/AWSBackupServiceRolePolicyForBackup",
        "service-role/AWSBackupServiceRolePolicyForRestores",
    )
)
"""Policies of AWS's own that a fleet may attach (AWS Managed Policy Reference)."""

RETENTION_DAYS = frozenset(
    {0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)
"""PutRetentionPolicy, in botocore 1.44's model of CloudWatch Logs; the provider writes "never" as 0."""
KEY_WINDOW_DAYS = (7, 30)
"""KMS ScheduleKeyDeletion, PendingWindowInDays."""
ROLE_NAME_LIMIT = 64
"""roleNameType in botocore 1.44's model of IAM."""


def attached(account: Account, role: str) -> set[str]:
    """The managed policies of a role, by the last part of their ARN."""
    return {
        str(one.inputs.get("policyArn")).rpartition("/")[2]
        for one in account.of(ROLE_POLICY_ATTACHMENT)
        if one.inputs.get("role") == role
    }


def _role(maker: Maker, inputs: Values) -> Made:
    name = str(inputs["name"])
    outputs = {
        "arn": maker.arn("iam", f"role{inputs.get('path', '/')}{name}", regional=False),
        "uniqueId": f"AROA{maker.hexes(17).upper()}",
        "createDate": "2026-01-01T00:00:00Z",
        "path": inputs.get("path", "/"),
        "maxSessionDuration": inputs.get("maxSessionDuration", 3600),
    }
    return Made(name, outputs)


def _trust_rule(_account: Account, inputs: Values) -> Iterator[str]:
    yield from policies.faults(inputs.get("assumeRolePolicy"), "trust")


def _identity_rule(_account: Account, inputs: Values) -> Iterator[str]:
    yield from policies.faults(inputs.get("policy"), "identity")


def _resource_rule(_account: Account, inputs: Values) -> Iterator[str]:
    yield from policies.faults(inputs.get("policy"), "resource")


def _managed_rule(account: Account, inputs: Values) -> Iterator[str]:
    arn = inputs.get("policyArn")
    own = f"arn:aws:iam::{account.number}:"
    if isinstance(arn, str) and arn != UNKNOWN and not arn.startswith(own) and arn not in MANAGED:
        yield f"NoSuchEntity: policy {arn} does not exist or is not attachable"


def _policy(maker: Maker, inputs: Values) -> Made:
    arn = maker.arn("iam", f"policy{inputs.get('path', '/')}{inputs['name']}", regional=False)
    return Made(arn, {"arn": arn, "policyId": f"ANPA{maker.hexes(17).upper()}", "path": inputs.get("path", "/")})


def _role_policy(_maker: Maker, inputs: Values) -> Made:
    return Made(f"{inputs['role']}:{inputs['name']}")


def _attachment(_maker: Maker, inputs: Values) -> Made:
    return Made(f"{inputs['role']}/{inputs['policyArn']}")


def _profile(maker: Maker, inputs: Values) -> Made:
    name = str(inputs["name"])
    return Made(name, {"arn": maker.arn("iam", f"instance-profile/{name}", regional=False)})


def _issuer(maker: Maker, inputs: Values) -> Made:
    arn = maker.arn("iam", f"oidc-provider/{str(inputs['url']).removeprefix('https://')}", regional=False)
    return Made(arn, {"arn": arn})


def _key(maker: Maker, _inputs: Values) -> Made:
    key = maker.uuid()
    outputs = {
        "arn": maker.arn("kms", f"key/{key}"),
        "keyId": key,
        "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
        "keyUsage": "ENCRYPT_DECRYPT",
    }
    return Made(key, outputs)


def _key_rule(_account: Account, inputs: Values) -> Iterator[str]:
    window = inputs.get("deletionWindowInDays")
    low, high = KEY_WINDOW_DAYS
    if isinstance(window, int) and not low <= window <= high:
        yield f"ValidationException: deletionWindowInDays is {window}, not between {low} and {high}"


def _alias(maker: Maker, inputs: Values) -> Made:
    name = str(inputs["name"])
    target = str(inputs["targetKeyId"]).rpartition("/")[2]
    outputs = {"arn": maker.arn("kms", name), "targetKeyArn": maker.arn("kms", f"key/{target}")}
    return Made(name, outputs, part_of=f"{KEY}|{target}")


def _alias_rule(account: Account, inputs: Values) -> Iterator[str]:
    name, target = inputs.get("name"), inputs.get("targetKeyId")
    if isinstance(name, str) and name != UNKNOWN and (not name.startswith("alias/") or name.startswith("alias/aws/")):
        yield f"ValidationException: an alias starts with alias/, and not with alias/aws/: {name}"
    if isinstance(target, str) and target != UNKNOWN and account.get(KEY, target.rpartition("/")[2]) is None:
        yield f"NotFoundException: key {target} does not exist"


def _log_group(maker: Maker, inputs: Values) -> Made:
    return Made(str(inputs["name"]), {"arn": maker.arn("logs", f"log-group:{inputs['name']}")})


def _retention_rule(_account: Account, inputs: Values) -> Iterator[str]:
    days = inputs.get("retentionInDays")
    if isinstance(days, int) and days not in RETENTION_DAYS:
        yield f"InvalidParameterException: retentionInDays is {days}, not one of {sorted(RETENTION_DAYS)}"


def _repository(maker: Maker, inputs: Values) -> Made:
    name = str(inputs["name"])
    outputs = {
        "arn": maker.arn("ecr", f"repository/{name}"),
        "registryId": maker.number,
        "repositoryUrl": f"{maker.number}.dkr.ecr.{maker.region}.amazonaws.com/{name}",
    }
    return Made(name, outputs)


def _repository_rule(_account: Account, inputs: Values) -> Iterator[str]:
    name = inputs.get("name")
    if isinstance(name, str) and name != UNKNOWN and name != name.lower():
        yield f"InvalidParameterException: a repository's name is lower case: {name}"


def _lifecycle_rule(_account: Account, inputs: Values) -> Iterator[str]:
    text = inputs.get("policy")
    if not isinstance(text, str) or text == UNKNOWN:
        return
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        yield f"InvalidParameterException: not JSON: {error}"
        return
    rules = document.get("rules") or ()
    if not rules:
        yield "InvalidParameterException: a lifecycle policy has rules"
    priorities = [rule.get("rulePriority") for rule in rules]
    if len(set(priorities)) != len(priorities):
        yield f"InvalidParameterException: rulePriority is given twice: {priorities}"
    for rule in rules:
        for name in ("selection", "action"):
            if name not in rule:
                yield f"InvalidParameterException: rule {rule.get('rulePriority')} has no {name}"


def _deletable(_account: Account, thing: Thing) -> Iterator[str]:
    if thing.outputs.get("images") and not given(thing.inputs, "forceDelete"):
        yield f"RepositoryNotEmptyException: {thing.id} holds images and forceDelete is not set"


_ROLE = Reference("role", ROLE, by="name", code="NoSuchEntity")

KINDS = (
    Kind(
        ROLE,
        _role,
        name="name",
        name_limit=ROLE_NAME_LIMIT,
        taken="EntityAlreadyExists",
        in_use="DeleteConflict",
        missing="NoSuchEntity",
        immutable=frozenset({"name", "namePrefix", "path"}),
        at_most_one=(("name", "namePrefix"),),
        rules=(_trust_rule,),
    ),
    Kind(
        POLICY,
        _policy,
        name="name",
        name_limit=128,
        taken="EntityAlreadyExists",
        in_use="DeleteConflict",
        missing="NoSuchEntity",
        immutable=frozenset({"name", "namePrefix", "path", "description"}),
        at_most_one=(("name", "namePrefix"),),
        rules=(_identity_rule,),
    ),
    Kind(
        ROLE_POLICY,
        _role_policy,
        name="name",
        name_limit=128,
        scope=("role", "name"),
        taken="EntityAlreadyExists",
        immutable=frozenset({"name", "namePrefix", "role"}),
        references=(_ROLE,),
        rules=(_identity_rule,),
    ),
    Kind(
        ROLE_POLICY_ATTACHMENT,
        _attachment,
        scope=("role", "policyArn"),
        taken="EntityAlreadyExists",
        immutable=frozenset({"role", "policyArn"}),
        references=(
            _ROLE,
            Reference("policyArn", POLICY, by="arn", code="NoSuchEntity", within="arn:aws:iam::{account}:"),
        ),
        rules=(_managed_rule,),
    ),
    Kind(
        INSTANCE_PROFILE,
        _profile,
        name="name",
        name_limit=128,
        taken="EntityAlreadyExists",
        in_use="DeleteConflict",
        immutable=frozenset({"name", "namePrefix", "path"}),
        references=(_ROLE,),
    ),
    Kind(
        OPEN_ID_CONNECT_PROVIDER,
        _issuer,
        scope=("url",),
        taken="EntityAlreadyExists",
        immutable=frozenset({"url"}),
    ),
    Kind(
        KEY,
        _key,
        in_use="KMSInvalidStateException",
        immutable=frozenset({"customerMasterKeySpec", "keyUsage", "multiRegion"}),
        rules=(_key_rule, _resource_rule),
    ),
    Kind(
        ALIAS,
        _alias,
        name="name",
        taken="AlreadyExistsException",
        immutable=frozenset({"name", "namePrefix"}),
        rules=(_alias_rule,),
    ),
    Kind(
        LOG_GROUP,
        _log_group,
        name="name",
        name_limit=512,
        taken="ResourceAlreadyExistsException",
        immutable=frozenset({"name", "namePrefix", "logGroupClass"}),
        references=(Reference("kmsKeyId", KEY, by="arn", code="InvalidParameterException"),),
        rules=(_retention_rule,),
    ),
    Kind(
        REPOSITORY,
        _repository,
        name="name",
        name_limit=256,
        taken="RepositoryAlreadyExistsException",
        in_use="RepositoryInUse",
        missing="RepositoryNotFoundException",
        immutable=frozenset({"name", "encryptionConfigurations"}),
        references=(Reference("encryptionConfigurations.kmsKey", KEY, by="arn", code="KmsException"),),
        allowed={
            "imageTagMutability": frozenset(
                {"MUTABLE", "IMMUTABLE", "IMMUTABLE_WITH_EXCLUSION", "MUTABLE_WITH_EXCLUSION"}
            ),
            "encryptionConfigurations.encryptionType": frozenset({"AES256", "KMS", "KMS_DSSE"}),
        },
        rules=(_repository_rule,),
        delete_rules=(_deletable,),
    ),
    Kind(
        LIFECYCLE_POLICY,
        lambda maker, inputs: Made(  # the registry is the account's own
            str(inputs["repository"]), {"registryId": maker.number}, part_of=f"{REPOSITORY}|{inputs['repository']}"
        ),
        scope=("repository",),
        immutable=frozenset({"repository"}),
        references=(Reference("repository", REPOSITORY, holds=False, code="RepositoryNotFoundException"),),
        rules=(_lifecycle_rule,),
    ),
)
