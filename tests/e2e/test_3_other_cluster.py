"""`make up CLUSTER=<kubeconfig file>`: a cluster that the project did not start; here a second embedded one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from local.cluster.handle import Handle
from local.state import State
from tests.e2e import machine
from tests.e2e.checkout import FOLDER
from tests.e2e.conftest import fresh_copy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

# The nodes on which the images are; others may be named as their owner likes.
NODES = "NODES=gpu-a100-40gb,gpu-h100-80gb"

GPU_LABELS = ("nvidia.com/gpu", "nvidia.com/gpu.present")


@pytest.fixture(scope="module")
def bare(checkout: Checkout, before: dict[str, list[str]]) -> Iterator[Checkout]:
    """A second cluster beside the first, as somebody else's: no GPU, no label, no taint, no image of ours but DNS's."""
    assert before
    assert checkout
    other = fresh_copy(FOLDER / "second")
    start = (
        "from local import commands, state; from pathlib import Path; "
        "commands.start_cluster(state.default_state(), print)"
    )
    try:
        done = other.run([str(other.folder / ".venv/bin/python"), "-c", start])
        assert done.status == 0, done.text[-3000:]
        for node in ("gpu-a100-40gb", "gpu-h100-80gb"):
            other.kubectl("label", "node", node, *(f"{label}-" for label in GPU_LABELS))
            other.kubectl("taint", "node", node, "nvidia.com/gpu-")
            other.kubectl("annotate", "node", node, "triton-fleet.io/simulated-gpus-")
        yield other
    finally:
        other.make("down")


def test_both_clusters_run_beside_each_other_in_ranges_of_their_own(checkout: Checkout, bare: Checkout) -> None:
    networks = [
        json.loads((copy.folder / ".fleet" / "cluster" / "process.json").read_text())["network"]
        for copy in (checkout, bare)
    ]
    assert len(set(networks)) == 2
    for copy in (checkout, bare):
        nodes = json.loads(copy.kubectl("get", "nodes", "--output=json"))["items"]
        assert len(nodes) == 3


def test_prepare_asks_first_and_changes_nothing_without_a_yes(checkout: Checkout, bare: Checkout) -> None:
    cluster = f"CLUSTER={bare.kubeconfig}"
    done = checkout.make("prepare", cluster, "SIMULATE_GPUS=1", stdin="n\n")
    assert done.status != 0
    assert "nothing was changed" in done.text
    nodes = json.loads(bare.kubectl("get", "nodes", "--output=json"))["items"]
    assert not any(set(GPU_LABELS) & set(node["metadata"]["labels"]) for node in nodes)


def test_prepare_then_up_then_down_on_the_other_cluster(checkout: Checkout, bare: Checkout, tmp_path: Path) -> None:
    """The README's way: write the images, import them on the nodes, prepare, up; the first cluster is untouched."""
    cluster = f"CLUSTER={bare.kubeconfig}"
    exported = checkout.make("images", f"EXPORT={tmp_path}")
    assert exported.status == 0, exported.text[-2000:]
    listed = {entry["ref"]: tmp_path / entry["archive"] for entry in json.loads((tmp_path / "index.json").read_text())}
    # As an administrator would on each node; the cluster was started with the same images, so this repeats one.
    running = Handle.read(State(bare.folder / ".fleet"))
    assert running
    smallest = listed["triton-fleet.local/pause:1"]
    imported = running.run(["ctr", "--namespace=k8s.io", "images", "import", str(smallest)], node="gpu-a100-40gb")
    assert imported.returncode == 0, imported.stderr

    mine = {item["metadata"]["uid"] for item in checkout.objects("deployments")}
    prepared = checkout.make("prepare", cluster, "SIMULATE_GPUS=1", NODES, stdin="y\n")
    assert prepared.status == 0, prepared.text
    again = checkout.make("prepare", cluster, "SIMULATE_GPUS=1", NODES, "YES=1")
    assert again.status == 0, again.text
    up = checkout.make("up", cluster)
    assert up.status == 0, up.text[-4000:]
    assert len(bare.triton_pods()) == 2
    verify = checkout.make("verify", cluster)
    assert verify.status == 0, verify.text[-3000:]
    down = checkout.make("down", cluster)
    assert down.status == 0, down.text[-3000:]
    namespaces = json.loads(bare.kubectl("get", "namespaces", "--output=json"))["items"]
    assert "triton-local" not in {item["metadata"]["name"] for item in namespaces}
    assert {item["metadata"]["uid"] for item in checkout.objects("deployments")} == mine


def link_of(copy: Checkout) -> str:
    return str(json.loads((copy.folder / ".fleet" / "cluster" / "process.json").read_text())["link"])


def test_stopping_one_cluster_leaves_the_other_alone(checkout: Checkout, bare: Checkout) -> None:
    mine, others = link_of(checkout), link_of(bare)
    down = bare.make("down")
    assert down.status == 0, down.text[-2000:]
    links = machine.snapshot()["links"]
    assert (mine in links, others in links) == (True, False)
    assert checkout.make("verify", "STACK=local").status == 0
