"""EKS: cluster, node groups, add-ons, access, Pod Identity; launch templates, placement groups, Auto Scaling tags."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rehearsal import policies
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
from rehearsal.kinds.identity import KEY, LOG_GROUP, ROLE, attached
from rehearsal.kinds.network import SECURITY_GROUP, SUBNET, vpc_of_groups, vpc_of_subnets, zones_of_subnets

CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADDON = "aws:eks/addon:Addon"
ACCESS_ENTRY = "aws:eks/accessEntry:AccessEntry"
ACCESS_POLICY_ASSOCIATION = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
POD_IDENTITY_ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
SCALING_GROUP = "aws:autoscaling/group:Group"
SCALING_TAG = "aws:autoscaling/tag:Tag"

CLUSTER_NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9\-_]{0,99}")
"""ClusterName in botocore 1.44's model of EKS."""
VERSION = re.compile(r"1\.\d\d")
ADDON_VERSION = re.compile(r"v\d+\.\d+\.\d+-eksbuild\.\d+")
AMI_TYPES = frozenset(
    {
        "AL2_x86_64",
        "AL2_x86_64_GPU",
        "AL2_ARM_64",
        "CUSTOM",
        "BOTTLEROCKET_ARM_64",
        "BOTTLEROCKET_x86_64",
        "BOTTLEROCKET_ARM_64_FIPS",
        "BOTTLEROCKET_x86_64_FIPS",
        "BOTTLEROCKET_ARM_64_NVIDIA",
        "BOTTLEROCKET_x86_64_NVIDIA",
        "BOTTLEROCKET_ARM_64_NVIDIA_FIPS",
        "BOTTLEROCKET_x86_64_NVIDIA_FIPS",
        "AL2023_x86_64_STANDARD",
        "AL2023_ARM_64_STANDARD",
        "AL2023_x86_64_NEURON",
        "AL2023_x86_64_NVIDIA",
        "AL2023_ARM_64_NVIDIA",
    }
)
"""AMITypes in botocore 1.44's model of EKS, without those of Windows."""
LAST_VERSION_OF_AL2 = 32
"""The last minor version of Kubernetes that EKS builds Amazon Linux 2 images for (EKS User Guide, "EKS optimized
Amazon Linux AMIs"): 1.32."""
NODES_OF_DEPLOYMENTS = frozenset({"coredns", "aws-efs-csi-driver", "aws-ebs-csi-driver", "metrics-server"})
"""Add-ons with a Deployment: they are DEGRADED until a node without taints holds it."""
ADDONS = NODES_OF_DEPLOYMENTS | {
    "vpc-cni",
    "kube-proxy",
    "eks-pod-identity-agent",
    "eks-node-monitoring-agent",
    "amazon-cloudwatch-observability",
    "snapshot-controller",
}
ACCESS_POLICIES = frozenset(
    f"arn:aws:eks::aws:cluster-access-policy/{name}"
    for name in (
        "AmazonEKSClusterAdminPolicy",
        "AmazonEKSAdminPolicy",
        "AmazonEKSAdminViewPolicy",
        "AmazonEKSEditPolicy",
        "AmazonEKSViewPolicy",
    )
)
"""EKS User Guide, "Review access policy permissions"."""
MODES = {"CONFIG_MAP": 0, "API_AND_CONFIG_MAP": 1, "API": 2}
"""Authentication modes; a cluster only ever moves up."""
POD_IDENTITY = "pods.eks.amazonaws.com"
POD_IDENTITY_ACTIONS = ("sts:AssumeRole", "sts:TagSession")
TAINTS = 50
"""EKS API, CreateNodegroup: taints per node group."""


def _cluster(maker: Maker, inputs: Values) -> Made:
    name = str(inputs["name"])
    group = maker.id("sg", "cluster")
    (vpc,) = vpc_of_subnets(maker.account, values_at(inputs, "vpcConfig.subnetIds"))
    outputs = {
        "arn": maker.arn("eks", f"cluster/{name}"),
        "endpoint": f"https://{maker.hexes(32).upper()}.gr7.{maker.region}.eks.amazonaws.com",
        "certificateAuthority": {"data": base64.b64encode(maker.hexes(40).encode()).decode()},
        "identities": [
            {"oidcs": [{"issuer": f"https://oidc.eks.{maker.region}.amazonaws.com/id/{maker.hexes(32).upper()}"}]}
        ],
        "createdAt": "2026-01-01T00:00:00Z",
        "platformVersion": "eks.1",
        "status": "ACTIVE",
        "vpcConfig": {**inputs["vpcConfig"], "clusterSecurityGroupId": group, "vpcId": vpc},
        "accessConfig": {"authenticationMode": "CONFIG_MAP", **(inputs.get("accessConfig") or {})},
    }
    security = Part(
        SECURITY_GROUP,
        {"id": group, "name": f"eks-cluster-sg-{name}-{maker.hexes(9)}", "vpcId": vpc},
    )
    log = f"/aws/eks/{name}/cluster"
    logs = (Part(LOG_GROUP, {"id": log, "name": log}, stays=True),) if inputs.get("enabledClusterLogTypes") else ()
    return Made(name, outputs, (security, *logs))


def _cluster_rule(account: Account, inputs: Values) -> Iterator[str]:
    name, version = inputs.get("name"), inputs.get("version")
    if isinstance(name, str) and name != UNKNOWN and not CLUSTER_NAME.fullmatch(name):
        yield f"InvalidParameterException: cluster name {name}"
    if isinstance(version, str) and version != UNKNOWN and not VERSION.fullmatch(version):
        yield f"InvalidParameterException: unsupported Kubernetes version {version}"
    subnets = values_at(inputs, "vpcConfig.subnetIds")
    known = [subnet for subnet in subnets if account.get(SUBNET, subnet)]
    vpcs, zones = vpc_of_subnets(account, subnets), zones_of_subnets(account, subnets)
    if known and len(zones) < 2:  # noqa: PLR2004 - EKS requires two
        yield f"InvalidParameterException: subnets are in {len(zones)} availability zone; EKS requires at least two"
    if len(vpcs) > 1:
        yield f"InvalidParameterException: subnets are in several networks: {', '.join(sorted(vpcs))}"
    groups = vpc_of_groups(account, values_at(inputs, "vpcConfig.securityGroupIds"))
    if vpcs and groups - vpcs:
        yield "InvalidParameterException: security groups and subnets belong to different networks"
    yield from _endpoint_faults(inputs.get("vpcConfig") or {})
    for provider in (
        inputs.get("encryptionConfig", {}).get("resources", ()) if given(inputs, "encryptionConfig") else ()
    ):
        if provider != "secrets":
            yield f"InvalidParameterException: encryptionConfig.resources is secrets only, got {provider}"
    yield from _role_faults(account, inputs.get("roleArn"), "eks.amazonaws.com")


def _endpoint_faults(config: Mapping[str, Any]) -> Iterator[str]:
    private, public = config.get("endpointPrivateAccess", False), config.get("endpointPublicAccess", True)
    if not private and not public:
        yield "InvalidParameterException: private and public endpoint access cannot both be off"
    for text in values_at(config, "publicAccessCidrs"):
        try:
            ipaddress.ip_network(str(text))
        except ValueError:
            yield f"InvalidParameterException: publicAccessCidrs: {text} is not a CIDR block whose host bits are zero"
    if public is False and values_at(config, "publicAccessCidrs"):
        yield "InvalidParameterException: publicAccessCidrs without public endpoint access"


def _role_faults(
    account: Account, arn: object, service: str, actions: tuple[str, ...] = ("sts:AssumeRole",)
) -> Iterator[str]:
    role = account.find(ROLE, "arn", arn) if isinstance(arn, str) and arn != UNKNOWN else None
    if role is not None and not policies.trusts(role.outputs.get("assumeRolePolicy"), service, actions):
        yield f"InvalidParameterException: role {role.id} does not let {service} {' and '.join(actions)}"


def _cluster_update_rule(_account: Account, thing: Thing, inputs: Values) -> Iterator[str]:
    old, new = thing.outputs.get("version"), inputs.get("version")
    if isinstance(old, str) and isinstance(new, str) and UNKNOWN not in (old, new):
        step = int(new.split(".")[1]) - int(old.split(".")[1])
        if step not in (0, 1):
            yield f"InvalidParameterException: version {old} to {new}: EKS goes up by one minor version at a time"
    before, after = (
        first(thing.outputs, "accessConfig.authenticationMode"),
        first(inputs, "accessConfig.authenticationMode"),
    )
    if before in MODES and after in MODES and MODES[after] < MODES[before]:
        yield f"InvalidParameterException: authentication mode cannot go back from {before} to {after}"


def _cluster_delete_rule(_account: Account, thing: Thing) -> Iterator[str]:
    if thing.inputs.get("deletionProtection") is True:
        yield f"InvalidRequestException: deletion protection of cluster {thing.id} is on"


def _node_group(maker: Maker, inputs: Values) -> Made:
    cluster, name = str(inputs["clusterName"]), str(inputs["nodeGroupName"])
    group = f"eks-{name}-{maker.uuid()}"
    outputs = {
        "arn": maker.arn("eks", f"nodegroup/{cluster}/{name}/{maker.uuid()}"),
        "resources": [{"autoscalingGroups": [{"name": group}], "remoteAccessSecurityGroupId": ""}],
        "status": "ACTIVE",
        "amiType": inputs.get("amiType", "AL2023_x86_64_STANDARD"),
        "capacityType": inputs.get("capacityType", "ON_DEMAND"),
    }
    entry = {
        "id": f"{cluster}:{inputs['nodeRoleArn']}",
        "clusterName": cluster,
        "principalArn": inputs["nodeRoleArn"],
        "type": "EC2_LINUX",
    }
    scaling = Part(SCALING_GROUP, {"id": group, "name": group, "clusterName": cluster})
    return Made(f"{cluster}:{name}", outputs, (scaling, Part(ACCESS_ENTRY, entry)))


def _node_group_rule(account: Account, inputs: Values) -> Iterator[str]:
    cluster = account.get(CLUSTER, inputs.get("clusterName"))
    yield from _scaling_faults(inputs.get("scalingConfig") or {})
    yield from _role_faults(account, inputs.get("nodeRoleArn"), "ec2.amazonaws.com")
    if cluster is not None:
        yield from _join_faults(account, cluster, inputs)
        yield from _placement_faults(account, cluster, inputs)
    yield from _image_faults(inputs)
    yield from _template_faults(account, inputs)
    taints = inputs.get("taints") or ()
    if len(taints) > TAINTS:
        yield f"InvalidParameterException: {len(taints)} taints; at most {TAINTS}"
    keys = [(first(taint, "key"), first(taint, "effect")) for taint in taints if isinstance(taint, Mapping)]
    if len(set(keys)) != len(keys):
        yield f"InvalidParameterException: a taint is given twice: {keys}"


def _scaling_faults(scaling: Mapping[str, Any]) -> Iterator[str]:
    low, desired, high = (scaling.get(name) for name in ("minSize", "desiredSize", "maxSize"))
    if not (isinstance(low, int) and isinstance(desired, int) and isinstance(high, int)):
        return
    if low < 0 or high < 1:
        yield f"InvalidParameterException: minSize {low} is at least 0 and maxSize {high} at least 1"
    if low > high:
        yield f"InvalidParameterException: minimum capacity {low} can't be greater than maximum capacity {high}"
    if not low <= desired <= high:
        yield f"InvalidParameterException: desired capacity {desired} is not between {low} and {high}"


def _join_faults(account: Account, cluster: Thing, inputs: Values) -> Iterator[str]:
    """What keeps nodes from joining: EKS reports it after half an hour as NodeCreationFailure."""
    role = account.find(ROLE, "arn", inputs.get("nodeRoleArn"))
    if role is None or not first(inputs, "scalingConfig.desiredSize"):
        return
    there = attached(account, role.id)
    addons = {one.inputs["addonName"]: one for one in account.of(ADDON) if one.inputs["clusterName"] == cluster.id}
    pods = {
        (one.inputs["namespace"], one.inputs["serviceAccount"])
        for one in account.of(POD_IDENTITY_ASSOCIATION)
        if one.inputs["clusterName"] == cluster.id
    }
    cni = addons.get("vpc-cni")
    cni_by_itself = ("kube-system", "aws-node") in pods or (
        cni is not None and (given(cni.inputs, "podIdentityAssociations") or given(cni.inputs, "serviceAccountRoleArn"))
    )
    needs = [
        ({"AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy"}, True),
        ({"AmazonEC2ContainerRegistryReadOnly", "AmazonEC2ContainerRegistryPullOnly"}, True),
        ({"AmazonEKS_CNI_Policy"}, not cni_by_itself),
    ]
    for any_of, needed in needs:
        if needed and not any_of & there:
            lacks = ", ".join(sorted(any_of))
            yield f"NodeCreationFailure: instances failed to join: role {role.id} has none of {lacks}"
    if cni is None and cluster.inputs.get("bootstrapSelfManagedAddons") is False:
        yield "NodeCreationFailure: instances failed to join: the cluster has no network plugin (add-on vpc-cni)"


def _placement_faults(account: Account, cluster: Thing, inputs: Values) -> Iterator[str]:
    subnets = values_at(inputs, "subnetIds")
    vpcs = vpc_of_subnets(account, subnets)
    own = vpc_of_subnets(account, values_at(cluster.inputs, "vpcConfig.subnetIds"))
    if vpcs and own and vpcs != own:
        yield "InvalidParameterException: subnets of the node group are not in the cluster's network"
    if given(inputs, "version") and UNKNOWN not in (inputs["version"], cluster.outputs.get("version")):
        version = cluster.outputs.get("version")
        if isinstance(version, str) and int(inputs["version"].split(".")[1]) > int(version.split(".")[1]):
            yield f"InvalidParameterException: version {inputs['version']} is newer than the cluster's {version}"
    template = _template(account, inputs)
    placement = first(template.inputs, "placement.groupName") if template else None
    group = account.find(PLACEMENT_GROUP, "name", placement) if placement else None
    if group is not None and group.inputs.get("strategy") == "cluster" and len(zones_of_subnets(account, subnets)) > 1:
        yield f"InvalidParameterException: placement group {group.id} (cluster) cannot span availability zones"


def _is_arm(instance_type: str) -> bool:
    """Graviton stands as a g after the generation's number: g5g, m7gd, c6gn."""
    return bool(re.fullmatch(r"[a-z]+\d+[a-z]*g[a-z]*", instance_type.split(".", maxsplit=1)[0]))


def _image_faults(inputs: Values) -> Iterator[str]:
    image = inputs.get("amiType")
    if not isinstance(image, str) or image in (UNKNOWN, "CUSTOM"):
        return
    for instance_type in values_at(inputs, "instanceTypes"):
        if _is_arm(instance_type) != ("ARM_64" in image):
            yield f"InvalidParameterException: [{instance_type}] is not a valid instance type for amiType {image}"
    version = inputs.get("version")
    if (
        isinstance(version, str)
        and VERSION.fullmatch(version)
        and image.startswith("AL2_")
        and int(version[2:]) > LAST_VERSION_OF_AL2
    ):
        yield f"InvalidParameterException: amiType {image} is not supported for Kubernetes {version}"


def _template(account: Account, inputs: Values) -> Thing | None:
    chosen = inputs.get("launchTemplate")
    if not isinstance(chosen, Mapping):
        return None
    return account.get(LAUNCH_TEMPLATE, chosen.get("id")) or account.find(LAUNCH_TEMPLATE, "name", chosen.get("name"))


def _template_faults(account: Account, inputs: Values) -> Iterator[str]:
    if not given(inputs, "launchTemplate"):
        if inputs.get("capacityType") == "CAPACITY_BLOCK":
            yield "InvalidParameterException: capacityType CAPACITY_BLOCK needs a launch template with the reservation"
        return
    for name in ("diskSize", "remoteAccess"):
        if given(inputs, name):
            yield f"InvalidParameterException: {name} cannot be given together with a launch template"
    template = _template(account, inputs)
    if template is not None:
        yield from _version_faults(template, first(inputs, "launchTemplate.version"))
        yield from _content_faults(template.inputs, inputs)
        yield from _market_faults(template.inputs, inputs.get("capacityType", "ON_DEMAND"))


def _content_faults(content: Values, inputs: Values) -> Iterator[str]:
    """EKS User Guide, "Launch template configuration basics": what stands in the group only, or in one of the two."""
    if given(content, "instanceType") and given(inputs, "instanceTypes"):
        yield "InvalidParameterException: instance types stand in the node group or in its template, not in both"
    if given(content, "imageId") and inputs.get("amiType") not in (None, "CUSTOM", UNKNOWN):
        yield "InvalidParameterException: amiType together with an image in the launch template"
    for name in ("iamInstanceProfile", "hibernationOptions", "instanceInitiatedShutdownBehavior"):
        if given(content, name):
            yield f"InvalidParameterException: launch template of a node group cannot have {name}"
    if values_at(content, "networkInterfaces.subnetId"):
        yield "InvalidParameterException: launch template of a node group cannot name a subnet"


def _market_faults(content: Values, capacity: object) -> Iterator[str]:
    market = first(content, "instanceMarketOptions.marketType")
    reservation = first(content, "capacityReservationSpecification.capacityReservationTarget.capacityReservationId")
    if (capacity == "CAPACITY_BLOCK") != (market == "capacity-block"):
        yield f"InvalidParameterException: capacityType {capacity} with marketType {market} in the launch template"
    if market == "spot":
        yield "InvalidParameterException: spot is asked for by capacityType, not in the launch template"
    if capacity == "CAPACITY_BLOCK" and reservation is None:
        yield "InvalidParameterException: the launch template of a capacity block names its reservation"


def _version_faults(template: Thing, version: object) -> Iterator[str]:
    if version is None or version in ("$Latest", "$Default"):
        return
    latest = int(template.outputs["latestVersion"])
    if not str(version).isdigit() or not 1 <= int(str(version)) <= latest:
        yield f"InvalidRequestException: launch template {template.id} has versions 1 to {latest}, not {version}"


def _addon(maker: Maker, inputs: Values) -> Made:
    cluster, name = str(inputs["clusterName"]), str(inputs["addonName"])
    outputs = {
        "arn": maker.arn("eks", f"addon/{cluster}/{name}/{maker.uuid()}"),
        "addonVersion": inputs.get("addonVersion", "v1.0.0-eksbuild.1"),
        "createdAt": "2026-01-01T00:00:00Z",
        "modifiedAt": "2026-01-01T00:00:00Z",
    }
    return Made(f"{cluster}:{name}", outputs, part_of=f"{CLUSTER}|{cluster}")


def _addon_rule(account: Account, inputs: Values) -> Iterator[str]:
    name, version = inputs.get("addonName"), inputs.get("addonVersion")
    if name not in (*ADDONS, UNKNOWN):
        yield f"InvalidParameterException: addon {name} specified is not supported"
    if isinstance(version, str) and version != UNKNOWN and not ADDON_VERSION.fullmatch(version):
        yield f"InvalidParameterException: addon version {version} is not of the form v1.2.3-eksbuild.1"
    yield from _configuration_faults(name, inputs.get("configurationValues"))
    for association in inputs.get("podIdentityAssociations") or ():
        if isinstance(association, Mapping):
            yield from _role_faults(account, association.get("roleArn"), POD_IDENTITY, POD_IDENTITY_ACTIONS)
    cluster = inputs.get("clusterName")
    if name in NODES_OF_DEPLOYMENTS and account.get(CLUSTER, cluster) and not _holds_deployments(account, cluster):
        yield (
            f"AddonTimeout: waiting for {name} to become ACTIVE (last status DEGRADED, InsufficientNumberOfReplicas):"
            " no node without taints is there"
        )


def _configuration_faults(name: object, text: object) -> Iterator[str]:
    if not isinstance(text, str) or text == UNKNOWN:
        return
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        yield f"InvalidParameterException: configurationValues is not JSON: {error}"
        return
    if (
        name == "vpc-cni"
        and "enableNetworkPolicy" in document
        and document["enableNetworkPolicy"] not in ("true", "false")
    ):
        yield 'InvalidParameterException: configurationValues: enableNetworkPolicy is the text "true" or "false"'


def _holds_deployments(account: Account, cluster: object) -> bool:
    return any(
        first(group.inputs, "scalingConfig.desiredSize")
        and not {"NO_SCHEDULE", "NO_EXECUTE"} & set(values_at(group.inputs, "taints.effect"))
        for group in account.of(NODE_GROUP)
        if group.inputs["clusterName"] == cluster
    )


def _entry(maker: Maker, inputs: Values) -> Made:
    cluster, principal = str(inputs["clusterName"]), str(inputs["principalArn"])
    outputs = {
        "accessEntryArn": maker.arn("eks", f"access-entry/{cluster}/role/{maker.number}/x/{maker.uuid()}"),
        "type": inputs.get("type", "STANDARD"),
        "userName": inputs.get("userName", principal),
        "createdAt": "2026-01-01T00:00:00Z",
        "modifiedAt": "2026-01-01T00:00:00Z",
    }
    return Made(f"{cluster}:{principal}", outputs, part_of=f"{CLUSTER}|{cluster}")


def _entry_rule(account: Account, inputs: Values) -> Iterator[str]:
    yield from _principal_faults(inputs.get("principalArn"))
    yield from _mode_faults(account, inputs.get("clusterName"))
    for group in values_at(inputs, "kubernetesGroups"):
        if str(group).startswith("system:"):
            yield f"InvalidParameterException: kubernetesGroups: {group} starts with system:"
    if inputs.get("type", "STANDARD") not in ("STANDARD", UNKNOWN) and given(inputs, "kubernetesGroups"):
        yield f"InvalidParameterException: an entry of type {inputs['type']} takes no groups"


def _principal_faults(arn: object) -> Iterator[str]:
    form = r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/\S+"
    if isinstance(arn, str) and arn != UNKNOWN and not re.fullmatch(form, arn):
        yield f"InvalidParameterException: principalArn {arn} is not the ARN of an IAM role or user"


def _mode_faults(account: Account, cluster: object) -> Iterator[str]:
    thing = account.get(CLUSTER, cluster)
    if thing is not None and first(thing.outputs, "accessConfig.authenticationMode") == "CONFIG_MAP":
        yield f"InvalidRequestException: authentication mode of {cluster} is CONFIG_MAP; access entries need API"


def _grant(_maker: Maker, inputs: Values) -> Made:
    cluster, principal = str(inputs["clusterName"]), str(inputs["principalArn"])
    outputs = {"associatedAt": "2026-01-01T00:00:00Z", "modifiedAt": "2026-01-01T00:00:00Z"}
    identity = f"{cluster}#{principal}#{inputs['policyArn']}"
    return Made(identity, outputs, part_of=f"{ACCESS_ENTRY}|{cluster}:{principal}")


def _grant_rule(account: Account, inputs: Values) -> Iterator[str]:
    cluster, principal, policy = (inputs.get(name) for name in ("clusterName", "principalArn", "policyArn"))
    if UNKNOWN not in (cluster, principal) and account.get(ACCESS_ENTRY, f"{cluster}:{principal}") is None:
        yield f"ResourceNotFoundException: {cluster} has no access entry for {principal}"
    if policy not in (*ACCESS_POLICIES, UNKNOWN):
        yield f"InvalidParameterException: {policy} is not an access policy of EKS"
    scope = inputs.get("accessScope") or {}
    if scope.get("type") == "namespace" and not scope.get("namespaces"):
        yield "InvalidParameterException: accessScope of type namespace names its namespaces"
    if scope.get("type") == "cluster" and scope.get("namespaces"):
        yield "InvalidParameterException: accessScope of type cluster takes no namespaces"


def _pod_identity(maker: Maker, inputs: Values) -> Made:
    cluster, identity = str(inputs["clusterName"]), maker.id("a")
    outputs = {
        "associationArn": maker.arn("eks", f"podidentityassociation/{cluster}/{identity}"),
        "associationId": identity,
        "externalId": maker.uuid(),
    }
    return Made(identity, outputs, part_of=f"{CLUSTER}|{cluster}")


def _pod_identity_rule(account: Account, inputs: Values) -> Iterator[str]:
    yield from _role_faults(account, inputs.get("roleArn"), POD_IDENTITY, POD_IDENTITY_ACTIONS)
    wanted = inputs.get("serviceAccount")
    for addon in account.of(ADDON):
        taken = values_at(addon.inputs, "podIdentityAssociations.serviceAccount")
        if addon.inputs["clusterName"] == inputs.get("clusterName") and wanted in taken:
            yield f"ResourceInUseException: add-on {addon.inputs['addonName']} owns the association of {wanted}"


def _launch_template(maker: Maker, inputs: Values) -> Made:
    identity = maker.id("lt")
    outputs = {"arn": maker.arn("ec2", f"launch-template/{identity}"), "latestVersion": 1, "defaultVersion": 1}
    return Made(identity, outputs | dict(inputs))


def _next_version(thing: Thing, inputs: Values) -> Values:
    latest = int(thing.outputs["latestVersion"]) + 1
    default = latest if inputs.get("updateDefaultVersion") else thing.outputs["defaultVersion"]
    return {"latestVersion": latest, "defaultVersion": default}


def _launch_template_rule(account: Account, inputs: Values) -> Iterator[str]:
    data = inputs.get("userData")
    if isinstance(data, str) and data != UNKNOWN:
        try:
            base64.b64decode(data, validate=True)
        except binascii.Error:
            yield "InvalidUserData.Malformed: userData is not base64"
    group = first(inputs, "placement.groupName")
    if group is not None and account.find(PLACEMENT_GROUP, "name", group) is None:
        yield f"InvalidPlacementGroup.Unknown: placement group {group} does not exist"
    for text in values_at(inputs, "blockDeviceMappings.ebs.encrypted"):
        if text not in ("true", "false"):
            yield f"InvalidParameterValue: blockDeviceMappings.ebs.encrypted is true or false as text, got {text}"
    groups = [*values_at(inputs, "vpcSecurityGroupIds"), *values_at(inputs, "networkInterfaces.securityGroups")]
    if len(vpc_of_groups(account, groups)) > 1:
        yield "InvalidParameter: the security groups belong to different networks"


def _scaling_tag(_maker: Maker, inputs: Values) -> Made:
    group, key = str(inputs["autoscalingGroupName"]), first(inputs, "tag.key")
    return Made(f"{group},{key}", {}, part_of=f"{SCALING_GROUP}|{group}")


def _scaling_tag_rule(account: Account, inputs: Values) -> Iterator[str]:
    key = first(inputs, "tag.key")
    for other in account.others(SCALING_TAG):
        same = other.inputs.get("autoscalingGroupName") == inputs.get("autoscalingGroupName") != UNKNOWN
        if same and key is not None and first(other.inputs, "tag.key") == key:
            yield f"AlreadyExists: the group has a tag {key}"


_CLUSTER = Reference("clusterName", CLUSTER, by="name", code="ResourceNotFoundException")
_LOOSE_CLUSTER = Reference("clusterName", CLUSTER, by="name", holds=False, code="ResourceNotFoundException")
_OWN_ROLE = "arn:aws:iam::{account}:role/"

KINDS = (
    Kind(
        CLUSTER,
        _cluster,
        name="name",
        name_limit=100,
        immutable=frozenset(
            {
                "name",
                "roleArn",
                "encryptionConfig",
                "kubernetesNetworkConfig",
                "bootstrapSelfManagedAddons",
                "outpostConfig",
                "accessConfig.bootstrapClusterCreatorAdminPermissions",
            }
        ),
        references=(
            Reference("roleArn", ROLE, by="arn"),
            Reference("vpcConfig.subnetIds", SUBNET),
            Reference("vpcConfig.securityGroupIds", SECURITY_GROUP),
            Reference("encryptionConfig.provider.keyArn", KEY, by="arn"),
        ),
        allowed={
            "enabledClusterLogTypes": frozenset({"api", "audit", "authenticator", "controllerManager", "scheduler"}),
            "accessConfig.authenticationMode": frozenset(MODES),
            "kubernetesNetworkConfig.ipFamily": frozenset({"ipv4", "ipv6"}),
            "upgradePolicy.supportType": frozenset({"STANDARD", "EXTENDED"}),
        },
        rules=(_cluster_rule,),
        update_rules=(_cluster_update_rule,),
        delete_rules=(_cluster_delete_rule,),
        nested={"vpcConfig": ("clusterSecurityGroupId", "vpcId")},
    ),
    Kind(
        NODE_GROUP,
        _node_group,
        name="nodeGroupName",
        name_limit=63,
        scope=("clusterName", "nodeGroupName"),
        immutable=frozenset(
            {
                "amiType",
                "capacityType",
                "clusterName",
                "diskSize",
                "instanceTypes",
                "nodeGroupName",
                "nodeGroupNamePrefix",
                "nodeRoleArn",
                "remoteAccess",
                "subnetIds",
                "launchTemplate.id",
                "launchTemplate.name",
            }
        ),
        references=(
            _CLUSTER,
            Reference("nodeRoleArn", ROLE, by="arn"),
            Reference("subnetIds", SUBNET),
            Reference("launchTemplate.id", LAUNCH_TEMPLATE, code="InvalidRequestException"),
        ),
        allowed={
            "amiType": AMI_TYPES,
            "capacityType": frozenset({"ON_DEMAND", "SPOT", "CAPACITY_BLOCK"}),
            "taints.effect": frozenset({"NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"}),
        },
        at_most_one=(("nodeGroupName", "nodeGroupNamePrefix"),),
        rules=(_node_group_rule,),
    ),
    Kind(
        ADDON,
        _addon,
        scope=("clusterName", "addonName"),
        immutable=frozenset({"clusterName", "addonName"}),
        references=(
            _LOOSE_CLUSTER,
            Reference("serviceAccountRoleArn", ROLE, by="arn", within=_OWN_ROLE),
            Reference("podIdentityAssociations.roleArn", ROLE, by="arn", within=_OWN_ROLE),
        ),
        allowed={
            "resolveConflictsOnCreate": frozenset({"NONE", "OVERWRITE"}),
            "resolveConflictsOnUpdate": frozenset({"NONE", "OVERWRITE", "PRESERVE"}),
        },
        at_most_one=(("serviceAccountRoleArn", "podIdentityAssociations"),),
        rules=(_addon_rule,),
    ),
    Kind(
        ACCESS_ENTRY,
        _entry,
        scope=("clusterName", "principalArn"),
        immutable=frozenset({"clusterName", "principalArn", "type"}),
        references=(_LOOSE_CLUSTER, Reference("principalArn", ROLE, by="arn", within=_OWN_ROLE)),
        allowed={
            "type": frozenset(
                {"STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX"}
            )
        },
        rules=(_entry_rule,),
    ),
    Kind(
        ACCESS_POLICY_ASSOCIATION,
        _grant,
        scope=("clusterName", "principalArn", "policyArn"),
        immutable=frozenset({"clusterName", "principalArn", "policyArn", "accessScope"}),
        references=(_LOOSE_CLUSTER,),
        allowed={"accessScope.type": frozenset({"cluster", "namespace"})},
        rules=(_grant_rule,),
    ),
    Kind(
        POD_IDENTITY_ASSOCIATION,
        _pod_identity,
        scope=("clusterName", "namespace", "serviceAccount"),
        immutable=frozenset({"clusterName", "namespace", "serviceAccount"}),
        references=(_LOOSE_CLUSTER, Reference("roleArn", ROLE, by="arn")),
        rules=(_pod_identity_rule,),
    ),
    Kind(
        LAUNCH_TEMPLATE,
        _launch_template,
        name="name",
        name_limit=125,
        taken="InvalidLaunchTemplateName.AlreadyExistsException",
        immutable=frozenset({"name", "namePrefix"}),
        references=(
            Reference("vpcSecurityGroupIds", SECURITY_GROUP, code="InvalidGroup.NotFound"),
            Reference("networkInterfaces.securityGroups", SECURITY_GROUP, code="InvalidGroup.NotFound"),
            Reference("blockDeviceMappings.ebs.kmsKeyId", KEY, by="arn", code="InvalidKmsKeyId.NotFound"),
        ),
        allowed={
            "metadataOptions.httpTokens": frozenset({"optional", "required"}),
            "metadataOptions.httpEndpoint": frozenset({"enabled", "disabled"}),
            "blockDeviceMappings.ebs.volumeType": frozenset({"standard", "io1", "io2", "gp2", "gp3", "sc1", "st1"}),
            "instanceMarketOptions.marketType": frozenset({"spot", "capacity-block"}),
            "networkInterfaces.interfaceType": frozenset({"interface", "efa", "efa-only"}),
            "capacityReservationSpecification.capacityReservationPreference": frozenset(
                {"capacity-reservations-only", "open", "none"}
            ),
        },
        at_most_one=(
            ("name", "namePrefix"),
            ("networkInterfaces", "vpcSecurityGroupIds", "securityGroupNames"),
            ("defaultVersion", "updateDefaultVersion"),
        ),
        rules=(_launch_template_rule,),
        renewed=_next_version,
        renewed_names=frozenset({"latestVersion"}),
    ),
    Kind(
        PLACEMENT_GROUP,
        lambda maker, inputs: Made(
            str(inputs["name"]),
            {
                "arn": maker.arn("ec2", f"placement-group/{inputs['name']}"),
                "placementGroupId": maker.id("pg"),
                "partitionCount": inputs.get("partitionCount", 0),
                "spreadLevel": inputs.get("spreadLevel", ""),
            },
        ),
        name="name",
        taken="InvalidPlacementGroup.Duplicate",
        in_use="InvalidPlacementGroup.InUse",
        immutable=frozenset({"name", "strategy", "partitionCount", "spreadLevel"}),
        allowed={"strategy": frozenset({"cluster", "partition", "spread"})},
    ),
    Kind(
        SCALING_TAG,
        _scaling_tag,
        immutable=frozenset({"autoscalingGroupName", "tag.key"}),
        references=(Reference("autoscalingGroupName", SCALING_GROUP, by="name", holds=False, code="ValidationError"),),
        rules=(_scaling_tag_rule,),
    ),
)
