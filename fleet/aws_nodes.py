"""The node groups: which there are, and what each is told.

A group's arguments are those of `aws.eks.NodeGroup` and of its launch template. What the node autoscaler must know of a
group that has no node yet stands on its Auto Scaling group, as tags (field report B45).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from fleet import aws_names, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.schema import Sku, SystemNodes
    from fleet.schema_base import Taint

Architecture = Literal["x86_64", "arm64"]

AMI_TYPES: Final[Mapping[tuple[Architecture, bool], str]] = {
    ("x86_64", True): "AL2023_x86_64_NVIDIA",
    ("x86_64", False): "AL2023_x86_64_STANDARD",
    ("arm64", True): "AL2023_ARM_64_NVIDIA",
    ("arm64", False): "AL2023_ARM_64_STANDARD",
}
"""By architecture and whether there are GPUs (field report B36):
https://docs.aws.amazon.com/eks/latest/APIReference/API_Nodegroup.html"""

TAINT_EFFECTS: Final[Mapping[str, str]] = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
"""Kubernetes' spelling to EKS' (field report B34)."""

CAPACITY_TYPES: Final[Mapping[str, str]] = {
    "on_demand": "ON_DEMAND",
    "spot": "SPOT",
    "capacity_block": "CAPACITY_BLOCK",
}

ROOT_DEVICE: Final = "/dev/xvda"
"""Of Amazon Linux 2023."""
IMDS_HOP_LIMIT: Final = 1
"""The instance's metadata end at the instance: pods have identities of their own, and no way to the node's."""
TEMPLATE_TAG: Final = "k8s.io/cluster-autoscaler/node-template"
"""https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/aws/README.md"""
SYSTEM: Final = "system"
FLOOR_SUFFIX: Final = "-floor"


@dataclass(frozen=True, slots=True)
class Group:
    """One managed node group."""

    name: str
    """In the stack, and the beginning of its name at EKS."""
    ami_type: str
    capacity_type: str
    instance_types: tuple[str, ...]
    min: int
    max: int
    disk_gib: int
    labels: Mapping[str, str]
    """That EKS gives the nodes."""
    template_labels: Mapping[str, str]
    """That a node will have, whoever writes them."""
    taints: tuple[Taint, ...]
    gpus: int
    zone: str | None
    capacity_reservation_id: str | None
    efa_interfaces: int
    placement_group: bool

    @property
    def is_capacity_block(self) -> bool:
        return self.capacity_type == CAPACITY_TYPES["capacity_block"]


def ami_type(architecture: Architecture, *, gpus: bool) -> str:
    """The image of a node: with NVIDIA's driver exactly where there are GPUs, for its architecture."""
    return AMI_TYPES[architecture, gpus]


def system_group(nodes: SystemNodes, architecture: Architecture) -> Group:
    """The group for what serves the cluster: no taint, no GPU, in all zones."""
    labels = {aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_SYSTEM}
    return Group(
        name=SYSTEM,
        ami_type=ami_type(architecture, gpus=False),
        capacity_type=CAPACITY_TYPES["on_demand"],
        instance_types=(nodes.instance_type,),
        min=nodes.min,
        max=nodes.max,
        disk_gib=nodes.disk_gib,
        labels=labels,
        template_labels=labels,
        taints=(),
        gpus=0,
        zone=None,
        capacity_reservation_id=None,
        efa_interfaces=0,
        placement_group=False,
    )


def sku_groups(sku: Sku, architecture: Architecture, efa_interfaces: int) -> list[Group]:
    """The groups of a SKU that has instances: one, and beside spot nodes one of on-demand nodes if there is a floor.

    `efa_interfaces` is how many network cards with EFA its instances have.
    """
    instance = sku.instance
    if instance is None:
        raise ValueError(f"{sku.name} has no instances")
    labels = {
        **sku.labels,
        aws_names.NODE_SKU_LABEL: sku.name,
        aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_GPU,
    }

    def group(name: str, capacity: str, least: int, most: int) -> Group:
        return Group(
            name=name,
            ami_type=ami_type(architecture, gpus=sku.gpus_per_node > 0),
            capacity_type=CAPACITY_TYPES[capacity],
            instance_types=tuple(instance.instance_types),
            min=least,
            max=most,
            disk_gib=instance.disk_gib,
            # GPU feature discovery writes the product from what it finds; EKS saying so would prove nothing.
            labels={key: value for key, value in labels.items() if key != names.NODE_GPU_PRODUCT_LABEL},
            template_labels=labels,
            taints=tuple(sku.taints),
            gpus=sku.gpus_per_node,
            zone=instance.zone,
            capacity_reservation_id=instance.capacity_reservation_id,
            efa_interfaces=efa_interfaces if instance.efa else 0,
            placement_group=instance.placement_group,
        )

    floor = min(instance.on_demand_floor or 0, sku.nodes.max) if instance.capacity == "spot" else 0
    groups = []
    if floor:
        groups.append(group(f"{sku.name}{FLOOR_SUFFIX}", "on_demand", floor, floor))
    if sku.nodes.max > floor:
        groups.append(group(sku.name, instance.capacity, max(sku.nodes.min - floor, 0), sku.nodes.max - floor))
    return groups


def node_group(group: Group, environment: str, kubernetes_version: str) -> dict[str, Any]:
    """Arguments of the node group, but for the cluster, the role, the subnets and the launch template."""
    return {
        "node_group_name_prefix": aws_names.node_group_prefix(environment, group.name),
        "version": kubernetes_version,
        "ami_type": group.ami_type,
        "capacity_type": group.capacity_type,
        # A capacity block's instance type stands in the launch template.
        **({} if group.is_capacity_block else {"instance_types": list(group.instance_types)}),
        "scaling_config": {"min_size": group.min, "max_size": group.max, "desired_size": group.min},
        "update_config": {"max_unavailable": 1},
        "labels": dict(group.labels),
        "taints": [
            {"key": taint.key, "value": taint.value, "effect": TAINT_EFFECTS[taint.effect]} for taint in group.taints
        ],
    }


def launch_template(group: Group, cluster: str, security_groups: Sequence[Any]) -> dict[str, Any]:
    """Arguments of the launch template: encrypted disk, IMDSv2, and what the group's capacity and network ask for.

    `security_groups` are those of nodes with EFA, whose interfaces are all named here. Else EKS gives its own.
    """
    name = f"{cluster}-{group.name}"
    arguments: dict[str, Any] = {
        "name": name,
        "update_default_version": True,
        "block_device_mappings": [
            {
                "device_name": ROOT_DEVICE,
                "ebs": {
                    "encrypted": "true",
                    "volume_type": "gp3",
                    "volume_size": group.disk_gib,
                    "delete_on_termination": "true",
                },
            }
        ],
        "metadata_options": {
            "http_endpoint": "enabled",
            "http_tokens": "required",
            "http_put_response_hop_limit": IMDS_HOP_LIMIT,
        },
        "tag_specifications": [
            {"resource_type": kind, "tags": aws_names.named(name)} for kind in ("instance", "volume")
        ],
    }
    if group.efa_interfaces:
        arguments["network_interfaces"] = [
            {
                # The first carries the node's address; the others carry EFA alone, and take no address of the subnet.
                "device_index": 0 if card == 0 else 1,
                "network_card_index": card,
                "interface_type": "efa" if card == 0 else "efa-only",
                "security_groups": list(security_groups),
                "delete_on_termination": "true",
            }
            for card in range(group.efa_interfaces)
        ]
    if group.capacity_reservation_id is not None:
        arguments["capacity_reservation_specification"] = {
            "capacity_reservation_target": {"capacity_reservation_id": group.capacity_reservation_id}
        }
    if group.is_capacity_block:
        arguments["instance_market_options"] = {"market_type": "capacity-block"}
        (arguments["instance_type"],) = group.instance_types
    return arguments


def template_tags(group: Group) -> dict[str, str]:
    """What the node autoscaler must know of a node that is not there yet, as tags of the Auto Scaling group."""
    tags = {f"{TEMPLATE_TAG}/label/{key}": value for key, value in group.template_labels.items()}
    tags |= {f"{TEMPLATE_TAG}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in group.taints}
    if group.gpus:
        tags[f"{TEMPLATE_TAG}/resources/{names.GPU_RESOURCE}"] = str(group.gpus)
    return dict(sorted(tags.items()))
