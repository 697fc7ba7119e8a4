"""How a Helm release is registered: one way for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulumi_kubernetes.helm.v3 import Release

from fleet import charts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pulumi

    from fleet.schema import Charts

RELEASE_TIMEOUT_S = 600
"""Longest time for a release's pods to become ready: images are pulled in it."""


@dataclass(frozen=True, slots=True)
class ReleaseArgs:
    """A release: its chart by upstream's name, where it goes, and what it is told."""

    charts: Charts
    chart: str
    namespace: str
    values: Mapping[str, Any]
    """No secret is among them: they stand in the release's object and in previews (field report B43)."""
    timeout_s: int = RELEASE_TIMEOUT_S
    waits: bool = True
    """Whether its pods are waited for. Not where they run on nodes that may not be there (field report B39)."""


def register_release(name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions) -> Release:
    """Registers a release under its own name.

    One that failed leaves nothing behind, so that the next update can install it (field report B40). Helm's `atomic`
    waits for pods whatever else it is told: a release that does not wait has `cleanup_on_fail` alone.
    """
    located = charts.locate(args.charts, args.chart)
    return Release(
        name,
        name=name,
        namespace=args.namespace,
        chart=located.chart,
        version=located.version,
        repository_opts={"repo": located.repository} if located.repository else None,
        values=args.values,
        timeout=args.timeout_s,
        atomic=args.waits,
        cleanup_on_fail=True,
        skip_await=not args.waits,
        opts=opts,
    )
