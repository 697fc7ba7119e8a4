"""What nodes pretend to have: what their annotation says, and what their PCI bus shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from local.cluster import hardware
from local.cluster.topology import Node

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("product", "gpus", "said"),
    [
        ("NVIDIA-A10G", 1, {"count": 1, "product": "NVIDIA-A10G", "memory_mib": 22888}),
        ("Not-In-The-Catalog", 2, {"count": 2, "product": "Not-In-The-Catalog"}),
    ],
)
def test_the_annotation_says_how_many_of_which(product: str, gpus: int, said: dict[str, object]) -> None:
    assert json.loads(hardware.described(Node("n", product, gpus))) == said
    assert hardware.product({"triton-fleet.io/simulated-gpus": json.dumps(said)}) == product


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(None, id="none"),
        pytest.param({"ttl": "0"}, id="others"),
        pytest.param({"triton-fleet.io/simulated-gpus": "8"}, id="a number, as before"),
        pytest.param({"triton-fleet.io/simulated-gpus": "{"}, id="no JSON"),
    ],
)
def test_a_node_that_says_nothing_has_no_product(annotations: dict[str, str] | None) -> None:
    assert hardware.product(annotations) is None


def test_a_bus_has_a_controller_of_nvidias_per_gpu_and_is_laid_anew_in_the_same_folder(tmp_path: Path) -> None:
    bus = hardware.pci(tmp_path, Node("n"))
    hardware.lay_bus(bus, 2)
    before = bus.stat().st_ino
    hardware.lay_bus(bus, 1)
    assert bus.stat().st_ino == before, "the node has this very folder mounted"
    assert {str(path.relative_to(bus)): path.read_text() for path in bus.rglob("*") if path.is_file()} == {
        "0000:10:00.0/class": "0x030200\n",
        "0000:10:00.0/vendor": "0x10de\n",
        "0000:10:00.0/device": "0x0000\n",
        "0000:10:00.0/subsystem_vendor": "0x10de\n",
        "0000:10:00.0/subsystem_device": "0x0000\n",
    }
    hardware.lay_bus(bus, 0)
    assert list(bus.iterdir()) == []
