"""Kubernetes versions that EKS supports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.catalog import data

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Support:
    """Until when a version is supported: at the usual price, and at all. Dates as YYYY-MM-DD, which sort."""

    standard_until: str
    extended_until: str


def versions() -> Mapping[str, Support]:
    """Support by minor version."""
    read = data.load("kubernetes.yaml")["versions"]
    return {name: Support(dates["standard_until"], dates["extended_until"]) for name, dates in read.items()}
