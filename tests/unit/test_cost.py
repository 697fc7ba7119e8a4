"""Cost: the least and the most of what a stack makes; what has no price stays unknown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from fleet import catalog, cost
from fleet.cost import Item
from fleet.schema import Settings

Raw = dict[str, Any]

G5 = Decimal("5.672")  # g5.12xlarge, 4 GPUs
G5_LARGE = Decimal("8.144")  # g5.24xlarge, 4 GPUs
M7I = Decimal("0.2016")  # m7i.xlarge
EKS = Decimal("0.10")
NAT = Decimal("0.045") + Decimal("0.005")
EFS_GB_MONTH = Decimal("0.30")
HOURS = 730


def settings(
    skus: list[Raw],
    replicas: dict[str, tuple[int, int]] | None = None,
    cluster: Raw | None = None,
    tensor_parallel: int = 1,
    **more: object,
) -> Settings:
    placements = [{"sku": sku, "replicas": {"min": low, "max": high}} for sku, (low, high) in (replicas or {}).items()]
    model = {
        "name": "m",
        "version": 1,
        "runtime": "python",
        "tensor_parallel": tensor_parallel,
        "resources": {"cpu": 3.0},
        "placements": placements or [{"sku": "elsewhere", "replicas": {"min": 1, "max": 1}}],
    }
    place = {
        "source": "eks",
        "region": "us-east-1",
        "access": "inside_vpc",
        "network": {"vpc_cidr": "10.0.0.0/16"},
        **(cluster or {}),
    }
    return Settings.model_validate(
        {
            "environment": "dev",
            "cluster": place,
            "skus": skus,
            "models": [model],
            "images": {"triton": "t:1", "tools": "t:1"},
            **more,
        }
    )


def sku(low: int, high: int, *types: str, **instance: object) -> Raw:
    return {
        "name": "s",
        "instance": {"instance_types": types or ["g5.12xlarge"], **instance},
        "nodes": {"min": low, "max": high},
    }


NODES = [
    pytest.param(sku(0, 4), {}, 1, 0, id="nobody asks for it"),
    pytest.param(sku(0, 4), {"s": (1, 9)}, 1, 1, id="one replica needs one node"),
    pytest.param(sku(0, 4), {"s": (5, 9)}, 1, 2, id="five replicas of one GPU need two nodes of four"),
    pytest.param(sku(0, 4), {"s": (3, 9)}, 4, 3, id="a replica of four GPUs needs a node of its own"),
    pytest.param(sku(0, 4), {"s": (3, 9)}, 3, 3, id="a GPU that is left over holds no replica of three"),
    pytest.param(sku(3, 4), {"s": (1, 9)}, 1, 3, id="the group's minimum is more than replicas need"),
    pytest.param(sku(0, 1), {"s": (9, 9)}, 1, 1, id="never more than the group's maximum"),
    pytest.param(sku(0, 9, "m99.large"), {"s": (3, 9)}, 1, 1, id="one at least, whatever the type has"),
    pytest.param(sku(0, 9, "m7i.xlarge"), {"s": (3, 9)}, 1, 3, id="without GPU: 3 replicas x 3 cores on nodes of 4"),
]


@pytest.mark.parametrize(("raw", "replicas", "tensor_parallel", "nodes"), NODES)
def test_nodes_needed(raw: Raw, replicas: dict[str, tuple[int, int]], tensor_parallel: int, nodes: int) -> None:
    made = settings([raw], replicas, tensor_parallel=tensor_parallel)
    assert made.skus[0].instance is not None
    assert cost.nodes_needed(made, made.skus[0], made.skus[0].instance) == nodes


SKUS = [
    pytest.param(
        sku(0, 4), {"s": (5, 9)}, Item(2 * G5, 4 * G5, "s", "2 to 4 x g5.12xlarge, on demand"), id="on demand"
    ),
    pytest.param(
        sku(1, 3, "g5.12xlarge", "g5.24xlarge"),
        {},
        Item(1 * G5, 3 * G5_LARGE, "s", "1 to 3 x g5.12xlarge or g5.24xlarge, on demand"),
        id="of several types the cheapest is the floor and the dearest the ceiling",
    ),
    pytest.param(
        sku(2, 4, capacity="spot", on_demand_floor=1),
        {},
        Item(None, 4 * G5, "s", "2 to 4 x g5.12xlarge, spot"),
        id="spot costs at most what on demand costs, and nobody knows how little",
    ),
    pytest.param(
        sku(1, 4, capacity="spot", on_demand_floor=1),
        {},
        Item(1 * G5, 4 * G5, "s", "1 to 4 x g5.12xlarge, spot"),
        id="spot whose floor is all on demand",
    ),
    pytest.param(
        sku(0, 2, "p5.48xlarge", capacity="capacity_block"),
        {},
        Item(Decimal(0), None, "s", "0 to 2 x p5.48xlarge, capacity block"),
        id="a capacity block was paid for elsewhere",
    ),
    pytest.param(
        sku(0, 2, "p5e.48xlarge"),
        {"s": (1, 1)},
        Item(None, None, "s", "1 to 2 x p5e.48xlarge, on demand"),
        id="no price was found",
    ),
    pytest.param(
        sku(0, 2, "p5e.48xlarge"),
        {},
        Item(Decimal(0), None, "s", "0 to 2 x p5e.48xlarge, on demand"),
        id="none of what has no price costs nothing",
    ),
    pytest.param(
        sku(1, 2, "g5.12xlarge", "g99.large"),
        {},
        Item(None, None, "s", "1 to 2 x g5.12xlarge or g99.large, on demand"),
        id="one type of which nothing is known",
    ),
]


@pytest.mark.parametrize(("raw", "replicas", "expected"), SKUS)
def test_a_sku(raw: Raw, replicas: dict[str, tuple[int, int]], expected: Item) -> None:
    assert cost.of(settings([raw], replicas)).skus == (expected,)


def test_the_whole_stack() -> None:
    made = cost.of(
        settings(
            [sku(1, 2)],
            cluster={"network": {"vpc_cidr": "10.0.0.0/16", "zones": 3, "nat": "per_zone"}},
            store={"kind": "efs", "size_gib": 100},
        )
    )
    efs = EFS_GB_MONTH * 100 * (Decimal(2**30) / Decimal(10**9)) / HOURS
    assert made.shared == (
        Item(EKS, EKS, "control plane", "EKS 1.34, in standard support"),
        Item(2 * M7I, 4 * M7I, "system nodes", "2 to 4 x m7i.xlarge"),
        Item(3 * NAT, 3 * NAT, "NAT", "3 x gateway with address"),
        Item(efs, efs, "model store", "EFS, 100 GiB"),
    )
    assert (made.floor, made.ceiling) == (G5 + EKS + 2 * M7I + 3 * NAT + efs, 2 * G5 + EKS + 4 * M7I + 3 * NAT + efs)
    # 5.672 + 0.1 + 0.4032 + 0.15 + 0.04413 and, a second node, 11.344 + 0.1 + 0.8064 + 0.15 + 0.04413
    assert (made.floor_per_hour, made.ceiling_per_hour) == (6.3693, 12.4445)
    assert (made.floor_per_month, made.ceiling_per_month) == (4649.61, 9084.5)


def test_one_unknown_makes_the_sum_unknown_and_the_others_stay_known() -> None:
    made = settings([sku(1, 2), {**sku(1, 2, "p5e.48xlarge"), "name": "dear"}])
    output = cost.output(made)
    assert output is not None
    assert {
        key: output[key] for key in ("floor_per_hour", "ceiling_per_hour", "floor_per_month", "ceiling_per_month")
    } == {
        "floor_per_hour": "unknown",
        "ceiling_per_hour": "unknown",
        "floor_per_month": "unknown",
        "ceiling_per_month": "unknown",
    }
    assert output["skus"] == [
        {
            "name": "s",
            "what": "1 to 2 x g5.12xlarge, on demand",
            "floor_per_hour": 5.672,
            "ceiling_per_hour": 11.344,
            "floor_per_month": 4140.56,
            "ceiling_per_month": 8281.12,
        },
        {
            "name": "dear",
            "what": "1 to 2 x p5e.48xlarge, on demand",
            "floor_per_hour": "unknown",
            "ceiling_per_hour": "unknown",
            "floor_per_month": "unknown",
            "ceiling_per_month": "unknown",
        },
    ]


def test_another_region_has_other_prices_and_the_catalog_has_none_of_them() -> None:
    made = cost.of(settings([sku(1, 2)], cluster={"region": "eu-central-1"}))
    assert [(item.floor, item.ceiling) for item in (*made.skus, *made.shared)] == [(None, None)] * 4
    assert (made.floor_per_month, made.ceiling_per_hour) == (None, None)


def test_provisioned_throughput_has_no_price_in_the_catalog() -> None:
    store = {"kind": "efs", "size_gib": 1, "throughput": {"mode": "provisioned", "mibps": 8}}
    made = cost.of(settings([sku(1, 2)], store=store))
    assert made.shared[-1] == Item(None, None, "model store", "EFS, 1 GiB, 8 MiB/s provisioned")


def test_one_gateway_serves_three_zones_unless_each_is_to_have_its_own() -> None:
    network = {"vpc_cidr": "10.0.0.0/16", "zones": ["us-east-1a", "us-east-1b", "us-east-1c"]}
    items = [
        cost.of(settings([sku(1, 2)], cluster={"network": {**network, "nat": nat}})).shared[2]
        for nat in ("single", "per_zone")
    ]
    assert items == [
        Item(NAT, NAT, "NAT", "1 x gateway with address"),
        Item(3 * NAT, 3 * NAT, "NAT", "3 x gateway with address"),
    ]


def test_an_existing_network_has_its_own_way_out() -> None:
    network = {"vpc_id": "vpc-01234567", "private_subnet_ids": ["subnet-01234567", "subnet-12345678"]}
    made = cost.of(settings([sku(1, 2)], cluster={"network": network}))
    assert [item.name for item in made.shared] == ["control plane", "system nodes"]


@pytest.mark.parametrize(
    ("cluster", "store", "shared"),
    [
        ({"source": "kubeconfig", "kubeconfig": "k"}, {}, None),
        ({"source": "eks_existing", "name": "c", "region": "us-east-1"}, {}, None),
        ({"source": "eks_existing", "name": "c", "region": "us-east-1"}, {"kind": "efs"}, ["model store"]),
    ],
)
def test_what_is_there_already_costs_the_stack_nothing(cluster: Raw, store: Raw, shared: list[str] | None) -> None:
    made = settings([{"name": "s", "nodes": {"min": 1, "max": 1}}], store=store)
    raw = {**made.model_dump(), "cluster": cluster}
    output = cost.output(Settings.model_validate(raw))
    assert (output if output is None else [item["name"] for item in output["shared"]]) == shared


def test_figures_are_those_of_the_catalog() -> None:
    assert [catalog.instance(name).usd_per_hour for name in ("g5.12xlarge", "g5.24xlarge", "m7i.xlarge")] == [
        G5,
        G5_LARGE,
        M7I,
    ]
