"""What a stack names that exists already is there for the stand-ins, so that its plan needs no account."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal import existing, functions
from rehearsal.account import Account
from rehearsal.kinds import KINDS
from rehearsal.kinds.cluster import CLUSTER
from rehearsal.kinds.network import SUBNET, VPC

VPC_ID = f"vpc-{1:017x}"
SUBNETS = [f"subnet-{number:017x}" for number in range(4)]


def config(cluster: object, *zones: str) -> dict[str, Any]:
    skus = [{"name": zone, "instance": {"zone": zone}} for zone in zones]
    return {"triton-fleet:cluster": cluster, "triton-fleet:skus": [*skus, {"name": "any"}]}


def network(**changes: object) -> dict[str, Any]:
    named = {"vpc_id": VPC_ID, "private_subnet_ids": SUBNETS[:3], "public_subnet_ids": SUBNETS[3:]} | changes
    return {"source": "eks", "region": "us-east-1", "network": named}


def played(of: object, *zones: str) -> tuple[Account, list[str]]:
    account = Account("123456789012", KINDS)
    return account, existing.play(account, config(of, *zones))


@pytest.mark.parametrize(
    ("zones", "dealt"),
    [
        ((), ["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1a"]),
        (("us-east-1c",), ["us-east-1c", "us-east-1a", "us-east-1b", "us-east-1c"]),
        (("us-east-1c", "us-east-1b", "eu-west-1a"), ["us-east-1b", "us-east-1c", "us-east-1a", "us-east-1b"]),
    ],
)
def test_the_subnets_of_a_network_are_dealt_to_the_zones_those_first_that_skus_ask_for(
    zones: tuple[str, ...], dealt: list[str]
) -> None:
    account, said = played(network(), *zones)
    found = [functions.call(account, "aws:ec2/getSubnet:getSubnet", "us-east-1", {"id": subnet}) for subnet in SUBNETS]
    assert [one["availabilityZone"] for one in found] == dealt
    assert {one["vpcId"] for one in found} == {VPC_ID}
    assert said == [
        f"network {VPC_ID} is played, with "
        + ", ".join(f"{subnet} in {zone}" for subnet, zone in zip(SUBNETS, dealt, strict=True))
        + ": the zones are made up"
    ]


def test_a_cluster_is_there_with_a_network_of_two_zones() -> None:
    account, said = played({"source": "eks_existing", "name": "theirs", "region": "eu-west-1"})
    found = functions.call(account, "aws:eks/getCluster:getCluster", "eu-west-1", {"name": "theirs"})
    subnets = [account.get(SUBNET, subnet) for subnet in found["vpcConfig"]["subnetIds"]]
    assert [one and one.outputs["availabilityZone"] for one in subnets] == ["eu-west-1a", "eu-west-1b"]
    assert {one and one.outputs["vpcId"] for one in subnets} == {found["vpcConfig"]["vpcId"]}
    assert found["endpoint"] == existing.NOBODY
    assert said == [
        "cluster theirs in eu-west-1 is played: its network, its subnets in two zones and its nodes are made up"
    ]


def test_a_cluster_that_is_played_answers_where_its_player_does() -> None:
    account = Account("123456789012", KINDS)
    existing.play(
        account, config({"source": "eks_existing", "name": "x", "region": "eu-west-1"}), "https://198.18.0.2", "Q0E="
    )
    found = functions.call(account, "aws:eks/getCluster:getCluster", "eu-west-1", {"name": "x"})
    assert (found["endpoint"], found["certificateAuthorities"]) == ("https://198.18.0.2", [{"data": "Q0E="}])


def test_what_is_played_is_nobodys_and_is_kept_when_it_is_played_again() -> None:
    account, _ = played(network())
    before = dict(account.things)
    assert {thing.urn for thing in before.values()} == {""}
    existing.play(account, config(network()))
    assert account.things == before


@pytest.mark.parametrize(
    "cluster",
    [
        None,
        "eks",
        {"source": "eks", "region": "us-east-1", "network": {"vpc_cidr": "10.0.0.0/16"}},
        {"source": "eks", "region": "us-east-1", "network": {"vpc_id": 5}},
        {"source": "eks", "region": 5, "network": {"vpc_id": VPC_ID}},
        {"source": "eks_existing", "region": "us-east-1", "name": ["x"]},
        {"source": "kubeconfig", "kubeconfig": "x"},
    ],
)
def test_nothing_is_played_for_other_stacks_and_for_settings_that_will_be_refused(cluster: object) -> None:
    account, said = played(cluster)
    assert (account.things, said) == ({}, [])


def test_subnets_that_are_no_list_leave_the_refusal_to_the_program() -> None:
    account, _ = played(network(private_subnet_ids="subnet-1", public_subnet_ids=None))
    assert [thing.type for thing in account.things.values()] == [VPC]
    assert account.of(CLUSTER) == []
