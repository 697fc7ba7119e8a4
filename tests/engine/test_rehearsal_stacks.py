"""The program itself with stacks dev and prod on the stand-ins: its AWS half, made, changed and taken down.

What lies in the cluster needs one: `--exclude` leaves it out here, tests/e2e rehearses all of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rehearsal.kinds import cluster, identity, network, storage
from rehearsal.ledger import Ledger
from tests.engine.conftest import Done, Engine, engine, with_stand_ins

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

CLOUD_ONLY = ("--exclude=**kubernetes:**", "--exclude=**pulumi-python:dynamic**", "--exclude-dependents")
Config = dict[str, Any]


class Stack:
    """One tracked stack of the program, with an account and a backend of its own."""

    def __init__(self, name: str, home: Path, engine_path: str, project: Path) -> None:
        folder = home / "state"
        folder.mkdir()
        (home / "kubeconfig").write_text("apiVersion: v1\nkind: Config\nclusters: []\n")
        self.engine: Engine = engine(
            project,
            folder,
            with_stand_ins(engine_path, project),
            name,
            TRITON_FLEET_ACCOUNT=str(home / "account"),
            TRITON_FLEET_REHEARSAL_KUBECONFIG=str(home / "kubeconfig"),
        )
        self.ledger = Ledger(home / "account", name)
        document = yaml.safe_load((project / f"Pulumi.{name}.yaml").read_text())
        self.config: Config = {key.removeprefix("triton-fleet:"): value for key, value in document["config"].items()}

    def run(self, config: Config, command: str, *arguments: str) -> Done:
        self.engine.configure(config)
        done = self.engine.run(command, *arguments)
        assert done.status == 0, done.text
        return done

    def up(self, config: Config, *only: str) -> list[tuple[str, str, str]]:
        """What the update did in the account: (operation, type, name), sorted."""
        before = len(self.ledger.read().events)
        self.run(config, "up", "--yes", "--skip-preview", "--skip-config-validation", *(only or CLOUD_ONLY))
        return sorted(
            (event["op"], event["type"], event["urn"].rpartition("::")[2])
            for event in self.ledger.read().events[before:]
        )


@pytest.fixture(scope="module")
def prod(engine_path: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """One stack through its life; the tests of this fixture are its days, in order."""
    return Stack("prod", tmp_path_factory.mktemp("prod"), engine_path, project)


def test_prod_1_a_first_preview_needs_no_home_no_cluster_and_no_account(prod: Stack) -> None:
    done = prod.run(prod.config, "preview")
    assert "error" not in done.text
    assert "aws:eks:Cluster" in done.text
    assert not prod.ledger.path.exists()


def test_prod_2_up_makes_everything_once(prod: Stack) -> None:
    done = prod.up(prod.config)
    assert len(done) == len(set(done))
    assert {op for op, _, _ in done} == {"create"}
    assert [name for _, kind, name in done if kind == cluster.NODE_GROUP] == ["a100-40gb", "h100-80gb", "system"]
    assert len([name for _, kind, name in done if kind == storage.MOUNT_TARGET]) == 3


def test_prod_3_a_second_update_changes_nothing(prod: Stack) -> None:
    assert prod.up(prod.config) == []


def test_prod_4_new_bounds_change_one_group_in_place(prod: Stack) -> None:
    changed = copy.deepcopy(prod.config)
    changed["skus"][1]["nodes"]["max"] = 3
    assert prod.up(changed) == [("update", cluster.NODE_GROUP, "h100-80gb")]


def test_prod_5_a_new_taint_changes_one_group_and_its_autoscalers_tag(prod: Stack) -> None:
    changed = copy.deepcopy(prod.config)
    changed["skus"][1]["taints"] = [{"key": "nvidia.com/gpu", "value": "h100", "effect": "NoSchedule"}]
    done = prod.up(changed)
    assert ("update", cluster.NODE_GROUP, "h100-80gb") in done
    assert {kind for _, kind, _ in done} == {cluster.NODE_GROUP, cluster.SCALING_TAG}
    assert {op for op, kind, _ in done if kind == cluster.SCALING_TAG} == {"update"}
    assert {name.removeprefix("h100-80gb")[:1] for _, _, name in done} <= {"", "-", "/", ":"}


def test_prod_6_a_removed_sku_takes_what_was_its_own(prod: Stack) -> None:
    changed = copy.deepcopy(prod.config)
    (gone,) = [sku for sku in changed["skus"] if sku["name"] == "h100-80gb"]
    changed["skus"].remove(gone)
    for model in changed["models"]:
        model["placements"] = [one for one in model["placements"] if one["sku"] != "h100-80gb"]
    # Together with --exclude the engine deletes nothing; by --target it deletes what is named.
    done = prod.up(changed, "--target=**$aws:**")
    assert {kind for op, kind, _ in done if op == "delete"} == {
        cluster.NODE_GROUP,
        cluster.SCALING_TAG,
        cluster.LAUNCH_TEMPLATE,
    }
    # The autoscaler may change the groups that are left, and no others.
    assert [one for one in done if one[0] != "delete"] == [("update", identity.ROLE_POLICY, "cluster-autoscaler")]
    assert sorted(thing.urn.rpartition("::")[2] for thing in prod.ledger.read().of(cluster.NODE_GROUP)) == [
        "a100-40gb",
        "system",
    ]


def test_prod_7_destroy_is_refused_and_nothing_is_gone(prod: Stack) -> None:
    before = prod.ledger.read().things
    prod.engine.configure(prod.config)
    done = prod.engine.run("destroy", "--yes")
    assert done.status != 0
    assert "protected" in done.text
    assert prod.ledger.read().things == before


def test_dev_lives_and_goes(engine_path: str, project: Path, tmp_path: Path) -> None:
    dev = Stack("dev", tmp_path, engine_path, project)
    made = dev.up(dev.config)
    assert {op for op, _, _ in made} == {"create"}
    dev.run(dev.config, "destroy", "--yes", "--skip-preview")
    left = dev.ledger.read().things
    assert [thing.type for thing in left.values() if thing.type in (cluster.CLUSTER, network.VPC)] == []
    assert {thing.urn.rpartition("::")[2] for thing in left.values()} <= {""}
