"""The catalog: what it holds agrees with itself, and says where each figure comes from."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from typing import get_args

import pulumi_aws
import pytest

from fleet import aws_addons, aws_autoscaler, catalog
from fleet.catalog import data
from fleet.catalog.charts import CHARTS, Compat
from fleet.catalog.kubernetes import versions
from fleet.catalog.models import Measures, models
from fleet.catalog.regions import regions
from fleet.catalog.services import Service, price
from fleet.schema import SystemNodes
from fleet.schema_base import GPUS_PER_NODE_MAX

ASKED_FOR = {"g5", "g6", "g6e", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"}
DATE = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
LABEL = re.compile(r"NVIDIA-[A-Z0-9-]+")
GPU_MEMORY_GB = {
    "a10g": 24,
    "l4": 24,
    "l40s": 48,
    "a100-40gb": 40,
    "a100-80gb": 80,
    "h100": 80,
    "h200": 141,
    "b200": 192,
}
"""As sold. What a GPU reports is less or, where makers count in GiB, up to 7.4 percent more."""
GPU_FAMILIES = sorted(ASKED_FOR)


def test_the_families_asked_for_are_there() -> None:
    found = {each.family for each in catalog.instances().values()}
    assert found >= ASKED_FOR
    assert found - ASKED_FOR == {"m7i", "m7g"}, "for nodes without GPU"


@pytest.mark.parametrize("name", sorted(catalog.instances()))
def test_an_instance_agrees_with_itself(name: str) -> None:
    one = catalog.instance(name)
    has_gpu = one.family in ASKED_FOR
    assert (one.gpus > 0, one.gpu is not None, one.gpu_product is not None, one.gpu_memory_mib is not None) == (
        (has_gpu,) * 4
    )
    assert one.gpus in {0, 1, 4, 8}
    assert one.gpus <= GPUS_PER_NODE_MAX
    assert one.memory_mib % 1024 == 0
    assert one.vcpus * 2 * 1024 <= one.memory_mib, "cores have 2 GiB each, at least"
    assert one.architecture == ("arm64" if one.family == "m7g" else "x86_64")
    if one.gpu is not None and one.gpu_memory_mib is not None:
        assert 0.85 < one.gpu_memory_mib * 2**20 / (GPU_MEMORY_GB[one.gpu] * 10**9) < 1.075
        assert LABEL.fullmatch(str(one.gpu_product))
        assert one.local_disk_gb > 0


@pytest.mark.parametrize("family", GPU_FAMILIES)
def test_larger_sizes_of_a_family_have_and_cost_no_less(family: str) -> None:
    sizes = sorted((each for each in catalog.instances().values() if each.family == family), key=lambda one: one.vcpus)
    for smaller, larger in pairwise(sizes):
        assert smaller.memory_mib <= larger.memory_mib
        if smaller.gpus <= larger.gpus and smaller.usd_per_hour and larger.usd_per_hour:
            assert smaller.usd_per_hour < larger.usd_per_hour


def test_the_regions_are_those_that_the_aws_provider_knows() -> None:
    assert sorted(regions()) == sorted(region.value for region in pulumi_aws.Region)


def test_prices_have_a_region_a_date_and_a_source() -> None:
    priced = [each for each in catalog.instances().values() if each.usd_per_hour is not None]
    assert {each.name for each in catalog.instances().values()} - {each.name for each in priced} == {"p5e.48xlarge"}
    for one in priced:
        assert one.usd_per_hour is not None
        assert one.usd_per_hour > 0
        assert DATE.fullmatch(one.price_date)
        assert one.price_source.startswith("https://")
        assert one.price(one.price_region) == one.usd_per_hour
        assert one.price("eu-central-1") is None, "a price of another region is no price"


def test_services_have_a_date_and_a_source_where_they_have_a_price() -> None:
    read = data.load("services.yaml")
    assert set(read["prices"]) == {service.value for service in Service}
    for entry in read["prices"].values():
        known = entry["usd"] is not None
        assert (entry["date"] is not None, entry["source"] is not None) == (known, known)
        assert not known or DATE.fullmatch(entry["date"])
    assert price(Service.EKS_STANDARD, read["region"]) == Decimal("0.10")
    assert price(Service.EKS_STANDARD, "eu-central-1") is None
    assert price(Service.EFS_PROVISIONED, read["region"]) is None


def test_gpus_say_where_their_names_come_from() -> None:
    gpus = data.load("instances.yaml")["gpus"]
    assert all(gpu["product_source"] for gpu in gpus.values() if gpu["product"] is not None)
    products = [gpu["product"] for gpu in gpus.values()]
    assert len(set(products)) == len(products)
    assert set(gpus) == {each.gpu for each in catalog.instances().values()} - {None}


def test_find_and_instance_differ_on_what_is_not_there() -> None:
    assert catalog.find("g5.xlarge") == catalog.instance("g5.xlarge")
    assert catalog.find("g5.huge") is None
    with pytest.raises(KeyError):
        catalog.instance("g5.huge")


def test_default_system_nodes_have_no_gpu_and_are_known() -> None:
    assert catalog.instance(SystemNodes().instance_type).gpus == 0


def test_every_version_with_pins_is_one_that_eks_supports() -> None:
    assert set(aws_addons.VERSIONS) <= set(versions())
    assert set(aws_autoscaler.IMAGE_TAGS) <= set(versions())
    for support in versions().values():
        assert DATE.fullmatch(support.standard_until)
        assert support.standard_until < support.extended_until


def test_charts_are_pinned() -> None:
    for chart in CHARTS.values():
        assert set(chart.versions) == set(get_args(Compat))
        assert all(re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version) for version in chart.versions.values())
        assert chart.repository.startswith(("https://", "oci://"))


def parameters(model: Measures) -> int:
    """Of a Llama: embeddings, head, and per layer attention, gated MLP and two norms; one more norm at the end."""
    heads = model.hidden // model.head_dim
    attention = 2 * model.hidden * heads * model.head_dim + 2 * model.hidden * model.kv_heads * model.head_dim
    layer = attention + 3 * model.hidden * model.intermediate + 2 * model.hidden
    return 2 * model.vocabulary * model.hidden + model.layers * layer + model.hidden


@pytest.mark.parametrize("name", sorted(models()))
def test_parameters_follow_from_the_measures(name: str) -> None:
    assert parameters(models()[name]) == models()[name].parameters
