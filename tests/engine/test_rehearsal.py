"""The stand-ins for `aws` and `eks` under the real engine: a stack's life, and what it must survive."""

from __future__ import annotations

import collections
import json
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from rehearsal import recovery
from rehearsal.account import UNKNOWN
from rehearsal.faults import Order
from rehearsal.kinds.cluster import CLUSTER, NODE_GROUP, SCALING_TAG
from rehearsal.kinds.network import VPC
from rehearsal.kinds.storage import FILE_SYSTEM, MOUNT_TARGET
from rehearsal.ledger import Ledger
from tests.engine.conftest import Done, Engine, engine, with_stand_ins

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

MADE = 29
"""Resources of the small program in the account: all that it registers but the provider, the component, the stack."""
KUBECONFIG = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "embedded"}]}


@dataclass(frozen=True)
class Rehearsed:
    """The small program on the stand-ins."""

    engine: Engine
    ledger: Ledger

    def run(self, command: str, *arguments: str, **plan: object) -> Done:
        return self.engine.run(command, *arguments, PLAN=json.dumps(plan))

    def up(self, *, ok: bool = True, **plan: object) -> Done:
        done = self.run("up", "--yes", "--skip-preview", **plan)
        assert (done.status == 0) == ok, done.text
        return done

    def killed(self) -> None:
        """An update that is killed on its way; it leaves the stack locked, which `local.stack` clears away too."""
        done = self.run("up", "--yes", "--skip-preview")
        assert done.status == -signal.SIGKILL, done.text
        done = self.engine.cancel()
        assert done.status == 0, done.text

    def unchanged(self, **plan: object) -> None:
        done = self.run("preview", "--expect-no-changes", **plan)
        assert done.status == 0, done.text

    def events(self) -> list[tuple[str, str, str]]:
        """(operation, type, Pulumi's name) of all that was done in the account, in order."""
        return [(event["op"], event["type"], event["urn"].rpartition("::")[2]) for event in self.ledger.read().events]

    def since(self, before: int) -> list[tuple[str, str, str]]:
        return self.events()[before:]


def rehearsed(home: Path, engine_path: str, project: Path) -> Rehearsed:
    program = home / "program"
    program.mkdir()
    (program / "Pulumi.yaml").write_text("name: small\nruntime: python\n")
    shutil.copy(project / "tests" / "engine" / "aws_program.py", program / "__main__.py")
    kubeconfig = home / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))
    folder = home / "state"
    folder.mkdir()
    made = engine(
        program,
        folder,
        with_stand_ins(engine_path, project),
        "dev",
        TRITON_FLEET_ACCOUNT=str(home / "account"),
        TRITON_FLEET_REHEARSAL_KUBECONFIG=str(kubeconfig),
    )
    return Rehearsed(made, Ledger(home / "account", "dev"))


@pytest.fixture(scope="module")
def life(engine_path: str, project: Path, tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """One stack through its life; the tests of this fixture are its days, in order."""
    return rehearsed(tmp_path_factory.mktemp("life"), engine_path, project)


@pytest.fixture
def fresh(engine_path: str, project: Path, tmp_path: Path) -> Rehearsed:
    return rehearsed(tmp_path, engine_path, project)


def steps(done: Done) -> list[dict[str, Any]]:
    plan = json.loads(done.text[done.text.index("{\n") :])
    found: list[dict[str, Any]] = plan["steps"]
    return found


def test_life_1_a_first_preview_knows_no_ids_and_touches_no_account(life: Rehearsed) -> None:
    done = life.run("preview", "--json")
    assert done.status == 0, done.text
    by_type = {step["newState"]["type"]: step["newState"] for step in steps(done)}
    assert "id" not in by_type[VPC]
    assert by_type[CLUSTER]["inputs"]["name"] == "fleet"
    assert by_type[MOUNT_TARGET]["inputs"]["fileSystemId"] == UNKNOWN
    assert not life.ledger.path.exists()


def test_life_2_up_makes_all_of_it_once(life: Rehearsed) -> None:
    life.up()
    events = life.events()
    assert {op for op, _, _ in events} == {"create"}
    assert len(events) == len(set(events)) == MADE
    outputs = life.engine.outputs()
    assert json.loads(outputs["kubeconfig"]) == KUBECONFIG
    assert outputs["vpc"].startswith("vpc-")
    assert outputs["file_system"] == life.ledger.read().of(FILE_SYSTEM)[0].outputs["arn"]


def test_life_3_a_second_preview_changes_nothing(life: Rehearsed) -> None:
    life.unchanged()


def test_life_4_new_bounds_change_the_groups_in_place(life: Rehearsed) -> None:
    before, ids = len(life.events()), {thing.id for thing in life.ledger.read().of(NODE_GROUP)}
    life.up(max=5)
    assert sorted(life.since(before)) == [("update", NODE_GROUP, "a100"), ("update", NODE_GROUP, "system")]
    groups = life.ledger.read().of(NODE_GROUP)
    assert {thing.id for thing in groups} == ids
    assert {thing.outputs["scalingConfig"]["maxSize"] for thing in groups} == {5}


def test_life_5_a_new_taint_value_changes_the_group_in_place(life: Rehearsed) -> None:
    before = len(life.events())
    life.up(max=5, groups={"system": {}, "a100": {"taint": "spare"}})
    assert life.since(before) == [("update", NODE_GROUP, "a100")]


def test_life_6_a_removed_sku_takes_its_group_and_nothing_else(life: Rehearsed) -> None:
    before = len(life.events())
    life.up(max=5, groups={"system": {}})
    assert life.since(before) == [("delete", SCALING_TAG, "a100"), ("delete", NODE_GROUP, "a100")]


def test_life_7_what_is_protected_is_not_destroyed(life: Rehearsed) -> None:
    life.up(max=5, groups={"system": {}}, protect=True)
    before = len(life.events())
    # Its preview refuses it; without one, all that is not protected would go first.
    done = life.run("destroy", "--yes")
    assert done.status != 0
    assert "protected" in done.text
    assert life.since(before) == []


def test_life_8_destroy_takes_everything_in_an_order_that_aws_accepts(life: Rehearsed) -> None:
    life.up(max=5, groups={"system": {}}, protect=False)
    before = len(life.events())
    done = life.run("destroy", "--yes", "--skip-preview")
    assert done.status == 0, done.text
    order = [kind for _, kind, _ in life.since(before)]
    assert order.index(NODE_GROUP) < order.index(CLUSTER) < order.index(VPC)
    assert life.ledger.read().things == {}


def test_faults_are_survived_with_nothing_made_twice_or_lost(fresh: Rehearsed) -> None:
    """Each update meets one; the last one meets none, and finds the rest to do."""
    fresh.ledger.order(Order("throttle", "aws:ec2/subnet:Subnet", times=3), Order("quota", NODE_GROUP, "a100"))
    assert "LimitExceededException" in fresh.up(ok=False).text
    fresh.ledger.order(Order("not_found_after_create", NODE_GROUP), Order("throttle", MOUNT_TARGET, times=100))
    text = fresh.up(ok=False).text
    assert "couldn't find resource" in text
    assert "Traceback" not in text
    fresh.ledger.order(Order("crash", "aws:eks/addon:Addon"), Order("slow_create", SCALING_TAG, seconds=1))
    fresh.killed()
    fresh.ledger.order()
    fresh.up()
    fresh.unchanged()
    created = collections.Counter(event for event in fresh.events() if event[0] == "create")
    assert len(created) == MADE
    assert set(created.values()) == {1}
    assert not [event for event in fresh.events() if event[0] == "delete"]


def test_a_creation_that_a_crash_hid_is_found_again(fresh: Rehearsed) -> None:
    """The state holds only that it was begun; it is taken in by its id, not made again."""
    fresh.ledger.order(Order("crash", VPC, when="after"))
    fresh.killed()
    state = fresh.engine.state()
    found = recovery.pending(state, fresh.ledger.read())
    assert [urn.rpartition("::")[2] for urn in found] == ["vpc"]
    fresh.engine.restore(recovery.adopted(state, found))
    done = fresh.run("refresh", "--yes", "--skip-preview")
    assert done.status == 0, done.text
    fresh.up()
    fresh.unchanged()
    assert len(fresh.ledger.read().of(VPC)) == 1


REFUSED = {
    "aws.ec2.NetworkAcl('x', vpc_id='vpc-1')": "has no resource type aws:ec2/networkAcl:NetworkAcl",
    "aws.ec2.Subnet('x', vpc_id='vpc-0123456789abcdef0', cidr_block='10.0.0.0/24')": "InvalidVpcID.NotFound",
    "aws.ec2.get_ami(owners=['self'])": "has no function aws:ec2/getAmi:getAmi",
    "aws.ec2.Eip('x', opts=pulumi.ResourceOptions(provider=aws.Provider('none')))": "invalid AWS region",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_aws_would_not_take_fails_the_update_with_the_reason(fresh: Rehearsed, statement: str) -> None:
    (fresh.engine.program / "__main__.py").write_text(f"import pulumi\nimport pulumi_aws as aws\n{statement}\n")
    region = "" if "Provider(" in statement else "aws:region"
    fresh.engine.settings_file.write_text(json.dumps({"config": {region: "eu-central-1"} if region else {}}))
    text = fresh.up(ok=False).text
    assert REFUSED[statement] in text
    assert fresh.ledger.read().things == {}
