"""GPUs that are not there, through the real interfaces: who labels them, who offers them, and who holds them.

After the main job, on its cluster; everything is put back.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import eventually, kubelet_of, nodes, prometheus

if TYPE_CHECKING:
    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

PRODUCTS = {"gpu-a100-40gb": "NVIDIA-A100-SXM4-40GB", "gpu-h100-80gb": "NVIDIA-H100-80GB-HBM3"}
NODE = "gpu-a100-40gb"
ANNOTATION = "triton-fleet.io/simulated-gpus"


def offered(checkout: Checkout) -> str:
    return str(nodes(checkout)[NODE]["status"]["allocatable"].get("nvidia.com/gpu"))


def test_nodes_are_labelled_by_node_feature_discovery_and_what_it_is_told_b28(checkout: Checkout) -> None:
    found = {name: node["metadata"]["labels"] for name, node in nodes(checkout).items()}
    assert {name: labels.get("nvidia.com/gpu.product") for name, labels in found.items()} == {
        "system": None,
        **PRODUCTS,
    }
    assert {name: labels.get("feature.node.kubernetes.io/pci-10de.present") for name, labels in found.items()} == {
        "system": None,
        **dict.fromkeys(PRODUCTS, "true"),
    }
    objects = json.loads(checkout.kubectl("get", "nodefeatures", "--namespace=kube-system", "--output=json"))["items"]
    assert {f"nvidia-features-for-{name}" for name in PRODUCTS} <= {one["metadata"]["name"] for one in objects}


def test_measurements_name_the_pods_that_hold_the_gpus(checkout: Checkout) -> None:
    pods = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in checkout.triton_pods()}
    query = 'DCGM_FI_DEV_GPU_UTIL{exported_namespace="triton-local"}'

    def measured() -> dict[str, str]:
        answer = json.loads(checkout.kubectl("get", "--raw", prometheus(f"/api/v1/query?query={query}")))
        return {one["metric"]["exported_pod"]: one["metric"]["node"] for one in answer["data"]["result"]}

    eventually(lambda: measured() == pods, f"{query} for {pods}")


def test_what_a_node_pretends_is_followed(checkout: Checkout) -> None:
    said = nodes(checkout)[NODE]["metadata"]["annotations"][ANNOTATION]
    assert offered(checkout) == "8"
    try:
        checkout.kubectl(
            "annotate", "--overwrite", "node", NODE, f"{ANNOTATION}={json.dumps(json.loads(said) | {'count': 3})}"
        )
        eventually(lambda: offered(checkout) == "3", "3 GPUs")
    finally:
        checkout.kubectl("annotate", "--overwrite", "node", NODE, f"{ANNOTATION}={said}")
    eventually(lambda: offered(checkout) == "8", "8 GPUs once more")


def test_gpus_are_offered_again_to_a_kubelet_that_started_anew(checkout: Checkout) -> None:
    def registrations() -> int:
        (pod,) = [
            pod["metadata"]["name"]
            for pod in checkout.objects("pods", "kube-system")
            if pod["spec"].get("nodeName") == NODE
            and pod["metadata"]["ownerReferences"][0]["name"] == "nvidia-device-plugin"
        ]
        return checkout.kubectl("logs", "--namespace=kube-system", pod).count("registered with the kubelet")

    before, pods = registrations(), {pod["metadata"]["uid"] for pod in checkout.triton_pods()}
    os.kill(kubelet_of(checkout, NODE), signal.SIGKILL)
    eventually(lambda: registrations() == before + 1, "the plugin is registered once more")
    eventually(lambda: offered(checkout) == "8", "8 GPUs")
    assert {pod["metadata"]["uid"] for pod in checkout.triton_pods()} == pods


def test_pods_make_no_folder_on_the_machine(checkout: Checkout) -> None:
    """Node feature discovery and NVIDIA's charts mount folders below /etc/kubernetes, made where they are missing."""
    assert checkout.objects("daemonsets", "kube-system")
    assert not Path("/etc/kubernetes/node-feature-discovery").exists()
