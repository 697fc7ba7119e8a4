"""GPUs that nodes pretend to have: an annotation of the node says which, and its PCI bus shows that there are some.

Stand-ins for NVIDIA's programs read the annotation (local/tools/gpu-stand-in). Node feature discovery, which is the
real one, reads the bus.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any, Final

from fleet import catalog, names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.cluster.topology import Node

ANNOTATION: Final = f"{names.DOMAIN}/simulated-gpus"
"""It tells pretended GPUs from real ones too."""
PCI_DEVICES: Final = "/sys/bus/pci/devices"
PCI_ATTRIBUTES: Final[Mapping[str, str]] = {
    "class": "0x030200",
    "vendor": "0x10de",
    # No device of NVIDIA's.
    "device": "0x0000",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x0000",
}
"""A 3D controller of NVIDIA's, as far as node feature discovery looks: https://pci-ids.ucw.cz/read/PD/03/02."""
FIRST_BUS: Final = 0x10


def described(node: Node) -> str:
    """What the annotation says; memory where the catalog knows the product."""
    memory = next(
        (one.gpu_memory_mib for one in catalog.instances().values() if one.gpu_product == node.gpu_product), None
    )
    said: dict[str, Any] = {"count": node.gpus, "product": node.gpu_product}
    return json.dumps(said if memory is None else {**said, "memory_mib": memory})


def product(annotations: Mapping[str, str] | None) -> str | None:
    """The product that a node's annotations tell, None where they tell none."""
    try:
        said = json.loads((annotations or {}).get(ANNOTATION, "null"))
    except ValueError:
        return None
    found = said.get("product") if isinstance(said, dict) else None
    return found if isinstance(found, str) else None


def pci(cluster: Path, node: Node) -> Path:
    """The folder that a node sees as its PCI bus."""
    return cluster / "nodes" / node.name / "pci"


def lay_bus(folder: Path, gpus: int) -> None:
    """Fill the folder of a PCI bus. The folder itself stays: the node has mounted it."""
    folder.mkdir(parents=True, exist_ok=True)
    for present in folder.iterdir():
        shutil.rmtree(present)
    for index in range(gpus):
        device = folder / f"0000:{FIRST_BUS + index:02x}:00.0"
        device.mkdir()
        for attribute, value in PCI_ATTRIBUTES.items():
            (device / attribute).write_text(f"{value}\n")
