"""How a VPC is divided, and which subnets are chosen."""

from __future__ import annotations

import ipaddress
import itertools

import pytest

from fleet import aws_network
from fleet.aws_network import Layout, SubnetPlan
from fleet.faults import Fault
from fleet.schema import ExistingNetwork

SUBNETS = ("subnet-1", "subnet-2", "subnet-3")


def test_a_vpc_of_three_zones_is_divided_into_quarters() -> None:
    assert aws_network.layout("10.20.0.0/16", 3) == Layout(
        private=(
            SubnetPlan("private", 0, "10.20.0.0/18"),
            SubnetPlan("private", 1, "10.20.64.0/18"),
            SubnetPlan("private", 2, "10.20.128.0/18"),
        ),
        public=(
            SubnetPlan("public", 0, "10.20.192.0/20"),
            SubnetPlan("public", 1, "10.20.208.0/20"),
            SubnetPlan("public", 2, "10.20.224.0/20"),
        ),
    )


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "172.16.32.0/20", "192.168.7.0/24"])
def test_a_third_zone_moves_nothing_and_no_two_subnets_overlap(cidr: str) -> None:
    two, three = aws_network.layout(cidr, 2), aws_network.layout(cidr, 3)
    assert (three.private[:2], three.public[:2]) == (two.private, two.public)
    networks = [ipaddress.ip_network(plan.cidr) for plan in (*three.private, *three.public)]
    assert all(network.subnet_of(ipaddress.ip_network(cidr)) for network in networks)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(networks, 2))


def test_a_subnet_has_the_addresses_that_aws_leaves() -> None:
    plans = aws_network.layout("192.168.7.0/24", 2)
    assert ([plan.addresses for plan in plans.private], [plan.addresses for plan in plans.public]) == (
        [59, 59],
        [11, 11],
    )


@pytest.mark.parametrize(
    ("cidr", "zones", "told"),
    [
        ("10.0.0.0/15", 3, "10.0.0.0/15: a /16 to /24 can be divided into subnets of 3 zones"),
        ("10.0.0.0/25", 2, "10.0.0.0/25: a /16 to /24 can be divided into subnets of 2 zones"),
        ("10.0.0.0/16", 4, "4 zones: 1 to 3 have room"),
        ("10.0.0.0/16", 0, "0 zones: 1 to 3 have room"),
    ],
)
def test_what_cannot_be_divided_is_refused(cidr: str, zones: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        aws_network.layout(cidr, zones)


def test_the_zones_of_a_region_are_taken_in_the_order_of_their_names() -> None:
    assert aws_network.first_zones(["eu-west-1c", "eu-west-1a", "eu-west-1b"], 2) == ["eu-west-1a", "eu-west-1b"]
    with pytest.raises(ValueError, match=r"offers 2 zones \(us-west-1a, us-west-1c\), not 3"):
        aws_network.first_zones(["us-west-1c", "us-west-1a"], 3)


def test_subnets_are_chosen_by_zone() -> None:
    subnets, zones = ["subnet-1", "subnet-2", "subnet-3"], ["a", "b", "a"]
    assert aws_network.one_per_zone(subnets, zones) == {"a": "subnet-1", "b": "subnet-2"}
    assert aws_network.in_zone(subnets, zones, "a") == ["subnet-1", "subnet-3"]
    with pytest.raises(ValueError, match="no subnet is in c, only in a, b"):
        aws_network.in_zone(subnets, zones, "c")


def found(*zones: str, vpc: str = "vpc-1") -> dict[str, aws_network.Found]:
    return {subnet: aws_network.Found(vpc, zone) for subnet, zone in zip(SUBNETS, zones, strict=False)}


@pytest.mark.parametrize(
    ("subnets", "expected"),
    [
        pytest.param(found("a", "b", "a"), [], id="two zones"),
        pytest.param(
            found("a", "a", "b"),
            [
                Fault(
                    "cluster.network.private_subnet_ids",
                    f"{SUBNETS[0]}, {SUBNETS[1]}, all in a",
                    "subnets in 2 zones or more",
                    "EKS makes no control plane in a single zone",
                    "name a private subnet of another zone too",
                )
            ],
            id="one zone, and a public subnet in another",
        ),
        pytest.param(
            {**found("a", "b"), SUBNETS[2]: aws_network.Found("vpc-2", "a")},
            [
                Fault(
                    "cluster.network.public_subnet_ids[0]",
                    f"'{SUBNETS[2]}', of vpc-2",
                    "a subnet of vpc-1",
                    "a cluster is in one network",
                    "name a subnet of that VPC, or correct cluster.network.vpc_id",
                )
            ],
            id="another network",
        ),
    ],
)
def test_an_existing_network_is_judged_by_what_aws_tells_of_it(
    subnets: dict[str, aws_network.Found], expected: list[Fault]
) -> None:
    network = ExistingNetwork.model_construct(
        vpc_id="vpc-1", private_subnet_ids=SUBNETS[:2], public_subnet_ids=SUBNETS[2:]
    )
    assert list(aws_network.unfit(network, subnets)) == expected
