"""The embedded cluster's nodes and addresses, and that they are what stack `local` is set for."""

from __future__ import annotations

import ipaddress
import itertools
from pathlib import Path

import pytest

from local.cluster import config, images, topology
from local.cluster.topology import NODES, Addresses, Node
from local.images.build import Image
from local.images.recipes import PAUSE, RECIPES, TOOLS, TRITON
from tests.unit import graph

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


PRODUCT = "nvidia.com/gpu.product"


# Ranges


def test_the_ranges_cut_up_what_is_never_routed() -> None:
    ranges = topology.ranges()
    assert [str(found) for found in ranges] == [
        f"198.{second}.{third}.0/20" for second in (18, 19) for third in range(0, 256, 16)
    ][:31]
    assert str(topology.NODE_NETWORK) == "198.19.240.0/24"


def test_each_range_has_a_link_of_its_own_whose_both_ends_the_kernel_takes() -> None:
    links = [topology.link_name(found) for found in topology.ranges()]
    assert links[:2] == ["tfc6120000", "tfc6121000"]
    ends = [*links, *(f"{link}p" for link in links)]
    assert len(set(ends)) == 62
    assert max(map(len, ends)) <= 15


# Addresses


def test_addresses_of_one_range() -> None:
    at = Addresses.of("198.18.16.0/20")
    assert {
        "host": at.host,
        "control_plane": at.control_plane,
        "api_server": at.api_server,
        "node_gateway": at.node_gateway,
        "nodes": [at.node(index) for index in range(3)],
        "pods": at.pods,
        "node_pods": [at.node_pods(index) for index in range(3)],
        "node_pods_gateways": [at.node_pods_gateway(index) for index in range(3)],
        "services": at.services,
        "kubernetes_service": at.kubernetes_service,
        "dns_service": at.dns_service,
    } == {
        "host": "198.18.16.1",
        "control_plane": "198.18.16.2",
        "api_server": "https://198.18.16.2:6443",
        "node_gateway": "198.19.240.1",
        "nodes": ["198.19.240.11", "198.19.240.12", "198.19.240.13"],
        "pods": "198.18.20.0/22",
        "node_pods": ["198.18.20.0/24", "198.18.21.0/24", "198.18.22.0/24"],
        "node_pods_gateways": ["198.18.20.1", "198.18.21.1", "198.18.22.1"],
        "services": "198.18.24.0/24",
        "kubernetes_service": "198.18.24.1",
        "dns_service": "198.18.24.10",
    }


@pytest.mark.parametrize("network", [topology.ranges()[0], topology.ranges()[-1]], ids=str)
def test_the_parts_of_a_range_lie_in_it_and_do_not_overlap(network: ipaddress.IPv4Network) -> None:
    at = Addresses(network)
    indices = range(len(NODES))
    joined = ipaddress.ip_network(f"{at.host}/30", strict=False)
    nodes = ipaddress.ip_network(f"{at.node_gateway}/24", strict=False)
    pods, services = ipaddress.ip_network(at.pods), ipaddress.ip_network(at.services)
    parts = [joined, nodes, pods, services]
    assert nodes == topology.NODE_NETWORK
    assert [part for part in parts if not part.subnet_of(network)] == [nodes]
    assert [(a, b) for a, b in itertools.combinations(parts, 2) if a.overlaps(b)] == []

    node_pods = [ipaddress.ip_network(at.node_pods(index)) for index in indices]
    assert [str(part) for part in node_pods if not part.subnet_of(pods)] == []
    assert [(a, b) for a, b in itertools.combinations(node_pods, 2) if a.overlaps(b)] == []

    members = [
        (joined, [at.host, at.control_plane]),
        (nodes, [at.node_gateway, *map(at.node, indices)]),
        (services, [at.kubernetes_service, at.dns_service]),
        *zip(node_pods, [[at.node_pods_gateway(index)] for index in indices], strict=True),
    ]
    for part, addresses in members:
        assert len(set(addresses)) == len(addresses)
        assert [a for a in addresses if ipaddress.ip_address(a) not in list(part.hosts())] == []


# Nodes, against the stack's settings


def test_the_gpu_nodes_are_the_skus_of_stack_local(project: Path) -> None:
    skus = graph.local_settings(project).skus
    assert [(f"gpu-{s.name}", s.gpu_product, s.gpus_per_node, dict(s.labels)) for s in skus] == [
        (node.name, node.gpu_product, node.gpus, {**node.all_labels, PRODUCT: node.gpu_product})
        for node in NODES
        if node.gpus
    ]
    assert [[t.model_dump(mode="json") for t in s.taints] for s in skus] == [
        list(node.taints) for node in NODES if node.gpus
    ]
    assert [(s.nodes.min, s.nodes.max) for s in skus] == [(1, 1)] * len(skus)


def test_one_node_is_free_of_gpus_labels_and_taints() -> None:
    assert [(node.name, node.all_labels, node.taints) for node in NODES if not node.gpus] == [("system", {}, ())]


def test_a_node_keeps_labels_of_its_own_beside_those_of_its_gpu() -> None:
    node = Node("n", gpu_product="NVIDIA-L4", gpus=1, labels={"zone": "a", PRODUCT: "published by another"})
    labels = {"nvidia.com/gpu": "present", "nvidia.com/gpu.present": "true", "zone": "a"}
    assert (node.all_labels, node.taints) == (labels, (GPU_TAINT,))


def test_the_store_lies_where_and_belongs_to_whom_the_settings_default_says(project: Path) -> None:
    raw = graph.local_config(project)
    assert "path" not in raw["store"]
    assert not {"run_as_user", "run_as_group"} & set(raw["serving"])
    settings = graph.local_settings(project)
    assert settings.store.path == config.NODE_STORE
    assert settings.serving.run_as_user == settings.serving.run_as_group == config.STORE_OWNER


def test_the_settings_let_the_machine_in_by_the_nodes_network_and_no_pod(project: Path) -> None:
    assert [str(cidr) for cidr in graph.local_settings(project).serving.client_cidrs] == [str(topology.NODE_NETWORK)]
    assert not any(ipaddress.ip_network(Addresses(r).pods).overlaps(topology.NODE_NETWORK) for r in topology.ranges())


def test_every_node_gets_the_images_that_its_pods_name(project: Path) -> None:
    named = graph.local_settings(project).images
    assert (named.triton, named.tools, config.PAUSE_IMAGE) == (TRITON, TOOLS, PAUSE)
    recipes = set(images.by_name([Image(recipe.ref, Path("archive"), "key") for recipe in RECIPES]))
    everywhere = {"pause", "tools", "node-feature-discovery"}
    only_with_gpus = {"triton", "gpu-stand-in"}
    assert {node.name: set(images.needed_on(node)) for node in NODES} == {
        "system": recipes - only_with_gpus,
        "gpu-a100-40gb": everywhere | only_with_gpus,
        "gpu-h100-80gb": everywhere | only_with_gpus,
    }
