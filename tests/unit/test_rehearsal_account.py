"""The account that the stand-ins keep: what AWS would refuse, replace, and take along."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from rehearsal import functions, shapes
from rehearsal.account import UNKNOWN, Account, ApiError, replaced_by, static_faults
from rehearsal.kinds import KINDS, cluster, identity, network, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBER = "123456789012"
REGION = "eu-central-1"


def document(service: str, *actions: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": ["sts:AssumeRole", *actions]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


class Fleet:
    """An account with a network, a cluster, a node group and a file system in it."""

    def __init__(self) -> None:
        self.account = Account(NUMBER, KINDS)
        self.ids: dict[str, str] = {}
        make = self.make
        make("vpc", network.VPC, cidrBlock="10.0.0.0/16")
        make("other", network.VPC, cidrBlock="10.1.0.0/16")
        make("gateway", network.INTERNET_GATEWAY, vpcId="@vpc")
        for number, zone in enumerate("ab"):
            make(
                f"subnet-{zone}",
                network.SUBNET,
                vpcId="@vpc",
                cidrBlock=f"10.0.{number}.0/24",
                availabilityZone=f"{REGION}{zone}",
            )
        make("far", network.SUBNET, vpcId="@other", cidrBlock="10.1.0.0/24", availabilityZone=f"{REGION}c")
        make("address", network.EIP, domain="vpc")
        make("nat", network.NAT_GATEWAY, subnetId="@subnet-a", allocationId="@address")
        make("table", network.ROUTE_TABLE, vpcId="@vpc")
        make("route", network.ROUTE, routeTableId="@table", destinationCidrBlock="0.0.0.0/0", natGatewayId="@nat")
        make("joined", network.ROUTE_TABLE_ASSOCIATION, routeTableId="@table", subnetId="@subnet-a")
        make("group", network.SECURITY_GROUP, name="door", vpcId="@vpc")
        make("far-group", network.SECURITY_GROUP, name="door", vpcId="@other")
        make("control", identity.ROLE, name="control", assumeRolePolicy=document("eks.amazonaws.com"))
        make("nodes", identity.ROLE, name="nodes", assumeRolePolicy=document("ec2.amazonaws.com"))
        make("pods", identity.ROLE, name="pods", assumeRolePolicy=document("pods.eks.amazonaws.com", "sts:TagSession"))
        for policy in ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"):
            arn = f"arn:aws:iam::aws:policy/{policy}"
            make(policy, identity.ROLE_POLICY_ATTACHMENT, role="nodes", policyArn=arn)
        make("key", identity.KEY, deletionWindowInDays=7)
        make("repository", identity.REPOSITORY, name="fleet/tools", imageTagMutability="IMMUTABLE")
        make(
            "cluster",
            cluster.CLUSTER,
            name="fleet",
            roleArn=self.arn("control"),
            version="1.33",
            enabledClusterLogTypes=["api"],
            accessConfig={"authenticationMode": "API"},
            vpcConfig={"subnetIds": ["@subnet-a", "@subnet-b"]},
            encryptionConfig={
                "provider": {"keyArn": self.output("key", identity.KEY, "arn")},
                "resources": ["secrets"],
            },
        )
        make("template", cluster.LAUNCH_TEMPLATE, name="nodes", metadataOptions={"httpTokens": "required"})
        make("close", cluster.PLACEMENT_GROUP, name="close", strategy="cluster")
        make("near", cluster.LAUNCH_TEMPLATE, name="near", placement={"groupName": "close"})
        make("nodes-of-system", cluster.NODE_GROUP, **self.node_group())
        make("addon", cluster.ADDON, clusterName="fleet", addonName="coredns", addonVersion="v1.12.1-eksbuild.2")
        make("files", storage.FILE_SYSTEM, creationToken="files", encrypted=True, throughputMode="elastic")
        make("target", storage.MOUNT_TARGET, fileSystemId="@files", subnetId="@subnet-a", securityGroups=["@group"])
        make("access", storage.ACCESS_POINT, fileSystemId="@files")
        make("association", cluster.POD_IDENTITY_ASSOCIATION, **self.association())

    def node_group(self, **changes: object) -> dict[str, Any]:
        return {
            "clusterName": "fleet",
            "nodeGroupName": "system",
            "nodeRoleArn": self.arn("nodes"),
            "subnetIds": ["@subnet-a", "@subnet-b"],
            "scalingConfig": {"minSize": 1, "desiredSize": 1, "maxSize": 3},
            "instanceTypes": ["m7i.large"],
            "launchTemplate": {"id": "@template", "version": "1"},
            **changes,
        }

    def association(self, **changes: object) -> dict[str, Any]:
        return {
            "clusterName": "fleet",
            "namespace": "kube-system",
            "serviceAccount": "efs-csi-node-sa",
            "roleArn": self.arn("pods"),
            **changes,
        }

    def resolved(self, value: Any) -> Any:  # noqa: ANN401 - any input
        """With the ids of what was made, where `@name` stands."""
        text = re.sub(r'"@([^"]+)"', lambda match: json.dumps(self.ids[match[1]]), json.dumps(value))
        return json.loads(text)

    def make(self, label: str, token: str, **inputs: object) -> str:
        thing = self.account.create(token, f"urn:{label}", self.resolved(inputs), REGION)
        self.ids[label] = thing.id
        return thing.id

    def arn(self, role: str) -> str:
        return f"arn:aws:iam::{NUMBER}:role/{role}"

    def output(self, label: str, token: str, name: str) -> str:
        thing = self.account.get(token, self.ids[label])
        assert thing is not None
        return str(thing.outputs[name])


_MADE = Fleet()


@pytest.fixture
def fleet() -> Fleet:
    return copy.deepcopy(_MADE)


def spread(*entries: tuple[str, dict[str, Any], str]) -> Iterator[Any]:
    for token, inputs, reason in entries:
        yield pytest.param(token, inputs, reason, id=f"{token.split(':')[-1]}-{reason[:50]}")


def group(**changes: object) -> dict[str, Any]:
    return _MADE.node_group(**{"nodeGroupName": "new", **changes})


OWN = f"arn:aws:iam::{NUMBER}:role/"
SOLE = {"minSize": 0, "desiredSize": 0, "maxSize": 1}
VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"

CREATIONS = spread(
    (network.VPC, {"cidrBlock": "10.0.0.0/15"}, "InvalidVpc.Range: 10.0.0.0/15 is not between /16 and /28"),
    (network.VPC, {"cidrBlock": "10.0.0.1/16"}, "InvalidParameterValue: 10.0.0.1/16 is not a CIDR block"),
    (network.SUBNET, {"vpcId": "@vpc", "cidrBlock": "10.9.0.0/24"}, "InvalidSubnet.Range: 10.9.0.0/24 is not within"),
    (network.SUBNET, {"vpcId": "@vpc", "cidrBlock": "10.0.1.128/25"}, "InvalidSubnet.Conflict: 10.0.1.128/25 overlaps"),
    (network.SUBNET, {"vpcId": "vpc-1", "cidrBlock": "10.0.9.0/24"}, "InvalidVpcID.NotFound: vpcId: vpc-1"),
    (
        network.SUBNET,
        {"vpcId": "@vpc", "cidrBlock": "10.0.9.0/24", "availabilityZone": f"{REGION}q"},
        "InvalidParameterValue: availability zone eu-central-1q",
    ),
    (network.INTERNET_GATEWAY, {"vpcId": "@vpc"}, "InvalidParameterValue: vpc-"),
    (
        network.NAT_GATEWAY,
        {"subnetId": "@subnet-b"},
        "InvalidParameterCombination: a public NAT gateway needs an allocationId",
    ),
    (
        network.NAT_GATEWAY,
        {"subnetId": "@subnet-b", "allocationId": "@address"},
        "Resource.AlreadyAssociated: eipalloc-",
    ),
    (
        network.ROUTE,
        {"routeTableId": "@table", "destinationCidrBlock": "0.0.0.0/0", "gatewayId": "@gateway"},
        "RouteAlreadyExists",
    ),
    (
        network.ROUTE_TABLE_ASSOCIATION,
        {"routeTableId": "@table", "subnetId": "@subnet-a"},
        "Resource.AlreadyAssociated: subnet-",
    ),
    (
        network.ROUTE_TABLE_ASSOCIATION,
        {"routeTableId": "@table", "subnetId": "@far"},
        "InvalidParameterValue: rtb-",
    ),
    (network.SECURITY_GROUP, {"name": "door", "vpcId": "@vpc"}, "InvalidGroup.Duplicate: vpc-"),
    (
        network.INGRESS_RULE,
        {"securityGroupId": "@group", "cidrIpv4": "10.0.0.0/8", "ipProtocol": "tcp", "fromPort": 9, "toPort": 1},
        "InvalidParameterValue: ports 9 to 1",
    ),
    (
        network.INGRESS_RULE,
        {"securityGroupId": "@group", "referencedSecurityGroupId": "@far-group", "ipProtocol": "-1"},
        "InvalidGroup.NotFound: the groups of a rule belong to different networks",
    ),
    (
        network.VPC_ENDPOINT,
        {"vpcId": "@vpc", "serviceName": "com.amazonaws.eu-central-1.s3", "subnetIds": ["@subnet-a"]},
        "InvalidParameter: a gateway endpoint takes route tables",
    ),
    (identity.ROLE, {"name": "nodes", "assumeRolePolicy": document("x")}, "EntityAlreadyExists: nodes already exists"),
    (identity.ROLE, {"name": "x", "assumeRolePolicy": "{"}, "MalformedPolicyDocument: not JSON"),
    (
        identity.ROLE,
        {"name": "x", "assumeRolePolicy": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "a"}]}},
        "MalformedPolicyDocument: Statement[0] names no Principal",
    ),
    (
        identity.POLICY,
        {"name": "x", "policy": {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*"}]}},
        "MalformedPolicyDocument: Statement[0] names no Resource",
    ),
    (
        identity.ROLE_POLICY_ATTACHMENT,
        {"role": "nodes", "policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodesPolicy"},
        "NoSuchEntity: policy arn:aws:iam::aws:policy/AmazonEKSWorkerNodesPolicy does not exist",
    ),
    (
        identity.ROLE_POLICY_ATTACHMENT,
        {"role": "nodes", "policyArn": f"arn:aws:iam::{NUMBER}:policy/none"},
        "NoSuchEntity: policyArn: arn:aws:iam::123456789012:policy/none does not exist",
    ),
    (identity.KEY, {"deletionWindowInDays": 3}, "ValidationException: deletionWindowInDays is 3"),
    (identity.ALIAS, {"name": "fleet", "targetKeyId": "@key"}, "ValidationException: an alias starts with alias/"),
    (identity.ALIAS, {"name": "alias/x", "targetKeyId": "none"}, "NotFoundException: key none does not exist"),
    (identity.LOG_GROUP, {"name": "x", "retentionInDays": 10}, "InvalidParameterException: retentionInDays is 10"),
    (
        identity.LOG_GROUP,
        {"name": "/aws/eks/fleet/cluster"},
        "ResourceAlreadyExistsException: /aws/eks/fleet/cluster already exists",
    ),
    (identity.REPOSITORY, {"name": "fleet/tools"}, "RepositoryAlreadyExistsException: fleet/tools already exists"),
    (
        identity.LIFECYCLE_POLICY,
        {"repository": "fleet/tools", "policy": '{"rules": []}'},
        "InvalidParameterException: a lifecycle policy has rules",
    ),
    (
        cluster.CLUSTER,
        {"name": "b", "roleArn": f"{OWN}control", "vpcConfig": {"subnetIds": ["@subnet-a"]}},
        "InvalidParameterException: subnets are in 1 availability zone",
    ),
    (
        cluster.CLUSTER,
        {"name": "b", "roleArn": f"{OWN}control", "vpcConfig": {"subnetIds": ["@subnet-a", "@far"]}},
        "InvalidParameterException: subnets are in several networks",
    ),
    (
        cluster.CLUSTER,
        {"name": "b", "roleArn": f"{OWN}nodes", "vpcConfig": {"subnetIds": ["@subnet-a", "@subnet-b"]}},
        "InvalidParameterException: role nodes does not let eks.amazonaws.com sts:AssumeRole",
    ),
    (
        cluster.CLUSTER,
        {
            "name": "b",
            "roleArn": f"{OWN}control",
            "vpcConfig": {"subnetIds": ["@subnet-a", "@subnet-b"], "endpointPublicAccess": False},
        },
        "InvalidParameterException: private and public endpoint access cannot both be off",
    ),
    (cluster.NODE_GROUP, group(nodeGroupName="system"), "ResourceInUseException: fleet / system already exists"),
    (cluster.NODE_GROUP, group(clusterName="none"), "ResourceNotFoundException: clusterName: none does not exist"),
    (cluster.NODE_GROUP, group(subnetIds=["@far"]), "InvalidParameterException: subnets of the node group are not in"),
    (
        cluster.NODE_GROUP,
        group(scalingConfig={"minSize": 2, "desiredSize": 1, "maxSize": 3}),
        "InvalidParameterException: desired capacity 1 is not between 2 and 3",
    ),
    (
        cluster.NODE_GROUP,
        group(nodeRoleArn=f"{OWN}control"),
        "InvalidParameterException: role control does not let ec2.amazonaws.com",
    ),
    (cluster.NODE_GROUP, group(diskSize=100), "InvalidParameterException: diskSize cannot be given together"),
    (
        cluster.NODE_GROUP,
        group(launchTemplate={"id": "@template", "version": "2"}),
        "InvalidRequestException: launch template lt-",
    ),
    (
        cluster.NODE_GROUP,
        group(amiType="AL2023_x86_64_NVIDIA", instanceTypes=["g5g.xlarge"]),
        "InvalidParameterException: [g5g.xlarge] is not a valid instance type for amiType AL2023_x86_64_NVIDIA",
    ),
    (
        cluster.NODE_GROUP,
        group(amiType="AL2_x86_64_GPU", version="1.33"),
        "InvalidParameterException: amiType AL2_x86_64_GPU is not supported for Kubernetes 1.33",
    ),
    (
        cluster.NODE_GROUP,
        group(capacityType="CAPACITY_BLOCK"),
        "InvalidParameterException: capacityType CAPACITY_BLOCK with marketType None in the launch template",
    ),
    (
        cluster.NODE_GROUP,
        group(launchTemplate={"id": "@near", "version": "1"}, scalingConfig=SOLE),
        "InvalidParameterException: placement group close (cluster) cannot span availability zones",
    ),
    (
        cluster.NODE_GROUP,
        group(taints=[{"key": "a", "effect": "NO_SCHEDULE"}] * 2),
        "InvalidParameterException: a taint is given twice",
    ),
    (
        cluster.ADDON,
        {"clusterName": "fleet", "addonName": "coredns"},
        "ResourceInUseException: fleet / coredns already exists",
    ),
    (
        cluster.ADDON,
        {"clusterName": "fleet", "addonName": "vpc-cni", "configurationValues": '{"enableNetworkPolicy": true}'},
        "InvalidParameterException: configurationValues: enableNetworkPolicy is the text",
    ),
    (
        cluster.ADDON,
        {"clusterName": "fleet", "addonName": "efs"},
        "InvalidParameterException: addon efs specified is not supported",
    ),
    (
        cluster.ADDON,
        {"clusterName": "fleet", "addonName": "vpc-cni", "addonVersion": "1.20"},
        "InvalidParameterException: addon version 1.20 is not of the form",
    ),
    (
        cluster.ACCESS_ENTRY,
        {"clusterName": "fleet", "principalArn": f"{OWN}nodes"},
        "ResourceInUseException: fleet / arn:aws:iam::123456789012:role/nodes already exists",
    ),
    (
        cluster.ACCESS_ENTRY,
        {"clusterName": "fleet", "principalArn": f"{OWN}none"},
        "InvalidParameterException: principalArn: arn:aws:iam::123456789012:role/none does not exist",
    ),
    (
        cluster.ACCESS_ENTRY,
        {"clusterName": "fleet", "principalArn": "admin"},
        "InvalidParameterException: principalArn admin is not the ARN of an IAM role or user",
    ),
    (
        cluster.ACCESS_POLICY_ASSOCIATION,
        {"clusterName": "fleet", "principalArn": f"{OWN}pods", "policyArn": VIEW, "accessScope": {"type": "cluster"}},
        "ResourceNotFoundException: fleet has no access entry for",
    ),
    (
        cluster.ACCESS_POLICY_ASSOCIATION,
        {
            "clusterName": "fleet",
            "principalArn": f"{OWN}nodes",
            "policyArn": VIEW,
            "accessScope": {"type": "namespace"},
        },
        "InvalidParameterException: accessScope of type namespace names its namespaces",
    ),
    (
        cluster.POD_IDENTITY_ASSOCIATION,
        _MADE.association(),
        "ResourceInUseException: fleet / kube-system / efs-csi-node-sa already exists",
    ),
    (
        cluster.POD_IDENTITY_ASSOCIATION,
        _MADE.association(serviceAccount="x", roleArn=f"{OWN}nodes"),
        "InvalidParameterException: role nodes does not let pods.eks.amazonaws.com sts:AssumeRole and sts:TagSession",
    ),
    (cluster.LAUNCH_TEMPLATE, {"name": "x", "userData": "#!/bin/sh"}, "InvalidUserData.Malformed"),
    (
        cluster.LAUNCH_TEMPLATE,
        {"name": "x", "vpcSecurityGroupIds": ["@group", "@far-group"]},
        "InvalidParameter: the security groups belong to different networks",
    ),
    (
        cluster.SCALING_TAG,
        {"autoscalingGroupName": "none", "tag": {"key": "a", "value": "b", "propagateAtLaunch": False}},
        "ValidationError: autoscalingGroupName: none does not exist",
    ),
    (storage.FILE_SYSTEM, {"creationToken": "files"}, "FileSystemAlreadyExists: files already exists"),
    (storage.FILE_SYSTEM, {"throughputMode": "provisioned"}, "BadRequest: throughputMode provisioned needs"),
    (
        storage.FILE_SYSTEM,
        {"throughputMode": "elastic", "provisionedThroughputInMibps": 100},
        "BadRequest: provisionedThroughputInMibps with throughputMode elastic",
    ),
    (storage.FILE_SYSTEM, {"kmsKeyId": f"arn:aws:kms:{REGION}:{NUMBER}:key/1", "encrypted": True}, "KmsKeyNotFound"),
    (
        storage.MOUNT_TARGET,
        {"fileSystemId": "@files", "subnetId": "@subnet-a"},
        "MountTargetConflict: fsmt-",
    ),
    (
        storage.MOUNT_TARGET,
        {"fileSystemId": "@files", "subnetId": "@far"},
        "MountTargetConflict: fsmt-",
    ),
    (
        storage.MOUNT_TARGET,
        {"fileSystemId": "@files", "subnetId": "@subnet-b", "securityGroups": ["@far-group"]},
        "SecurityGroupNotFound: security group and subnet belong to different networks",
    ),
    (
        storage.ACCESS_POINT,
        {"fileSystemId": "@files", "rootDirectory": {"path": "models"}},
        "BadRequest: rootDirectory.path starts with /: models",
    ),
    (
        storage.FILE_SYSTEM_POLICY,
        {
            "fileSystemId": "@files",
            "policy": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "a", "Resource": "arn:aws:efs:other"}],
            },
        },
        "InvalidPolicyException: Resource arn:aws:efs:other is not this file system",
    ),
)


@pytest.mark.parametrize(("token", "inputs", "reason"), CREATIONS)
def test_a_creation_that_aws_refuses_changes_nothing(
    fleet: Fleet, token: str, inputs: dict[str, Any], reason: str
) -> None:
    before = dict(fleet.account.things)
    with pytest.raises(ApiError) as refused:
        fleet.account.create(token, "urn", fleet.resolved(inputs), REGION)
    assert str(refused.value).startswith(reason)
    assert fleet.account.things == before


STATIC = spread(
    (network.VPC, {}, "cidrBlock: one of cidrBlock, ipv4IpamPoolId is required"),
    (
        network.INGRESS_RULE,
        {"cidrIpv4": "10.0.0.0/8", "referencedSecurityGroupId": "sg-1"},
        "referencedSecurityGroupId: conflicts with cidrIpv4",
    ),
    (
        cluster.NODE_GROUP,
        {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "taints.effect: expected one of NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE; got NoSchedule",
    ),
    (cluster.NODE_GROUP, {"capacityType": "SPOTTY"}, "capacityType: expected one of CAPACITY_BLOCK, ON_DEMAND, SPOT"),
    (
        cluster.LAUNCH_TEMPLATE,
        {"networkInterfaces": [{}], "vpcSecurityGroupIds": ["sg-1"]},
        "vpcSecurityGroupIds: conflicts with networkInterfaces",
    ),
    (
        cluster.ADDON,
        {"serviceAccountRoleArn": "a", "podIdentityAssociations": [{}]},
        "podIdentityAssociations: conflicts with serviceAccountRoleArn",
    ),
    (
        storage.FILE_SYSTEM,
        {"lifecyclePolicies": [{"transitionToIa": "AFTER_3_DAYS"}]},
        "lifecyclePolicies.transitionToIa",
    ),
)


@pytest.mark.parametrize(("token", "inputs", "reason"), STATIC)
def test_what_is_wrong_whatever_exists_is_told_at_preview(token: str, inputs: dict[str, Any], reason: str) -> None:
    (fault,) = static_faults(KINDS[token], inputs)
    assert ": ".join(fault).startswith(reason)
    unknown = dict.fromkeys(inputs, UNKNOWN)
    assert all("got" not in why for _, why in static_faults(KINDS[token], unknown))


HELD = [
    ("vpc", network.VPC, "DependencyViolation"),
    ("subnet-a", network.SUBNET, "DependencyViolation"),
    ("gateway", network.INTERNET_GATEWAY, "DependencyViolation: the network has a mapped public address"),
    ("address", network.EIP, "AuthFailure"),
    ("table", network.ROUTE_TABLE, "DependencyViolation"),
    ("group", network.SECURITY_GROUP, "DependencyViolation"),
    ("nodes", identity.ROLE, "DeleteConflict"),
    ("control", identity.ROLE, "DeleteConflict"),
    ("key", identity.KEY, "KMSInvalidStateException"),
    ("cluster", cluster.CLUSTER, "ResourceInUseException: fleet is in use by NodeGroup fleet:system"),
    ("files", storage.FILE_SYSTEM, "FileSystemInUse"),
]


@pytest.mark.parametrize(("label", "token", "reason"), HELD)
def test_what_is_in_use_is_not_deleted(fleet: Fleet, label: str, token: str, reason: str) -> None:
    with pytest.raises(ApiError) as refused:
        fleet.account.delete(token, fleet.ids[label])
    assert str(refused.value).startswith(reason)
    assert fleet.account.get(token, fleet.ids[label]) is not None


def test_in_the_reverse_order_everything_goes(fleet: Fleet) -> None:
    """What the cluster logged stays, as it does at AWS."""
    made = [(event["type"], event["id"]) for event in fleet.account.events if event["op"] == "create"]
    for token, thing in reversed(made):
        fleet.account.delete(token, thing)
    assert list(fleet.account.things) == [f"{identity.LOG_GROUP}|/aws/eks/fleet/cluster"]


def test_a_group_that_eks_made_outlives_its_cluster_while_a_rule_names_it(fleet: Fleet) -> None:
    (eks,) = [thing for thing in fleet.account.of(network.SECURITY_GROUP) if thing.outputs["name"].startswith("eks-")]
    fleet.make(
        "nfs",
        network.INGRESS_RULE,
        securityGroupId="@group",
        referencedSecurityGroupId=eks.id,
        ipProtocol="tcp",
        fromPort=2049,
        toPort=2049,
    )
    for label, token in (("nodes-of-system", cluster.NODE_GROUP), ("cluster", cluster.CLUSTER)):
        fleet.account.delete(token, fleet.ids[label])
    assert fleet.account.get(network.SECURITY_GROUP, eks.id) is not None
    assert fleet.account.of(cluster.ADDON) == fleet.account.of(cluster.POD_IDENTITY_ASSOCIATION) == []


JOIN: dict[str, tuple[Callable[[Fleet], object], str]] = {
    "no policy": (
        lambda fleet: fleet.account.delete(
            identity.ROLE_POLICY_ATTACHMENT, "nodes/arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
        ),
        "role nodes has none of AmazonEKSWorkerNodeMinimalPolicy, AmazonEKSWorkerNodePolicy",
    ),
    "no way to the images": (
        lambda fleet: fleet.account.delete(
            identity.ROLE_POLICY_ATTACHMENT, "nodes/arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
        ),
        "role nodes has none of AmazonEC2ContainerRegistryPullOnly, AmazonEC2ContainerRegistryReadOnly",
    ),
}


@pytest.mark.parametrize("case", JOIN)
def test_nodes_whose_role_lacks_something_never_join_b35(fleet: Fleet, case: str) -> None:
    break_it, reason = JOIN[case]
    break_it(fleet)
    with pytest.raises(ApiError, match=reason):
        fleet.make("new", cluster.NODE_GROUP, **fleet.node_group(nodeGroupName="new"))


def test_a_deployment_as_add_on_waits_for_a_node_without_taints(fleet: Fleet) -> None:
    fleet.account.delete(cluster.ADDON, fleet.ids["addon"])
    fleet.account.delete(cluster.NODE_GROUP, fleet.ids["nodes-of-system"])
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    fleet.make("gpu", cluster.NODE_GROUP, **fleet.node_group(nodeGroupName="gpu", taints=taints))
    with pytest.raises(ApiError, match="waiting for coredns to become ACTIVE"):
        fleet.make("addon", cluster.ADDON, clusterName="fleet", addonName="coredns")
    fleet.make("system", cluster.NODE_GROUP, **fleet.node_group())
    fleet.make("addon", cluster.ADDON, clusterName="fleet", addonName="coredns")


CHANGES = [
    (cluster.NODE_GROUP, {"scalingConfig": {"minSize": 0, "desiredSize": 0, "maxSize": 9}}, []),
    (cluster.NODE_GROUP, {"taints": [{"key": "a", "value": "b", "effect": "NO_EXECUTE"}]}, []),
    (cluster.NODE_GROUP, {"labels": {"a": "b"}}, []),
    (cluster.NODE_GROUP, {"launchTemplate": {"id": "@template", "version": "$Latest"}}, []),
    (cluster.NODE_GROUP, {"launchTemplate": {"id": "@near", "version": "1"}}, ["launchTemplate"]),
    (cluster.NODE_GROUP, {"launchTemplate": UNKNOWN}, ["launchTemplate"]),
    (cluster.NODE_GROUP, {"instanceTypes": ["m7i.xlarge"]}, ["instanceTypes"]),
    (cluster.NODE_GROUP, {"subnetIds": ["@subnet-a"], "capacityType": "SPOT"}, ["capacityType", "subnetIds"]),
]


@pytest.mark.parametrize(("token", "changes", "replaces"), CHANGES)
def test_only_what_aws_cannot_change_replaces(
    fleet: Fleet, token: str, changes: dict[str, Any], replaces: list[str]
) -> None:
    thing = fleet.account.get(token, fleet.ids["nodes-of-system"])
    assert thing is not None
    wanted = {**thing.inputs, **fleet.resolved(changes)}
    assert replaced_by(KINDS[token], thing.inputs, wanted) == replaces
    if replaces:
        with pytest.raises(ApiError, match="cannot be changed"):
            fleet.account.update(token, thing.id, wanted)
    else:
        changed = fleet.account.update(token, thing.id, wanted)
        assert changed.outputs == {**thing.outputs, **fleet.resolved(changes)}


def test_a_cluster_goes_up_one_version_at_a_time_and_never_back_from_api(fleet: Fleet) -> None:
    thing = fleet.account.get(cluster.CLUSTER, "fleet")
    assert thing is not None
    with pytest.raises(ApiError, match=r"version 1\.33 to 1\.35"):
        fleet.account.update(cluster.CLUSTER, "fleet", {**thing.inputs, "version": "1.35"})
    back = {**thing.inputs, "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}
    with pytest.raises(ApiError, match="cannot go back from API to API_AND_CONFIG_MAP"):
        fleet.account.update(cluster.CLUSTER, "fleet", back)
    changed = fleet.account.update(cluster.CLUSTER, "fleet", {**thing.inputs, "version": "1.34"})
    assert changed.outputs["vpcConfig"] == thing.outputs["vpcConfig"]


def test_a_changed_launch_template_is_a_new_version(fleet: Fleet) -> None:
    inputs = {"name": "nodes", "metadataOptions": {"httpTokens": "optional"}, "updateDefaultVersion": True}
    changed = fleet.account.update(cluster.LAUNCH_TEMPLATE, fleet.ids["template"], inputs)
    assert (changed.outputs["latestVersion"], changed.outputs["defaultVersion"]) == (2, 2)


FORMS = {
    ("vpc", network.VPC): (r"vpc-[0-9a-f]{17}", rf"arn:aws:ec2:{REGION}:{NUMBER}:vpc/vpc-[0-9a-f]{{17}}"),
    ("cluster", cluster.CLUSTER): ("fleet", rf"arn:aws:eks:{REGION}:{NUMBER}:cluster/fleet"),
    ("nodes-of-system", cluster.NODE_GROUP): (
        "fleet:system",
        rf"arn:aws:eks:{REGION}:{NUMBER}:nodegroup/fleet/system/[0-9a-f-]{{36}}",
    ),
    ("files", storage.FILE_SYSTEM): (
        "fs-[0-9a-f]{17}",
        rf"arn:aws:elasticfilesystem:{REGION}:{NUMBER}:file-system/fs-[0-9a-f]{{17}}",
    ),
    ("access", storage.ACCESS_POINT): (
        "fsap-[0-9a-f]{17}",
        rf"arn:aws:elasticfilesystem:{REGION}:{NUMBER}:access-point/fsap-[0-9a-f]{{17}}",
    ),
    ("nodes", identity.ROLE): ("nodes", rf"arn:aws:iam::{NUMBER}:role/nodes"),
    ("repository", identity.REPOSITORY): ("fleet/tools", rf"arn:aws:ecr:{REGION}:{NUMBER}:repository/fleet/tools"),
}


@pytest.mark.parametrize(("label", "token"), FORMS)
def test_ids_and_arns_have_the_form_of_aws(fleet: Fleet, label: str, token: str) -> None:
    identity_form, arn_form = FORMS[label, token]
    assert re.fullmatch(identity_form, fleet.ids[label])
    assert re.fullmatch(arn_form, fleet.output(label, token, "arn"))


@pytest.mark.parametrize("token", KINDS)
def test_the_rules_of_a_type_speak_of_inputs_that_the_sdk_has(token: str) -> None:
    kind = KINDS[token]
    groups = [name for group in (*kind.at_most_one, *kind.exactly_one) for name in group]
    paths = {*kind.immutable, *(one.path for one in kind.references), *kind.allowed, *groups, *kind.scope, *kind.nested}
    shape = shapes.read(token).inputs
    for path in {*paths, *([kind.name] if kind.name else [])}:
        at = shape
        for name in path.split("."):
            while at.of is not None:
                at = at.of
            assert at.properties is not None, path
            assert name in at.properties, path
            at = at.properties[name]


FOUND = {
    "aws:index/getAvailabilityZones:getAvailabilityZones": {"state": "available"},
    "aws:index/getCallerIdentity:getCallerIdentity": {},
    "aws:index/getRegion:getRegion": {},
    "aws:index/getPartition:getPartition": {},
    "aws:eks/getCluster:getCluster": {"name": "fleet"},
    "aws:eks/getClusterAuth:getClusterAuth": {"name": "fleet"},
    "aws:eks/getAddon:getAddon": {"clusterName": "fleet", "addonName": "coredns"},
    "aws:ec2/getVpc:getVpc": {"id": "@vpc"},
    "aws:ec2/getSubnet:getSubnet": {"id": "@subnet-a"},
    "aws:ec2/getSubnets:getSubnets": {"filters": [{"name": "vpc-id", "values": ["@vpc"]}]},
    "aws:ec2/getSecurityGroup:getSecurityGroup": {"id": "@group"},
    "aws:iam/getRole:getRole": {"name": "nodes"},
}


@pytest.mark.parametrize("token", functions.FUNCTIONS)
def test_a_function_answers_about_what_there_is(fleet: Fleet, token: str) -> None:
    answer = functions.call(fleet.account, token, REGION, fleet.resolved(FOUND[token]))
    if "name" in FOUND[token] or "id" in FOUND[token]:
        assert answer["id"] in fleet.ids.values()
        missing = dict.fromkeys(FOUND[token], "none")
        with pytest.raises(ApiError, match="does not exist"):
            functions.call(fleet.account, token, REGION, missing)
    assert answer["id"]


def test_subnets_are_found_by_their_network(fleet: Fleet) -> None:
    filters = [{"name": "vpc-id", "values": [fleet.ids["other"]]}]
    answer = functions.call(fleet.account, "aws:ec2/getSubnets:getSubnets", REGION, {"filters": filters})
    assert answer["ids"] == [fleet.ids["far"]]
