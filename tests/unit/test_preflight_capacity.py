"""Capacity: GPUs are whole, a replica's are on one node, and a spare one is certain or is none."""

from __future__ import annotations

import pytest

from fleet import capacity
from fleet.capacity import Demand
from fleet.schema import ModelSettings, Sku


@pytest.mark.parametrize(
    ("wanted", "gpus_per_node", "nodes", "fit"),
    [
        ([], 8, 1, True),
        ([Demand("a", 8, 1)], 8, 1, True),
        ([Demand("a", 9, 1)], 8, 1, False),
        ([Demand("a", 2, 5)], 8, 1, False),
        ([Demand("a", 2, 5)], 8, 2, True),
        ([Demand("a", 3, 5)], 8, 2, False),
        ([Demand("a", 8, 1), Demand("b", 1, 8)], 8, 2, True),
        ([Demand("a", 9, 1), Demand("b", 1, 8)], 8, 2, False),
        ([Demand("a", 1, 1)], 8, 0, False),
    ],
)
def test_replicas_fit_nodes(wanted: list[Demand], gpus_per_node: int, nodes: int, fit: bool) -> None:  # noqa: FBT001
    assert capacity.fits(wanted, gpus_per_node, nodes) is fit


def model(name: str, replicas: int, gpus: int, sku: str = "s") -> ModelSettings:
    return ModelSettings.model_validate(
        {
            "name": name,
            "version": 1,
            "runtime": "python",
            "tensor_parallel": gpus,
            "placements": [{"sku": sku, "replicas": {"min": 1, "max": replicas}}],
        }
    )


@pytest.mark.parametrize(
    ("models", "gpus_per_node", "nodes", "certain"),
    [
        pytest.param([model("m", 7, 1)], 8, 1, True, id="one GPU free"),
        pytest.param([model("m", 8, 1)], 8, 1, False, id="none free"),
        pytest.param([model("m", 1, 8)], 8, 2, True, id="one size leaves no gaps: a whole node is free"),
        pytest.param([model("m", 1, 5)], 8, 1, False, id="three free are not five"),
        pytest.param([model("m", 1, 8), model("n", 1, 1)], 8, 3, False, id="one small replica can sit on any node"),
        pytest.param([model("m", 1, 2), model("n", 5, 1)], 8, 1, False, id="one free is not two"),
        pytest.param([model("m", 1, 2), model("n", 4, 1)], 8, 1, True, id="two free on the one node"),
        pytest.param([model("m", 1, 2), model("n", 12, 1)], 8, 2, False, id="two free, on a node each perhaps"),
        pytest.param([model("m", 1, 2), model("n", 11, 1)], 8, 2, True, id="of three free two are together"),
        pytest.param([model("m", 7, 1), model("n", 8, 1, sku="t")], 8, 1, True, id="another SKU's do not count"),
        pytest.param([model("m", 900, 1)], 0, 1, True, id="no GPUs to run out of"),
    ],
)
def test_a_spare_place_is_certain(models: list[ModelSettings], gpus_per_node: int, nodes: int, certain: bool) -> None:  # noqa: FBT001
    product = {"gpu_product": "G", "gpus_per_node": gpus_per_node} if gpus_per_node else {}
    sku = Sku.model_validate({"name": "s", "nodes": {"min": 1, "max": nodes}, **product})
    assert capacity.surge_fits(models, sku, "m") is certain
