"""What is known of the world outside: instance types, prices, versions, charts and models, with their sources.

Data stands in the YAML files beside this; nothing is guessed, and what has no source is `None`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Literal, cast

from fleet.catalog import data

if TYPE_CHECKING:
    from collections.abc import Mapping

Architecture = Literal["x86_64", "arm64"]


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance type. Memory of the instance and of one GPU in MiB; `usd_per_hour` in `price_region`, on demand."""

    name: str
    family: str
    architecture: Architecture
    gpu: str | None
    """The GPU's key in the catalog."""
    gpus: int
    gpu_product: str | None
    """As GPU feature discovery names it."""
    gpu_memory_mib: int | None
    vcpus: int
    memory_mib: int
    efa_interfaces: int
    """Network cards with EFA; 0 without."""
    local_disk_gb: int
    usd_per_hour: Decimal | None
    price_region: str
    price_date: str
    price_source: str

    def price(self, region: str) -> Decimal | None:
        """USD per hour there; None where no source says it."""
        return self.usd_per_hour if region == self.price_region else None


@cache
def instances() -> Mapping[str, Instance]:
    """All instance types, by name."""
    read = data.load("instances.yaml")
    gpus, prices = read["gpus"], read["prices"]
    found = {}
    for family, kind in read["families"].items():
        gpu = gpus[kind["gpu"]] if kind["gpu"] is not None else None
        for size, measures in kind["types"].items():
            name = f"{family}.{size}"
            usd = measures["usd_per_hour"]
            found[name] = Instance(
                name=name,
                family=family,
                architecture=cast("Architecture", kind["architecture"]),
                gpu=kind["gpu"],
                gpus=measures["gpus"],
                gpu_product=gpu and gpu["product"],
                gpu_memory_mib=gpu and gpu["memory_mib"],
                vcpus=measures["vcpus"],
                memory_mib=measures["memory_mib"],
                efa_interfaces=measures["efa_interfaces"],
                local_disk_gb=measures["local_disk_gb"],
                usd_per_hour=None if usd is None else Decimal(usd),
                price_region=prices["region"],
                price_date=prices["date"],
                price_source=prices["source"],
            )
    return found


def find(name: str) -> Instance | None:
    """The instance type of that name, if the catalog has it."""
    return instances().get(name)


def instance(name: str) -> Instance:
    """The instance type of that name, which preflight has seen to exist. Raises KeyError."""
    return instances()[name]
