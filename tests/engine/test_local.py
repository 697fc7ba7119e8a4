"""Stack `local` on the real engine, with no cluster."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.engine.conftest import Engine, engine
from tests.unit.graph import local_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

PROVIDER = "pulumi:providers:kubernetes"


@pytest.fixture(scope="module")
def stack(project: Path, engine_path: str, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return engine(project, tmp_path_factory.mktemp("local"), engine_path)


@pytest.fixture(scope="module")
def reviewed(project: Path) -> list[str]:
    """`<type> <name>` of each resource in the plan that is kept for review."""
    golden = yaml.safe_load((project / "tests" / "golden" / "local" / "resources.yaml").read_text())
    return [one["resource"] for one in golden]


@pytest.fixture
def config(project: Path) -> dict[str, Any]:
    """Stack `local` where its cluster has not been started."""
    changed = copy.deepcopy(local_config(project))
    changed["cluster"]["kubeconfig"] = ".fleet/not-there/kubeconfig"
    return changed


def test_a_preview_needs_no_cluster(stack: Engine, config: dict[str, Any], project: Path, reviewed: list[str]) -> None:
    tracked = {path: path.read_bytes() for path in project.glob("Pulumi*.yaml")}
    stack.configure(config)
    done = stack.run("preview")
    assert done.status == 0, done.text
    assert f"+ {len(reviewed)} to create" in done.text
    assert "kubeconfig is not there yet: this is the plan of a first update" in done.text
    assert {path: path.read_bytes() for path in project.glob("Pulumi*.yaml")} == tracked


def test_the_plan_names_what_will_be_registered(stack: Engine, config: dict[str, Any], reviewed: list[str]) -> None:
    stack.configure(config)
    done = stack.run("preview", "--json")
    plan = json.loads(done.text[done.text.index("{\n") :])
    steps = [step for step in plan["steps"] if step["op"] == "create"]
    urns = {step["urn"] for step in steps}
    (provider,) = [urn for urn in urns if f"${PROVIDER}::" in urn]
    kubernetes = [step["newState"] for step in steps if step["newState"]["type"].startswith("kubernetes:")]
    assert sorted(f"{state['type']} {state['urn'].rpartition('::')[2]}" for state in kubernetes) == sorted(
        one for one in reviewed if one.startswith("kubernetes:")
    )
    assert {state["provider"].rpartition("::")[0] for state in kubernetes} == {provider}
    (proof,) = [
        step["newState"]
        for step in steps
        if step["newState"]["type"].endswith(":Verification") and step["newState"]["custom"]
    ]
    assert {state["urn"] for state in kubernetes} <= set(proof["dependencies"])
    assert plan["changeSummary"] == {"create": len(reviewed)}


@pytest.mark.parametrize("checked_by_the_engine_first", [True, False])
def test_all_faults_of_a_configuration_are_told_at_once_b42(
    stack: Engine,
    config: dict[str, Any],
    checked_by_the_engine_first: bool,  # noqa: FBT001 - a column of the table
) -> None:
    config["skus"][0]["nodes"]["min"] = "two"
    config["skus"][1]["node_gruop"] = "a"
    config["models"][0]["placements"][0]["sku"] = "a100"
    stack.configure(config)
    done = stack.run("preview", *([] if checked_by_the_engine_first else ["--skip-config-validation"]))
    assert done.status != 0
    told = re.findall(r"^ *\d+\. (\S+)$", done.text, re.MULTILINE)
    assert sorted(set(told)) == ["models[0].placements[0].sku", "skus[0].nodes.min", "skus[1].node_gruop"]
    assert "Traceback" not in done.text
    assert "GpuCluster" not in done.text
    assert "kubernetes:" not in done.text


def test_a_misspelt_setting_is_named_with_what_was_meant(stack: Engine, config: dict[str, Any]) -> None:
    config["vreification"] = {"deadline_s": 60}
    stack.configure(config)
    done = stack.run("preview", "--skip-config-validation")
    assert done.status != 0
    assert "1. vreification" in done.text
    assert "did you mean 'verification'?" in done.text


def test_an_update_without_its_cluster_is_refused_before_anything_is_made(
    stack: Engine, config: dict[str, Any]
) -> None:
    stack.configure(config)
    done = stack.run("up", "--yes", "--skip-preview")
    assert done.status != 0
    assert "cluster.kubeconfig" in done.text
    assert "which is not there" in done.text
    assert [resource["type"] for resource in stack.state()["deployment"].get("resources", [])] in (
        [],
        ["pulumi:pulumi:Stack"],
    )


def test_a_cluster_named_for_the_run_replaces_the_configured_one(
    stack: Engine, config: dict[str, Any], tmp_path: Path
) -> None:
    stack.configure(config)
    done = stack.run("preview", TRITON_FLEET_CLUSTER=str(tmp_path / "nowhere"))
    assert done.status != 0
    assert "1. TRITON_FLEET_CLUSTER\n" in done.text
    assert str(tmp_path / "nowhere") in done.text
