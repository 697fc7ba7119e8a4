"""How many replicas fit: GPUs are whole, and a replica's GPUs are all on one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.schema import ModelSettings, Placement, Sku


@dataclass(frozen=True, slots=True)
class Demand:
    """What one model may want of a SKU: `replicas` at most, each of `gpus` GPUs."""

    model: str
    replicas: int
    gpus: int


def demands(models: Sequence[ModelSettings], sku: Sku) -> list[Demand]:
    """What the models may want of the SKU at most, in the order of the settings."""
    return [
        Demand(model.name, _most(placement), model.gpus if sku.gpus_per_node else 0)
        for model in models
        for placement in model.placements
        if placement.sku == sku.name
    ]


def _most(placement: Placement) -> int:
    return placement.replicas.max if placement.autoscaled else placement.replicas.min


def fits(wanted: Sequence[Demand], gpus_per_node: int, nodes: int) -> bool:
    """Whether the nodes hold all replicas, however they are placed first: largest first, first node with room.

    Exact where sizes divide one another, as powers of two do. Otherwise it may refuse what a cleverer placement could
    hold, which Kubernetes' scheduler would not find either.
    """
    sizes = sorted((demand.gpus for demand in wanted for _ in range(demand.replicas)), reverse=True)
    free = [gpus_per_node] * nodes
    for size in sizes:
        room = next((node for node, gpus in enumerate(free) if gpus >= size), None)
        if room is None:
            return False
        free[room] -= size
    return True


def surge_fits(models: Sequence[ModelSettings], sku: Sku, model: str) -> bool:
    """Whether one more replica of `model` is certain to fit beside all replicas that the SKU's models may have.

    Replicas of one size leave no gaps, so places are counted. Replicas of several sizes can leave each node with one
    GPU less than is needed, so more must be free than that. A SKU without GPUs has room: its replicas share cores.
    """
    if sku.gpus_per_node == 0:
        return True
    there = demands(models, sku)
    needed = next(demand.gpus for demand in there if demand.model == model)
    if all(demand.gpus == needed for demand in there):
        return sum(demand.replicas for demand in there) < sku.nodes.max * (sku.gpus_per_node // needed)
    free = sku.nodes.max * sku.gpus_per_node - sum(demand.replicas * demand.gpus for demand in there)
    return free > sku.nodes.max * (needed - 1)
