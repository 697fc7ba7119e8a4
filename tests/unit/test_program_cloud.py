"""The whole program for the stacks in AWS: what it registers, with what, and in which order.

Each invariant of the design that can be seen here is checked over all resources of every stack, with what AWS adds
known and unknown.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from components import access
from fleet import aws_addons, aws_nodes, aws_policies, monitoring, names, settings
from tests.unit import graph
from tests.unit.test_program import texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.settings import Settings
    from tests.unit.graph import Graph, Registered

CLOUD = ("dev", "prod")


def _kind(one: Registered) -> str:
    return one.type.rpartition(":")[2]


def _made(run: Graph, kind: str) -> list[Registered]:
    return [one for one in run.resources if one.is_aws and _kind(one) == kind]


@pytest.fixture(scope="module")
def runs(stacks: dict[str, Graph]) -> dict[str, Graph]:
    """What each stack registers, every output known."""
    return stacks


@pytest.fixture(scope="module")
def planned(project: Path) -> dict[str, Graph]:
    """What the stacks in AWS register at the preview of a first update: nothing that AWS adds is known."""
    return {name: graph.run(project, graph.stack_config(project, name), stack=name, known=False) for name in CLOUD}


@pytest.fixture(scope="module")
def told(project: Path) -> dict[str, Settings]:
    return {name: settings.load(graph.stack_config(project, name), project) for name in CLOUD}


def test_a_first_plan_is_the_update_b09(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    for name in CLOUD:
        assert sorted(one.urn for one in planned[name].resources) == sorted(one.urn for one in runs[name].resources)


def test_no_description_of_an_output_got_into_a_string_b41(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    for run in (*runs.values(), *planned.values()):
        for one in run.resources:
            assert [text for text in texts(one.inputs) if "Output object at" in text or "__str__" in text] == []


def test_each_resource_uses_the_stacks_own_provider(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    for name, run in (*runs.items(), *planned.items()):
        (provider,) = run.of(graph.PROVIDER)
        assert {one.provider for one in run.resources if one.is_kubernetes} == {provider.urn}
        if name != "local":
            (account,) = run.of(graph.AWS_PROVIDER)
            assert {one.provider for one in run.resources if one.is_aws} == {account.urn}
            assert account.inputs["region"]


def test_each_resource_belongs_to_a_component(runs: dict[str, Graph]) -> None:
    for run in runs.values():
        components = {one.urn for one in run.resources if not one.is_custom}
        assert [one.urn for one in run.resources if one.urn not in components and one.parent not in components] == []


def test_in_a_cluster_nothing_outlives_what_it_needs_to_be_deleted_b37(
    runs: dict[str, Graph], planned: dict[str, Graph]
) -> None:
    """Deletion goes the other way: a Kubernetes object goes while cluster, nodes, add-ons and access still stand."""
    for name in CLOUD:
        for run in (runs[name], planned[name]):
            needed = {
                one.urn
                for one in run.resources
                if one.type == graph.CLUSTER_COMPONENT
                or (
                    one.is_aws
                    and _kind(one) in {"NodeGroup", "AccessEntry", "AccessPolicyAssociation", "Addon", "Route"}
                    and one.name not in (aws_addons.EFS_DRIVER, aws_addons.EBS_DRIVER)
                )
            }
            assert len(needed) > len(aws_addons.BEFORE_NODES)
            early = [one.urn for one in run.resources if one.is_kubernetes and not needed <= run.behind(one)]
            assert early == []


def test_what_mounts_goes_before_what_is_mounted_b37(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    for name in CLOUD:
        for run in (runs[name], planned[name]):
            needed = {
                one.urn
                for one in run.resources
                if one.is_aws
                and (
                    _kind(one) in {"MountTarget", "AccessPoint", "FileSystem"}
                    or (_kind(one) == "SecurityGroupIngressRule" and one.name.startswith(names.STORE_NAME))
                    or (_kind(one) == "PodIdentityAssociation" and one.name.startswith("efs-"))
                    or one.name == aws_addons.EFS_DRIVER
                )
            }
            assert len(needed) > len(CLOUD)
            for one in (*run.of(graph.VOLUME), *run.of(graph.CLAIM), *run.of(graph.JOB), *run.of(graph.DEPLOYMENT)):
                assert needed - run.behind(one) == set()


def test_pods_wait_for_what_brings_their_nodes(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        release = runs[name].one(graph.RELEASE, "cluster-autoscaler")
        assert all(release.urn in runs[name].behind(one) for one in runs[name].of(graph.DEPLOYMENT))
        (proof,) = runs[name].of(graph.VERIFICATION)
        others = {one.urn for one in runs[name].resources if one.is_kubernetes}
        assert others <= runs[name].behind(proof)


def _groups(run: Graph, sku: str) -> list[Registered]:
    return [one for one in _made(run, "NodeGroup") if one.inputs["labels"].get(names.LABEL_SKU) == sku]


def _tags(run: Graph, group: Registered) -> dict[str, str]:
    """What the node autoscaler is told of a group, by the tag's key below its prefix."""
    return {
        one.inputs["tag"]["key"].removeprefix(f"{aws_nodes.TEMPLATE_TAG}/"): one.inputs["tag"]["value"]
        for one in _made(run, "Tag")
        if one.name.startswith(f"{group.name}/")
    }


def test_pods_tolerate_their_nodes_taints_and_select_what_those_nodes_have_b34(runs: dict[str, Graph]) -> None:
    spelled = {eks: kubernetes for kubernetes, eks in aws_nodes.TAINT_EFFECTS.items()}
    for name in CLOUD:
        run = runs[name]
        for deployment in run.of(graph.DEPLOYMENT):
            template = deployment.inputs["spec"]["template"]
            groups = _groups(run, template["metadata"]["labels"][names.LABEL_SKU])
            assert groups
            for group in groups:
                taints = [
                    {"key": taint["key"], "value": taint["value"], "effect": spelled[taint["effect"]]}
                    for taint in group.inputs["taints"]
                ]
                tolerated = [
                    {key: one.get(key, "") for key in ("key", "value", "effect")}
                    for one in template["spec"]["tolerations"]
                ]
                assert taints == tolerated != []
                written = {**group.inputs["labels"], **_discovered(run, group)}
                required = template["spec"]["affinity"]["nodeAffinity"][
                    "requiredDuringSchedulingIgnoredDuringExecution"
                ]
                (term,) = required["nodeSelectorTerms"]
                assert len(term["matchExpressions"]) > 1
                assert all(one["values"] == [written[one["key"]]] for one in term["matchExpressions"])


def _discovered(run: Graph, group: Registered) -> dict[str, str]:
    """What GPU feature discovery writes on a node of the group."""
    return {names.NODE_GPU_PRODUCT_LABEL: _tags(run, group)[f"label/{names.NODE_GPU_PRODUCT_LABEL}"]}


def test_a_group_without_nodes_can_be_scaled_up_b45(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    """The tags stand on the Auto Scaling group, and say of a node what the node group makes it."""
    for name in CLOUD:
        run = runs[name]
        for group in _made(run, "NodeGroup"):
            tags = _tags(run, group)
            effects = {eks: kubernetes for kubernetes, eks in aws_nodes.TAINT_EFFECTS.items()}
            expected = {f"label/{key}": value for key, value in group.inputs["labels"].items()}
            expected |= {
                f"taint/{taint['key']}": f"{taint['value']}:{effects[taint['effect']]}"
                for taint in group.inputs["taints"]
            }
            added = {key: value for key, value in tags.items() if key not in expected}
            assert {key: tags[key] for key in expected} == expected
            gpu_keys = {f"label/{names.NODE_GPU_PRODUCT_LABEL}", f"resources/{names.GPU_RESOURCE}"}
            assert set(added) == (gpu_keys if names.LABEL_SKU in group.inputs["labels"] else set())
        asked = {one.inputs["autoscalingGroupName"] for one in _made(run, "Tag")}
        assert asked == {f"eks-{group.inputs['nodeGroupNamePrefix']}0123" for group in _made(run, "NodeGroup")}
        assert len(_made(planned[name], "Tag")) == len(_made(run, "Tag"))


def test_a_pod_asks_for_no_more_gpus_than_a_node_has(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        for deployment in runs[name].of(graph.DEPLOYMENT):
            template = deployment.inputs["spec"]["template"]
            (container,) = template["spec"]["containers"]
            asked = int(container["resources"]["limits"][names.GPU_RESOURCE])
            for group in _groups(runs[name], template["metadata"]["labels"][names.LABEL_SKU]):
                assert 1 <= asked <= int(_tags(runs[name], group)[f"resources/{names.GPU_RESOURCE}"])


def test_gpu_nodes_have_the_driver_and_the_others_do_not_b36(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        kinds = {one.name: one.inputs["amiType"] for one in _made(runs[name], "NodeGroup")}
        assert kinds.pop(aws_nodes.SYSTEM) == "AL2023_x86_64_STANDARD"
        assert set(kinds.values()) == {"AL2023_x86_64_NVIDIA"}


def test_system_nodes_take_every_pod(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        (system,) = [one for one in _made(runs[name], "NodeGroup") if one.name == aws_nodes.SYSTEM]
        assert system.inputs["taints"] == []
        assert system.inputs["scalingConfig"]["minSize"] >= 1


def test_a_node_joins_after_its_role_has_its_policies_and_its_add_ons_stand_b35(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        run = runs[name]
        policies = {one.urn for one in _made(run, "RolePolicyAttachment") if one.name.startswith("nodes-")}
        assert len(policies) == len(aws_policies.NODE_POLICIES)
        early = {one.urn for one in _made(run, "Addon") if one.name in aws_addons.BEFORE_NODES}
        assert len(early) == len(aws_addons.BEFORE_NODES)
        for group in _made(run, "NodeGroup"):
            assert policies | early <= run.behind(group)
        (control_plane,) = run.of(graph.CLUSTER_COMPONENT)
        assert control_plane.inputs["authenticationMode"] == "API"
        assert "roleMappings" not in control_plane.inputs
        assert "instanceRoles" not in control_plane.inputs


def test_how_many_nodes_there_are_is_the_autoscalers(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        assert {one.ignored for one in _made(runs[name], "NodeGroup")} == {frozenset({"scalingConfig.desiredSize"})}


def test_the_control_plane_is_private_unless_ranges_are_named(
    runs: dict[str, Graph], told: dict[str, Settings]
) -> None:
    for name in CLOUD:
        (one,) = runs[name].of(graph.CLUSTER_COMPONENT)
        cluster = told[name].cluster
        assert cluster.source == "eks"
        assert one.inputs["endpointPrivateAccess"] is True
        assert one.inputs["endpointPublicAccess"] is (cluster.access == "public")
        assert one.inputs.get("publicAccessCidrs", []) == list(cluster.public_cidrs)
        assert one.inputs["encryptionConfigKeyArn"].startswith("arn:aws:kms:")
        assert one.inputs["enabledClusterLogTypes"] == list(cluster.log_types)
        assert one.inputs["skipDefaultNodeGroup"] is True
        assert one.inputs["createOidcProvider"] is False


def test_add_ons_have_versions_and_network_policies_are_enforced(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        addons = {one.name: one.inputs for one in _made(runs[name], "Addon")}
        always = {*aws_addons.BEFORE_NODES, *aws_addons.AFTER_NODES, aws_addons.EFS_DRIVER}
        assert set(addons) == always | ({aws_addons.EBS_DRIVER} if name == "prod" else set())
        assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", one["addonVersion"]) for one in addons.values())
        assert json.loads(addons[aws_addons.VPC_CNI]["configurationValues"])["enableNetworkPolicy"] == "true"


def test_gpu_nodes_taints_do_not_keep_the_driver_away(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        (driver,) = [one for one in _made(runs[name], "Addon") if one.name == aws_addons.EFS_DRIVER]
        assert json.loads(driver.inputs["configurationValues"])["node"]["tolerations"] == [{"operator": "Exists"}]


def test_pods_get_their_identity_before_they_start(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        run = runs[name]
        identities = {
            (one.inputs["namespace"], one.inputs["serviceAccount"]): one for one in _made(run, "PodIdentityAssociation")
        }
        drivers = {one.name: run.behind(one) for one in _made(run, "Addon")}
        behind = {
            "cluster-autoscaler": run.behind(run.one(graph.RELEASE, "cluster-autoscaler")),
            "efs-csi-controller-sa": drivers[aws_addons.EFS_DRIVER],
            "efs-csi-node-sa": drivers[aws_addons.EFS_DRIVER],
            # Only where Prometheus has a disk of the stack's making.
            **({"ebs-csi-controller-sa": drivers[aws_addons.EBS_DRIVER]} if name == "prod" else {}),
        }
        assert set(identities) == {("kube-system", account) for account in behind}
        roles = {one.inputs["roleArn"] for one in identities.values()}
        assert len(roles) == len(identities)
        for (_, account), one in identities.items():
            assert one.urn in behind[account]
            policies = [
                policy.urn
                for policy in (*_made(run, "RolePolicy"), *_made(run, "RolePolicyAttachment"))
                if one.inputs["roleArn"].endswith(f":role/{policy.inputs['role']}")
            ]
            assert policies
            assert set(policies) <= run.behind(one)


def test_only_nodes_reach_the_file_system_b31(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        run = runs[name]
        (group,) = [one for one in _made(run, "SecurityGroup") if one.name == names.STORE_NAME]
        assert not {"ingress", "egress"} & group.inputs.keys()
        rules = [
            one.inputs
            for one in _made(run, "SecurityGroupIngressRule")
            if one.inputs["securityGroupId"] == f"{names.STORE_NAME}-id"
        ]
        assert rules == [
            {
                "securityGroupId": f"{names.STORE_NAME}-id",
                "referencedSecurityGroupId": graph.NODE_SECURITY_GROUP,
                "ipProtocol": "tcp",
                "fromPort": 2049,
                "toPort": 2049,
            }
        ]
        for template in _made(run, "LaunchTemplate"):
            interfaces = template.inputs.get("networkInterfaces", [])
            assert all(graph.NODE_SECURITY_GROUP in one["securityGroups"] for one in interfaces)
            assert "vpcSecurityGroupIds" not in template.inputs


def test_each_zone_with_nodes_has_one_mount_target(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        run = runs[name]
        zones = {f"{one.name}-id": one.inputs["availabilityZone"] for one in _made(run, "Subnet")}
        nodes = {zones[subnet] for one in _made(run, "NodeGroup") for subnet in one.inputs["subnetIds"]}
        targets = [zones[one.inputs["subnetId"]] for one in _made(run, "MountTarget")]
        assert sorted(targets) == sorted(set(targets))
        assert nodes <= set(targets)


def test_the_store_is_mounted_encrypted_with_an_identity_as_the_pods_user_b32_b33(
    runs: dict[str, Graph], planned: dict[str, Graph], told: dict[str, Settings]
) -> None:
    for name in CLOUD:
        run = runs[name]
        (volume,) = run.of(graph.VOLUME)
        assert volume.inputs["spec"]["mountOptions"] == ["tls", "iam"]
        assert re.fullmatch(r"fs-[0-9a-f]+::fsap-[0-9a-f]+", volume.inputs["spec"]["csi"]["volumeHandle"])
        (unknown,) = planned[name].of(graph.VOLUME)
        assert unknown.inputs["spec"]["mountOptions"] == ["tls", "iam"]
        (claim,) = run.of(graph.CLAIM)
        (kind,) = [one for one in run.of(graph.STORAGE_CLASS) if one.name != monitoring.STORAGE_CLASS]
        spec = volume.inputs["spec"]
        assert claim.inputs["spec"]["volumeName"] == volume.inputs["metadata"]["name"]
        assert {claim.inputs["spec"]["storageClassName"], spec["storageClassName"]} == {kind.inputs["metadata"]["name"]}
        assert (spec["accessModes"], spec["persistentVolumeReclaimPolicy"]) == (["ReadWriteMany"], "Retain")
        (point,) = _made(run, "AccessPoint")
        who = (told[name].serving.run_as_user, told[name].serving.run_as_group)
        user, made = point.inputs["posixUser"], point.inputs["rootDirectory"]["creationInfo"]
        assert (user["uid"], user["gid"]) == (made["ownerUid"], made["ownerGid"]) == who
        for _, template in run.pods():
            context = template["spec"]["securityContext"]
            assert (context["runAsUser"], context["runAsGroup"]) == who
        (files,) = _made(run, "FileSystem")
        assert files.inputs["encrypted"] is True


def test_prod_loses_neither_its_cluster_nor_its_files(runs: dict[str, Graph]) -> None:
    guarded = {one.type.rpartition(":")[2]: one for one in runs["prod"].resources if one.protect}
    assert set(guarded) == {"BackupPolicy", "Cluster", "FileSystem", "FileSystemPolicy", "Key"}
    kept = {_kind(one) for one in runs["prod"].resources if one.retained}
    assert kept == {"BackupPolicy", "FileSystem", "FileSystemPolicy"}
    assert guarded["BackupPolicy"].inputs["backupPolicy"] == {"status": "ENABLED"}
    assert [one.urn for one in runs["dev"].resources if one.protect or one.retained] == []


def _cidrs(value: object) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for text in texts(value):
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            continue
    return found


def test_no_range_is_wide_open(runs: dict[str, Graph], planned: dict[str, Graph]) -> None:
    """A default route leads out and lets nobody in; nothing else names such a range."""
    for run in (*runs.values(), *planned.values()):
        for one in run.resources:
            if _kind(one) != "Route":
                assert [str(cidr) for cidr in _cidrs(one.inputs) if cidr.prefixlen == 0] == []


def test_policies_name_resources_wherever_aws_knows_them(runs: dict[str, Graph]) -> None:
    seen = 0
    for run in runs.values():
        for one in run.resources:
            for key in ("policy", "assumeRolePolicy"):
                if one.is_aws and key in one.inputs:
                    seen += 1
                    document = json.loads(one.inputs[key])
                    assert document["Version"] == aws_policies.VERSION
                    for statement in document["Statement"]:
                        _check(statement)
    assert seen >= len(CLOUD) * len(("nodes", "control-plane", "client", "controller", "autoscaler"))


def _check(statement: dict[str, Any]) -> None:
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    assert not [action for action in actions if "*" in action]
    if statement.get("Resource") == "*":
        assert set(actions) <= aws_policies.UNSCOPED_ACTIONS
    if statement["Effect"] == "Allow":
        assert statement.get("Principal") not in ("*", {"AWS": "*"})


def test_nodes_have_encrypted_disks_and_metadata_that_pods_cannot_reach(runs: dict[str, Graph]) -> None:
    for name in CLOUD:
        templates = _made(runs[name], "LaunchTemplate")
        assert {one.name for one in templates} == {one.name for one in _made(runs[name], "NodeGroup")}
        for one in templates:
            assert one.inputs["metadataOptions"] == {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
            }
            (disk,) = one.inputs["blockDeviceMappings"]
            assert disk["ebs"]["encrypted"] == "true"


def test_images_and_charts_are_pinned(runs: dict[str, Graph]) -> None:
    for name, run in runs.items():
        for _, template in run.pods():
            for container in template["spec"]["containers"]:
                tag = container["image"].rpartition("/")[2]
                assert "@sha256:" in tag or (":" in tag and not tag.endswith(":latest"))
        for release in run.of(graph.RELEASE):
            if name == "local":  # a folder's charts have their version in themselves
                assert "version" not in release.inputs
            else:
                assert re.fullmatch(r"\d+\.\d+\.\d+", release.inputs["version"])
            for tag in _tags_in(release.inputs["values"]):
                assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


def _tags_in(values: object) -> Iterator[str]:
    """The tags of images that a chart is told."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from [value] if key == "tag" else _tags_in(value)


def test_the_kubeconfig_is_a_secret_wherever_it_goes(runs: dict[str, Graph]) -> None:
    for run in runs.values():
        for one in run.resources:
            plain = {
                key: value
                for key, value in one.inputs.items()
                if not (isinstance(value, dict) and graph.SECRET in value)
            }
            assert not any("canary-token" in text for text in texts(plain))


SHARED = {
    *aws_addons.VERSIONS["1.34"],
    "cluster-autoscaler",
    "verification",
}
"""Names that belong to what is inside one cluster: two clusters share nothing by having both."""


def test_dev_and_prod_share_no_name(runs: dict[str, Graph]) -> None:
    """Of what has a name in the account, and of what is the cluster's own and would be found by another stack there."""

    def called(run: Graph) -> set[str]:
        found = set()
        for one in run.resources:
            if one.is_aws or one.type == graph.CLUSTER_COMPONENT:
                keys = ("name", "nodeGroupNamePrefix", "creationToken", "clusterName")
                found |= {str(one.inputs[key]) for key in keys if key in one.inputs}
                found |= {value for key, value in one.inputs.get("tags", {}).items() if key == "Name"}
            elif one.is_kubernetes and "metadata" in one.inputs:
                metadata = one.inputs["metadata"]
                found.add(metadata.get("namespace") or metadata["name"])
        return found - {names.NAMESPACE_SYSTEM, names.NAMESPACE_MONITORING, monitoring.STORAGE_CLASS}

    dev, prod = called(runs["dev"]), called(runs["prod"])
    assert dev & prod == set()
    assert {"triton-dev"} <= dev
    assert {"triton-prod"} <= prod
    environments = [run.of(graph.AWS_PROVIDER)[0].inputs["defaultTags"] for run in (runs["dev"], runs["prod"])]
    assert environments[0] != environments[1]


def _prod(project: Path, **changes: object) -> dict[str, Any]:
    return {**graph.stack_config(project, "prod"), **changes}


def test_an_existing_vpc_is_left_as_it_is_and_each_of_its_zones_is_used_once(project: Path) -> None:
    config = _prod(project)
    subnets = [f"subnet-{number:017x}" for number in range(4)]
    config["cluster"]["network"] = {"vpc_id": f"vpc-{1:017x}", "private_subnet_ids": subnets}
    config["cluster"]["region"] = "eu-central-1"
    config["skus"][0]["instance"] |= {"zone": graph.ZONES[1]}
    for known in (True, False):
        run = graph.run(project, config, stack="prod", preview=not known, known=known)
        made = {"Vpc", "Subnet", "RouteTable", "Route", "NatGateway", "InternetGateway", "Eip"}
        assert [one.urn for one in run.resources if one.is_aws and _kind(one) in made] == []
        assert {one.name: one.inputs["subnetId"] for one in _made(run, "MountTarget")} == {
            f"model-store-{zone}": subnet for zone, subnet in zip(graph.ZONES, subnets, strict=False)
        }
        groups = {one.name: one.inputs["subnetIds"] for one in _made(run, "NodeGroup")}
        assert groups == {"system": subnets, "a100-40gb": [subnets[1]], "h100-80gb": subnets}
        (control_plane,) = run.of(graph.CLUSTER_COMPONENT)
        assert control_plane.inputs["privateSubnetIds"] == subnets


def test_an_existing_cluster_of_eks_is_adopted_and_nothing_of_it_is_made(project: Path) -> None:
    config = _prod(project, cluster={"source": "eks_existing", "name": "theirs", "region": "us-east-1"})
    for sku, (product, gpus) in zip(
        config["skus"], [("NVIDIA-A100-SXM4-40GB", 8), ("NVIDIA-H100-80GB-HBM3", 8)], strict=True
    ):
        del sku["instance"]
        sku |= {"gpu_product": product, "gpus_per_node": gpus}
    runs = [graph.run(project, config, stack="prod", preview=not known, known=known) for known in (True, False)]
    assert sorted(one.urn for one in runs[0].resources) == sorted(one.urn for one in runs[1].resources)
    run = runs[0]
    assert {_kind(one) for one in run.resources if one.type.startswith("aws:eks")} == {"PodIdentityAssociation"}
    assert run.of(graph.CLUSTER_COMPONENT) == []
    assert "cluster-autoscaler" not in {one.name for one in run.of(graph.RELEASE)}
    (rule,) = _made(run, "SecurityGroupIngressRule")
    assert rule.inputs["referencedSecurityGroupId"] == graph.NODE_SECURITY_GROUP
    assert len(_made(run, "MountTarget")) == len(graph.ZONES)
    (provider,) = run.of(graph.PROVIDER)
    assert "get-token" in provider.inputs["kubeconfig"]["value"]


def test_nodes_with_efa_are_in_the_clusters_group_and_in_one_that_lets_itself_in(project: Path) -> None:
    config = _prod(project)
    config["cluster"]["network"]["zones"] = list(graph.ZONES)
    config["cluster"]["region"] = "eu-central-1"
    config["skus"][0]["instance"] |= {"efa": True, "placement_group": True, "zone": graph.ZONES[0]}
    run = graph.run(project, config, stack="prod", preview=False)
    (template,) = [one for one in _made(run, "LaunchTemplate") if one.name == "a100-40gb"]
    interfaces = template.inputs["networkInterfaces"]
    assert [one["interfaceType"] for one in interfaces] == ["efa", "efa-only", "efa-only", "efa-only"]
    assert {tuple(one["securityGroups"]) for one in interfaces} == {(graph.NODE_SECURITY_GROUP, "efa-id")}
    assert template.inputs["placement"] == {"groupName": "triton-fleet-prod-a100-40gb"}
    for kind in ("SecurityGroupIngressRule", "SecurityGroupEgressRule"):
        (rule,) = [one.inputs for one in _made(run, kind) if one.name == "efa"]
        assert rule["securityGroupId"] == rule["referencedSecurityGroupId"] == "efa-id"
    (group,) = [one for one in _made(run, "NodeGroup") if one.name == "a100-40gb"]
    assert group.inputs["subnetIds"] == ["private-0-id"]


def test_a_kubeconfig_for_a_stack_that_is_not_reached_by_one_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(access.CLUSTER_VARIABLE, "some/kubeconfig")
    with pytest.raises(graph.Refusal, match="this file would be ignored in silence") as refusal:
        graph.run(project, _prod(project), stack="prod")
    assert refusal.value.registered == 0
