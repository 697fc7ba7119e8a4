"""What add-ons, charts, the node autoscaler and the file system are told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleet import aws_addons, aws_autoscaler, aws_store, charts
from fleet.catalog.charts import CHARTS
from fleet.charts import Located
from fleet.schema import Chart, Charts, EfsStore, ProvisionedThroughput, Serving

if TYPE_CHECKING:
    from fleet.schema_base import AddonName

NAME = "cluster-autoscaler"
UPSTREAM = CHARTS[NAME]
OVERRIDE = Chart(repository="https://charts.invalid", version="1.2.3")
OCI_OVERRIDE = Chart(repository="oci://registry.invalid/charts/", version="1.2.3")


@pytest.mark.parametrize(
    ("settings", "located"),
    [
        (Charts(), Located(NAME, UPSTREAM.versions["current"], UPSTREAM.repository)),
        (Charts(overrides={NAME: OVERRIDE}), Located(NAME, "1.2.3", "https://charts.invalid")),
        (
            Charts(overrides={NAME: OCI_OVERRIDE}),
            Located("oci://registry.invalid/charts/cluster-autoscaler", "1.2.3", None),
        ),
        (Charts(mirror="local/charts"), Located("local/charts/cluster-autoscaler", None, None)),
        (
            Charts(mirror="oci://registry.invalid/mirror", overrides={NAME: OVERRIDE}),
            Located("oci://registry.invalid/mirror/cluster-autoscaler", "1.2.3", None),
        ),
    ],
)
def test_a_chart_is_found_where_the_settings_say(settings: Charts, located: Located) -> None:
    assert charts.locate(settings, NAME) == located


def test_an_add_ons_version_is_pinned_and_can_be_replaced() -> None:
    overrides: dict[AddonName, str] = {"coredns": "v1.99.0-eksbuild.1"}
    assert aws_addons.version("1.34", "coredns", {}) == "v1.12.3-eksbuild.1"
    assert aws_addons.version("1.34", "coredns", overrides) == "v1.99.0-eksbuild.1"
    assert aws_addons.missing("1.34", {}) == []
    assert aws_addons.missing("1.99", overrides) == [
        "vpc-cni",
        "kube-proxy",
        "eks-pod-identity-agent",
        "aws-efs-csi-driver",
    ]


def test_only_what_differs_from_an_add_ons_defaults_is_configured() -> None:
    told = {
        addon: aws_addons.configuration(addon)
        for addon in (*aws_addons.BEFORE_NODES, *aws_addons.AFTER_NODES, aws_addons.EFS_DRIVER)
    }
    assert {addon: json.loads(values) for addon, values in told.items() if values is not None} == {
        "vpc-cni": {"enableNetworkPolicy": "true"},
        "aws-efs-csi-driver": {"node": {"tolerations": [{"operator": "Exists"}]}},
    }


def test_the_autoscaler_finds_the_groups_of_its_cluster_and_runs_on_system_nodes() -> None:
    values = aws_autoscaler.values("fleet", "eu-west-1", "1.34", 61)
    assert values["autoDiscovery"] == {"clusterName": "fleet"}
    assert values["awsRegion"] == "eu-west-1"
    assert values["image"] == {"tag": "v1.34.3"}
    assert values["nodeSelector"] == {"triton-fleet.io/node-role": "system"}
    assert values["rbac"]["serviceAccount"] == {"create": True, "name": aws_autoscaler.SERVICE_ACCOUNT}


@pytest.mark.parametrize(("drain_s", "expected"), [(61, 600), (600, 600), (3631, 3631)])
def test_the_autoscaler_lets_a_replica_end_its_requests_before_the_node_goes(drain_s: int, expected: int) -> None:
    """It kills what still runs after 600 s, if it is told nothing."""
    values = aws_autoscaler.values("fleet", "eu-west-1", "1.34", drain_s)
    assert values["extraArgs"]["max-graceful-termination-sec"] == expected


def test_each_kubernetes_with_add_ons_has_its_autoscaler() -> None:
    assert {
        version: tag.startswith(f"v{version}.") for version, tag in aws_autoscaler.IMAGE_TAGS.items()
    } == dict.fromkeys(aws_addons.VERSIONS, True)


def test_throughput_is_told_where_it_is_provisioned() -> None:
    elastic = EfsStore(kind="efs", backup=False, protect=False)
    provisioned = elastic.model_copy(update={"throughput": ProvisionedThroughput(mode="provisioned", mibps=512)})
    usual = {"encrypted": True, "performance_mode": "generalPurpose"}
    assert aws_store.file_system(elastic) == {**usual, "throughput_mode": "elastic"}
    assert aws_store.file_system(provisioned) == {
        **usual,
        "throughput_mode": "provisioned",
        "provisioned_throughput_in_mibps": 512,
    }


def test_the_access_point_is_the_pods_user_and_owns_its_root_b33() -> None:
    assert aws_store.access_point(Serving(namespace="triton-dev", run_as_user=1001, run_as_group=1002)) == {
        "posix_user": {"uid": 1001, "gid": 1002},
        "root_directory": {
            "path": "/model-store",
            "creation_info": {"owner_uid": 1001, "owner_gid": 1002, "permissions": "0750"},
        },
    }


def test_a_volume_calls_its_file_system_and_access_point() -> None:
    assert aws_store.handle("fs-1", "fsap-2") == "fs-1::fsap-2"
