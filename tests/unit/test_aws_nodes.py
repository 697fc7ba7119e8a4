"""Node groups: which there are, and what each is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet import aws_names, aws_nodes, settings
from fleet.aws_nodes import Group
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.schema import Sku

LABELS = {
    "nvidia.com/gpu": "present",
    "nvidia.com/gpu.present": "true",
    "triton-fleet.io/sku": "big",
    "triton-fleet.io/node-role": "serving",
}


def sku(project: Path, instance: dict[str, Any], **changes: object) -> Sku:
    """A SKU of eight H100, as a stack file may say it."""
    told = {"name": "big", "nodes": {"min": 2, "max": 4}, "instance": {"instance_types": ["p5.48xlarge"], **instance}}
    config = graph.stack_config(project, "prod")
    placements = [{"sku": "big", "replicas": {"min": 1, "max": 1}}]
    models = [{**config["models"][0], "placements": placements}]
    return settings.load({**config, "skus": [{**told, **changes}], "models": models}, project).skus[0]


def group(**changes: Any) -> Group:  # noqa: ANN401 - any field
    usual: dict[str, Any] = {
        "name": "big",
        "ami_type": "AL2023_x86_64_NVIDIA",
        "capacity_type": "ON_DEMAND",
        "instance_types": ("p5.48xlarge",),
        "min": 2,
        "max": 4,
        "disk_gib": 200,
        "labels": LABELS,
        "template_labels": {**LABELS, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        "taints": (),
        "gpus": 8,
        "zone": None,
        "capacity_reservation_id": None,
        "efa_interfaces": 0,
        "placement_group": False,
    }
    return Group(**{**usual, **changes})


def test_a_sku_is_one_group_that_leaves_its_product_to_who_finds_it(project: Path) -> None:
    big = sku(project, {})
    assert aws_nodes.sku_groups(big, "x86_64", 32) == [group(taints=big.taints)]


@pytest.mark.parametrize(
    ("floor", "least", "most", "groups"),
    [
        (0, 2, 4, [("big", "SPOT", 2, 4)]),
        (1, 2, 4, [("big-floor", "ON_DEMAND", 1, 1), ("big", "SPOT", 1, 3)]),
        (3, 2, 4, [("big-floor", "ON_DEMAND", 3, 3), ("big", "SPOT", 0, 1)]),
        (4, 2, 4, [("big-floor", "ON_DEMAND", 4, 4)]),
    ],
)
def test_spot_nodes_stand_beside_a_floor_of_others_within_the_skus_bounds(
    project: Path, floor: int, least: int, most: int, groups: list[tuple[str, str, int, int]]
) -> None:
    big = sku(project, {"capacity": "spot", "on_demand_floor": floor}, nodes={"min": least, "max": most})
    made = aws_nodes.sku_groups(big, "x86_64", 0)
    assert [(one.name, one.capacity_type, one.min, one.max) for one in made] == groups


@pytest.mark.parametrize(
    ("architecture", "gpus", "ami_type"),
    [
        ("x86_64", True, "AL2023_x86_64_NVIDIA"),
        ("x86_64", False, "AL2023_x86_64_STANDARD"),
        ("arm64", True, "AL2023_ARM_64_NVIDIA"),
        ("arm64", False, "AL2023_ARM_64_STANDARD"),
    ],
)
def test_the_image_fits_architecture_and_gpus_b36(
    architecture: aws_nodes.Architecture, ami_type: str, *, gpus: bool
) -> None:
    assert aws_nodes.ami_type(architecture, gpus=gpus) == ami_type


@pytest.mark.parametrize("effect", ["NoSchedule", "NO_SCHEDULE"])
def test_either_spelling_of_a_taint_is_eks_for_eks_and_kubernetes_for_the_autoscaler_b34(
    project: Path, effect: str
) -> None:
    big = sku(project, {}, taints=[{"key": "team", "value": "a", "effect": effect}])
    (made,) = aws_nodes.sku_groups(big, "x86_64", 0)
    assert aws_nodes.node_group(made, "prod", "1.34")["taints"] == [
        {"key": "team", "value": "a", "effect": "NO_SCHEDULE"}
    ]
    assert aws_nodes.template_tags(made)["k8s.io/cluster-autoscaler/node-template/taint/team"] == "a:NoSchedule"


def test_the_auto_scaling_group_says_what_a_node_will_be_b45(project: Path) -> None:
    prefix = "k8s.io/cluster-autoscaler/node-template"
    (made,) = aws_nodes.sku_groups(sku(project, {}), "x86_64", 0)
    assert aws_nodes.template_tags(made) == {
        f"{prefix}/label/nvidia.com/gpu": "present",
        f"{prefix}/label/nvidia.com/gpu.present": "true",
        f"{prefix}/label/nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        f"{prefix}/label/triton-fleet.io/node-role": "serving",
        f"{prefix}/label/triton-fleet.io/sku": "big",
        f"{prefix}/resources/nvidia.com/gpu": "8",
        f"{prefix}/taint/nvidia.com/gpu": "present:NoSchedule",
    }


def test_the_arguments_of_a_group() -> None:
    assert aws_nodes.node_group(group(), "prod", "1.34") == {
        "node_group_name_prefix": "prod-big-",
        "version": "1.34",
        "ami_type": "AL2023_x86_64_NVIDIA",
        "capacity_type": "ON_DEMAND",
        "instance_types": ["p5.48xlarge"],
        "scaling_config": {"min_size": 2, "max_size": 4, "desired_size": 2},
        "update_config": {"max_unavailable": 1},
        "labels": LABELS,
        "taints": [],
    }


def test_the_arguments_of_a_launch_template() -> None:
    assert aws_nodes.launch_template(group(), "fleet", []) == {
        "name": "fleet-big",
        "update_default_version": True,
        "block_device_mappings": [
            {
                "device_name": "/dev/xvda",
                "ebs": {
                    "encrypted": "true",
                    "volume_type": "gp3",
                    "volume_size": 200,
                    "delete_on_termination": "true",
                },
            }
        ],
        "metadata_options": {
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": 1,
        },
        "tag_specifications": [
            {"resource_type": "instance", "tags": {"Name": "fleet-big"}},
            {"resource_type": "volume", "tags": {"Name": "fleet-big"}},
        ],
    }


def test_nodes_of_a_capacity_block_start_in_it() -> None:
    block = group(capacity_type="CAPACITY_BLOCK", capacity_reservation_id="cr-1")
    template = aws_nodes.launch_template(block, "fleet", [])
    assert {key: template[key] for key in template.keys() - aws_nodes.launch_template(group(), "fleet", [])} == {
        "capacity_reservation_specification": {"capacity_reservation_target": {"capacity_reservation_id": "cr-1"}},
        "instance_market_options": {"market_type": "capacity-block"},
        "instance_type": "p5.48xlarge",
    }
    assert "instance_types" not in aws_nodes.node_group(block, "prod", "1.34")


def test_each_network_card_carries_efa_and_the_first_the_nodes_address() -> None:
    template = aws_nodes.launch_template(group(efa_interfaces=2), "fleet", ["sg-nodes", "sg-efa"])
    assert template["network_interfaces"] == [
        {
            "device_index": number,
            "network_card_index": number,
            "interface_type": kind,
            "security_groups": ["sg-nodes", "sg-efa"],
            "delete_on_termination": "true",
        }
        for number, kind in enumerate(("efa", "efa-only"))
    ]


def test_a_groups_name_leaves_room_for_what_eks_appends() -> None:
    assert aws_names.node_group_prefix("prod", "a100-40gb") == "prod-a100-40gb-"
    assert len(aws_names.node_group_prefix("prod", "x" * 63)) == aws_names.NODE_GROUP_PREFIX_MAX_CHARS
