"""How a VPC's address range is divided.

The range is cut into quarters. The first three are private, one per zone, for nodes and pods: each pod has an address
of the VPC. The last is cut again, for the public subnets, which hold a NAT gateway each. A stack with two zones leaves
room for the third, so that adding it moves nothing.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from fleet.faults import Fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fleet.schema import ExistingNetwork

T = TypeVar("T")

ZONES_MIN: Final = 2
"""EKS makes no control plane in fewer: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""
ZONES_MAX: Final = 3
ZONES_WITHOUT_EKS: Final = ("use1-az3", "usw1-az2", "cac1-az3")
"""Zones, by their ids, that EKS puts no control plane into: same page. Which name they have differs by account."""
QUARTER_BITS: Final = 2
WIDEST_PREFIX: Final = 16
NARROWEST_PREFIX: Final = 24
"""A VPC is a /16 to a /28, a subnet too: https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html.
The public subnets are four bits narrower than the VPC."""
RESERVED_ADDRESSES: Final = 5
"""AWS keeps these of each subnet: https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"""

ELB_TAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "private": {"kubernetes.io/role/internal-elb": "1"},
    "public": {"kubernetes.io/role/elb": "1"},
}
"""By them load balancers find their subnets: https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html"""


@dataclass(frozen=True, slots=True)
class SubnetPlan:
    """One subnet; `zone` counts from 0."""

    kind: Literal["private", "public"]
    zone: int
    cidr: str

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.zone}"

    @property
    def addresses(self) -> int:
        """Addresses that nodes and pods can have."""
        return ipaddress.ip_network(self.cidr).num_addresses - RESERVED_ADDRESSES


@dataclass(frozen=True, slots=True)
class Layout:
    """The subnets of a VPC, by zone."""

    private: tuple[SubnetPlan, ...]
    public: tuple[SubnetPlan, ...]


def layout(vpc_cidr: str, zones: int) -> Layout:
    """Divides the range over 1 to 3 zones. Raises ValueError on a range that cannot be divided so."""
    network = ipaddress.IPv4Network(vpc_cidr)
    if not WIDEST_PREFIX <= network.prefixlen <= NARROWEST_PREFIX:
        raise ValueError(
            f"{vpc_cidr}: a /{WIDEST_PREFIX} to /{NARROWEST_PREFIX} can be divided into subnets of {zones} zones"
        )
    if not 1 <= zones <= ZONES_MAX:
        raise ValueError(f"{zones} zones: 1 to {ZONES_MAX} have room")
    *private, rest = network.subnets(prefixlen_diff=QUARTER_BITS)
    public = list(rest.subnets(prefixlen_diff=QUARTER_BITS))
    return Layout(
        tuple(SubnetPlan("private", zone, str(private[zone])) for zone in range(zones)),
        tuple(SubnetPlan("public", zone, str(public[zone])) for zone in range(zones)),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A subnet that exists, as AWS tells of it."""

    vpc_id: str
    zone: str


def unfit(network: ExistingNetwork, found: Mapping[str, Found]) -> Iterator[Fault]:
    """What makes an existing network unfit for a cluster; only AWS knows where its subnets are."""
    where = "cluster.network"
    for setting in ("private_subnet_ids", "public_subnet_ids"):
        for index, subnet in enumerate(getattr(network, setting)):
            if found[subnet].vpc_id != network.vpc_id:
                yield Fault(
                    f"{where}.{setting}[{index}]",
                    f"{shown(subnet)}, of {found[subnet].vpc_id}",
                    f"a subnet of {network.vpc_id}",
                    "a cluster is in one network",
                    "name a subnet of that VPC, or correct cluster.network.vpc_id",
                )
    zones = {found[subnet].zone for subnet in network.private_subnet_ids}
    if len(zones) < ZONES_MIN:
        yield Fault(
            f"{where}.private_subnet_ids",
            f"{', '.join(network.private_subnet_ids)}, all in {', '.join(zones)}",
            f"subnets in {ZONES_MIN} zones or more",
            "EKS makes no control plane in a single zone",
            "name a private subnet of another zone too",
        )


def one_per_zone(subnets: Sequence[T], zones: Sequence[str]) -> dict[str, T]:
    """Of subnets with their zones, the first by zone: a file system has one mount target in each."""
    first: dict[str, T] = {}
    for subnet, zone in zip(subnets, zones, strict=True):
        first.setdefault(zone, subnet)
    return first


def in_zone(subnets: Sequence[T], zones: Sequence[str], zone: str) -> list[T]:
    """The subnets of one zone. Raises ValueError where there is none: nodes would have nowhere to start."""
    found = [subnet for subnet, its_zone in zip(subnets, zones, strict=True) if its_zone == zone]
    if not found:
        raise ValueError(f"no subnet is in {zone}, only in {', '.join(sorted(set(zones)))}")
    return found


def first_zones(available: Sequence[str], count: int) -> list[str]:
    """The zones that a region offers an account, the first of them by name. Raises ValueError if there are too few."""
    if len(available) < count:
        raise ValueError(f"the region offers {len(available)} zones ({', '.join(sorted(available))}), not {count}")
    return sorted(available)[:count]
