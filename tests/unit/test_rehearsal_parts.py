"""The rehearsal's other parts: ordered faults, policy documents, shapes of types, the files of an account, recovery."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pulumi
import pytest

from rehearsal import eks_plugin, faults, policies, recovery, shapes
from rehearsal.account import UNKNOWN, ApiError
from rehearsal.aws_plugin import ignore, type_of
from rehearsal.faults import RETRIES, Order
from rehearsal.kinds.network import SUBNET, VPC
from rehearsal.ledger import Ledger, number_of
from rehearsal.shapes import ResourceShape, Shapes

if TYPE_CHECKING:
    from pathlib import Path

TAKEN = [
    ([], "create", None, []),
    ([Order("quota", VPC)], "create", Order("quota", VPC), []),
    ([Order("quota", VPC)], "delete", None, [Order("quota", VPC)]),
    ([Order("quota", VPC, name="b")], "create", None, [Order("quota", VPC, name="b")]),
    (
        [Order("quota", "aws:ec2/*", name="a*", times=2)],
        "create",
        Order("quota", "aws:ec2/*", name="a*"),
        [Order("quota", "aws:ec2/*", name="a*")],
    ),
    ([Order("throttle", VPC, times=3)], "create", Order("throttle", VPC, times=3), []),
    (
        [Order("throttle", VPC, times=RETRIES + 5)],
        "create",
        Order("throttle", VPC, times=RETRIES + 1),
        [Order("throttle", VPC, times=4)],
    ),
    ([Order("crash", SUBNET), Order("quota", VPC)], "create", Order("quota", VPC), [Order("crash", SUBNET)]),
]


@pytest.mark.parametrize(("orders", "op", "met", "left"), TAKEN)
def test_a_call_meets_the_first_order_for_it_once(
    orders: list[Order], op: faults.Op, met: Order | None, left: list[Order]
) -> None:
    assert faults.take(orders, op, VPC, "abc") == (met, left)


def test_orders_travel_as_json() -> None:
    orders = [Order("crash", VPC, name="a", op="delete", times=2, seconds=1.5, when="after")]
    assert faults.parse(json.loads(json.dumps([order.as_json() for order in orders]))) == orders


def statement(**elements: object) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", **elements}]}


DOCUMENTS: list[tuple[object, policies.Use, list[str]]] = [
    (statement(Resource="*"), "identity", []),
    (json.dumps(statement(Resource="*")), "identity", []),
    (UNKNOWN, "identity", []),
    (None, "identity", []),
    (statement(Principal={"Service": "x"}), "trust", []),
    (statement(Principal="*", Resource="*"), "resource", []),
    (statement(), "identity", ["Statement[0] names no Resource"]),
    (
        statement(Resource="*", Principal="*"),
        "identity",
        ["Statement[0] names a Principal, which an identity's policy cannot"],
    ),
    (statement(Resource="*", Principal="*"), "trust", ["Statement[0] names a Resource, which a trust policy cannot"]),
    (statement(Resource="*", Effect="allow"), "identity", ["Statement[0].Effect is allow"]),
    (statement(Resource="*", Action=[]), "identity", ["Statement[0] names no Action"]),
    (statement(Resource="*", Resources="*"), "identity", ["Statement[0] has no element Resources"]),
    ({"Version": "2012-10-17"}, "identity", ["there is no Statement"]),
    ({**statement(Resource="*"), "Version": "2024-01-01"}, "identity", ["Version is 2024-01-01, not 2012-10-17"]),
    ([], "identity", ["a policy is an object"]),
]


@pytest.mark.parametrize(("document", "use", "reasons"), DOCUMENTS)
def test_a_policy_document_is_judged_by_its_use(document: object, use: policies.Use, reasons: list[str]) -> None:
    assert list(policies.faults(document, use)) == [f"MalformedPolicyDocument: {reason}" for reason in reasons]


def test_a_trust_policy_lets_in_whom_it_names_for_what_it_names() -> None:
    document = statement(Principal={"Service": ["a", "b"]}, Action=["sts:AssumeRole"])
    assert policies.trusts(document, "b")
    assert not policies.trusts(document, "c")
    assert not policies.trusts(document, "b", ("sts:AssumeRole", "sts:TagSession"))
    assert not policies.trusts({**document, "Statement": [{**document["Statement"][0], "Effect": "Deny"}]}, "b")


VALUES = [
    (VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}}, []),
    (VPC, {"cidrBlock": UNKNOWN, "tags": UNKNOWN, "enableDnsSupport": None, "__defaults": []}, []),
    (VPC, {"cidr": "10.0.0.0/16"}, [("cidr", "the type has no such property")]),
    (VPC, {"cidrBlock": 10}, [("cidrBlock", "expected string, got 10")]),
    (VPC, {"tags": {"a": True}}, [("tags.a", "expected string, got true")]),
    (SUBNET, {"cidrBlock": "10.0.0.0/24"}, [("vpcId", "required, not given")]),
    (
        "aws:eks/nodeGroup:NodeGroup",
        {
            "clusterName": "a",
            "nodeRoleArn": "b",
            "subnetIds": "c",
            "scalingConfig": {"minSize": "1", "maxSize": 2},
            "taints": [{"key": "a"}],
        },
        [
            ("subnetIds", 'expected list, got "c"'),
            ("scalingConfig.desiredSize", "required, not given"),
            ("scalingConfig.minSize", 'expected integer, got "1"'),
            ("taints[0].effect", "required, not given"),
        ],
    ),
]


@pytest.mark.parametrize(("token", "values", "found"), VALUES)
def test_values_are_checked_against_the_sdks_own_classes(
    token: str, values: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    assert list(shapes.faults(shapes.read(token).inputs, values)) == found


def test_a_type_that_the_sdk_lacks_has_no_shape() -> None:
    with pytest.raises(LookupError, match="no type aws:ec2/planet:Planet"):
        shapes.read("aws:ec2/planet:Planet")


def test_shapes_are_read_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Shapes(tmp_path / "shapes.json")
    known = {token: first[token] for token in (VPC, SUBNET)}
    monkeypatch.setattr(shapes, "read", lambda token: pytest.fail(f"{token} was read again"))
    again = Shapes(tmp_path / "shapes.json")
    assert {token: again[token] for token in (VPC, SUBNET)} == known
    assert all(isinstance(shape, ResourceShape) for shape in known.values())


def test_stacks_are_accounts_of_their_own(tmp_path: Path) -> None:
    with Ledger(tmp_path, "dev").opened() as account:
        vpc = account.create(VPC, "urn", {"cidrBlock": "10.0.0.0/16"}, "eu-central-1")
    assert Ledger(tmp_path, "dev").read().get(VPC, vpc.id) == vpc
    assert Ledger(tmp_path, "prod").read().get(VPC, vpc.id) is None
    numbers = {number_of("dev"), number_of("prod")}
    assert len(numbers) == 2
    assert all(len(number) == 12 and number.isdigit() for number in numbers)


def test_a_refused_call_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "dev")
    with ledger.opened() as account:
        account.create(VPC, "urn", {"cidrBlock": "10.0.0.0/16"}, "eu-central-1")
    before = ledger.path.read_bytes()
    with pytest.raises(ApiError), ledger.opened() as account:
        account.create(SUBNET, "urn", {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24"}, "eu-central-1")
    assert ledger.path.read_bytes() == before


def test_what_a_crash_hid_is_found_by_its_urn(tmp_path: Path) -> None:
    with Ledger(tmp_path, "dev").opened() as account:
        vpc = account.create(VPC, "urn:vpc", {"cidrBlock": "10.0.0.0/16"}, "eu-central-1")
    operations = [
        {"type": "creating", "resource": {"urn": "urn:vpc", "inputs": {}}},
        {"type": "creating", "resource": {"urn": "urn:never-made"}},
        {"type": "updating", "resource": {"urn": "urn:other"}},
    ]
    state = {"version": 3, "deployment": {"resources": [{"urn": "urn:stack"}], "pending_operations": operations}}
    found = recovery.pending(state, account)
    assert found == {"urn:vpc": vpc.id}
    assert recovery.adopted(state, found) == {
        "version": 3,
        "deployment": {
            "resources": [{"urn": "urn:stack"}, {"urn": "urn:vpc", "inputs": {}, "id": vpc.id}],
            "pending_operations": [],
        },
    }
    assert recovery.pending({"deployment": {}}, account) == {}


CONTROL_PLANE = {
    "name": "fleet",
    "serviceRole": pulumi.Output.from_input("role"),
    "privateSubnetIds": [pulumi.Output.from_input("subnet-1")],
    **eks_plugin.DECIDED,
}
OPTIONS = [
    ({}, []),
    ({"skipDefaultNodeGroup": None}, ["skipDefaultNodeGroup: the stand-in eks holds true only, got null"]),
    ({"authenticationMode": "CONFIG_MAP"}, ['authenticationMode: the stand-in eks holds "API" only, got "CONFIG_MAP"']),
    ({"gpu": True}, ["gpu: an option that the stand-in eks does not hold; add it to rehearsal/eks_plugin.py"]),
    ({"serviceRole": None}, ["serviceRole: the stand-in eks makes no role of its own"]),
    ({"subnetIds": ["a"]}, ["subnetIds: mutually exclusive with privateSubnetIds and publicSubnetIds"]),
    ({"endpointPublicAccess": "yes"}, ['endpointPublicAccess: expected boolean, got "yes"']),
]


@pytest.mark.parametrize(("changes", "found"), OPTIONS)
def test_an_option_with_which_the_component_would_register_more_is_refused(
    changes: dict[str, Any], found: list[str]
) -> None:
    assert eks_plugin.faults({**CONTROL_PLANE, **changes}) == found


def test_a_resources_type_is_told_from_those_of_its_parents() -> None:
    assert type_of(f"urn:pulumi:dev::fleet::a:b:C$eks:index:Cluster${VPC}::name") == VPC


IGNORED = [
    ("a", {"a": 1}, {"a": 2}, {"a": 1}),
    ("a.b", {"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "c": 2}}, {"a": {"b": 1, "c": 2}}),
    ("a", {}, {"a": 2}, {}),
]


@pytest.mark.parametrize(("path", "olds", "news", "result"), IGNORED)
def test_an_ignored_change_keeps_the_old_value(
    path: str, olds: dict[str, Any], news: dict[str, Any], result: dict[str, Any]
) -> None:
    ignore(path, olds, news)
    assert news == result
