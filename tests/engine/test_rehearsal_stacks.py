"""The program itself with stacks dev and prod on the stand-ins: its AWS half, made, changed and taken down.

What lies in the cluster needs one: `--exclude` leaves it out here, tests/e2e rehearses all of it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rehearsal import existing
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


VPC = f"vpc-{1:017x}"
SUBNETS = [f"subnet-{number:017x}" for number in range(3)]


def play(stack: Stack, config: Config) -> None:
    """What the settings name is there, as `make preview` and `make rehearse` see to it."""
    with stack.ledger.opened() as account:
        existing.play(account, {f"triton-fleet:{key}": value for key, value in config.items()})


def refused(stack: Stack, config: Config) -> str:
    stack.engine.configure(config)
    done = stack.engine.run("preview", "--skip-config-validation")
    assert done.status != 0
    assert "Traceback" not in done.text
    return done.text


def test_a_network_that_exists_is_used_and_left_as_it_is(engine_path: str, project: Path, tmp_path: Path) -> None:
    dev = Stack("dev", tmp_path, engine_path, project)
    config = copy.deepcopy(dev.config)
    config["cluster"]["network"] = {"vpc_id": VPC, "private_subnet_ids": SUBNETS}
    config["skus"][0]["instance"]["zone"] = "us-east-1b"
    text = refused(dev, config)
    for number, subnet in enumerate(SUBNETS, start=1):
        assert f"{number}. cluster.network.private_subnet_ids" in text
        assert f"got:   '{subnet}'" in text
    assert f"why:   ResourceNotFoundException: {network.SUBNET} {SUBNETS[0]} does not exist" in text
    play(dev, config)
    theirs = dev.ledger.read().things
    made = dev.up(config)
    own = {network.VPC, network.SUBNET, network.ROUTE, network.NAT_GATEWAY, network.INTERNET_GATEWAY, network.EIP}
    assert {kind for _, kind, _ in made} & own == set()
    groups = {thing.urn.rpartition("::")[2]: thing for thing in dev.ledger.read().of(cluster.NODE_GROUP)}
    # The SKU's zone is dealt the first subnet.
    assert {name: group.inputs["subnetIds"] for name, group in groups.items()} == {
        "a10g": SUBNETS[:1],
        "system": SUBNETS,
    }
    assert sorted(one.inputs["subnetId"] for one in dev.ledger.read().of(storage.MOUNT_TARGET)) == SUBNETS
    assert dev.up(config) == []
    dev.run(config, "destroy", "--yes", "--skip-preview")
    assert {key: thing for key, thing in dev.ledger.read().things.items() if key in theirs} == theirs
    assert [thing.key for thing in dev.ledger.read().things.values() if thing.urn] == []


def test_a_network_that_cannot_hold_a_cluster_is_refused_at_preview(
    engine_path: str, project: Path, tmp_path: Path
) -> None:
    dev = Stack("dev", tmp_path, engine_path, project)
    config = copy.deepcopy(dev.config)
    config["cluster"]["network"] = {"vpc_id": VPC, "private_subnet_ids": [SUBNETS[0], SUBNETS[2]]}
    # Dealt over four zones, the fifth subnet is in the zone of the first.
    there = {"vpc_id": VPC, "private_subnet_ids": [SUBNETS[0], "subnet-b", "subnet-c", "subnet-d", SUBNETS[2]]}
    play(dev, {**config, "cluster": {**config["cluster"], "network": there}})
    text = refused(dev, config)
    assert f"got:   {SUBNETS[0]}, {SUBNETS[2]}, all in us-east-1a" in text
    assert "limit: subnets in 2 zones or more" in text


def test_a_cluster_that_exists_is_adopted_and_left_as_it_is(engine_path: str, project: Path, tmp_path: Path) -> None:
    dev = Stack("dev", tmp_path, engine_path, project)
    config = copy.deepcopy(dev.config)
    config["cluster"] = {"source": "eks_existing", "name": "theirs", "region": "us-east-1"}
    del config["skus"][0]["instance"]
    config["skus"][0] |= {"gpu_product": "NVIDIA-A10G", "gpus_per_node": 1}
    text = refused(dev, config)
    assert "1. cluster.name" in text
    assert f"why:   ResourceNotFoundException: {cluster.CLUSTER} theirs does not exist" in text
    play(dev, config)
    theirs = dev.ledger.read().things
    made = dev.up(config)
    assert {kind for _, kind, _ in made if kind.startswith("aws:eks")} == {cluster.POD_IDENTITY_ASSOCIATION}
    assert len(dev.ledger.read().of(storage.MOUNT_TARGET)) == 2
    assert dev.up(config) == []
    dev.run(config, "destroy", "--yes", "--skip-preview")
    assert dev.ledger.read().things == theirs
