"""Prices of AWS' services beside instances."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

from fleet.catalog import data


class Service(StrEnum):
    """What is paid for."""

    EKS_STANDARD = "eks_standard"
    EKS_EXTENDED = "eks_extended"
    NAT_GATEWAY = "nat_gateway"
    PUBLIC_IPV4 = "public_ipv4"
    EFS_STORAGE = "efs_storage"
    EFS_PROVISIONED = "efs_provisioned"


def price(service: Service, region: str) -> Decimal | None:
    """USD there, per what the catalog says; None where no source says it."""
    read = data.load("services.yaml")
    usd = read["prices"][service.value]["usd"]
    return None if usd is None or region != read["region"] else Decimal(usd)
