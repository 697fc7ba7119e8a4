"""The rehearsal's own decisions: which node plays which SKU, what a report says, what may be left."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import preflight, settings
from local import bench, rehearse, stack
from local.errors import LocalError
from local.rehearse import Phase
from rehearsal import overlay

if TYPE_CHECKING:
    from pathlib import Path

A100 = "NVIDIA-A100-SXM4-40GB"
H100 = "NVIDIA-H100-80GB-HBM3"
A10G = "NVIDIA-A10G"


def sku(name: str, product: str | None, gpus: int = 8, **labels: str) -> SimpleNamespace:
    taint = SimpleNamespace(key="nvidia.com/gpu", value="present", effect="NoSchedule")
    return SimpleNamespace(
        name=name, gpu_product=product, gpus_per_node=gpus, labels=labels, taints=[taint] if product else []
    )


def fleet(*skus: SimpleNamespace) -> Any:  # noqa: ANN401 - what is read of the settings
    return SimpleNamespace(environment="prod", skus=skus)


@pytest.mark.parametrize(
    ("skus", "played"),
    [
        pytest.param(
            [sku("h", H100), sku("a", A100)],
            {"gpu-h100-80gb": ("h", H100, 8), "gpu-a100-40gb": ("a", A100, 8)},
            id="nodes that have the product keep it",
        ),
        pytest.param([sku("g5", A10G, 1)], {"gpu-a100-40gb": ("g5", A10G, 1)}, id="another product, other GPUs"),
        pytest.param(
            [sku("g5", A10G, 1), sku("a", A100)],
            {"gpu-a100-40gb": ("a", A100, 8), "gpu-h100-80gb": ("g5", A10G, 1)},
            id="the other product gets the other node",
        ),
        pytest.param([sku("cpu", None, 0)], {}, id="no GPU"),
    ],
)
def test_embedded_nodes_play_the_node_groups(
    skus: list[SimpleNamespace], played: dict[str, tuple[str, str, int]]
) -> None:
    plan = rehearse.nodes_of(fleet(*skus))
    assert {
        node.name: (node.all_labels["triton-fleet.io/sku"], node.gpu_product, node.gpus) for node, _ in plan
    } == played
    assert all(taints == ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},) for _, taints in plan)


def test_more_skus_than_nodes_are_refused() -> None:
    with pytest.raises(LocalError, match="3 GPU SKUs; the embedded cluster has 2 GPU nodes"):
        rehearse.nodes_of(fleet(sku("a", A100), sku("b", H100), sku("c", A10G)))


def test_a_report_is_read_as_a_table() -> None:
    phases = [
        Phase("up", ok=True, seconds=61.24).counted({"create": 130, "same": 2}),
        Phase("what is left", ok=False, seconds=0.5, left=("aws:efs/fileSystem:FileSystem|fs-1",)),
    ]
    assert rehearse.table(phases).splitlines() == [
        "ok    up              61.2 s  130 created",
        "FAIL  what is left     0.5 s",
        "                             aws:efs/fileSystem:FileSystem|fs-1",
    ]


def test_what_aws_makes_by_itself_is_nothing_that_was_left(tmp_path: Path) -> None:
    file = tmp_path / "prod.json"
    assert rehearse.account_left(file) == []
    file.write_text(json.dumps({"resources": {"b|2": {"urn": "u"}, "a|1": {"urn": "u"}, "c|3": {"urn": ""}}}))
    assert rehearse.account_left(file) == ["a|1", "b|2"]


def config_of(project: Path, name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((project / f"Pulumi.{name}.yaml").read_text())["config"]
    return config


@pytest.mark.parametrize("name", ["dev", "prod", "local"])
def test_each_stack_as_it_is_rehearsed_can_work(project: Path, name: str) -> None:
    by = overlay.Substitutes.of(config_of(project, "local"))
    changed, _ = overlay.substitute(stack.without_secure(config_of(project, name)), by)
    loaded = settings.load(settings.from_config(changed), project)
    assert preflight.check(loaded, project).refusals == ()
    assert {placement.sku for placement in loaded.models[0].placements} == {one.name for one in loaded.skus}
    assert len(rehearse.nodes_of(loaded)) == len(loaded.skus)


@pytest.mark.parametrize("count", bench.SKUS)
def test_the_stacks_that_previews_are_measured_with_can_work(project: Path, count: int) -> None:
    config = bench.with_skus(config_of(project, "prod"), count)
    loaded = settings.load(settings.from_config(config), project)
    assert preflight.check(loaded, project).refusals == ()
    assert len(loaded.skus) == len(loaded.models[0].placements) == count


@pytest.mark.parametrize(
    ("figures", "times"),
    [
        pytest.param({1: 11, 5: 15, 20: 30, 50: 60}, 1.0, id="linear, with a fixed part"),
        pytest.param({1: 1, 5: 25, 20: 400, 50: 2500}, 3.8, id="quadratic"),
    ],
)
def test_growth_tells_linear_from_worse(figures: dict[int, float], times: float) -> None:
    assert bench.growth(figures) == pytest.approx(times, abs=0.1)
