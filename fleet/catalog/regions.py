"""Regions of AWS."""

from __future__ import annotations

from fleet.catalog import data


def regions() -> tuple[str, ...]:
    """The codes of all regions that the AWS provider knows."""
    return tuple(data.load("regions.yaml")["regions"])
