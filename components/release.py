"""How a Helm release is registered: one way for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi_kubernetes.helm.v3 import Release

from fleet import charts, pods

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    release: str | None = None
    """Its name where that is a setting; else the resource's own."""
    timeout_s: int = RELEASE_TIMEOUT_S
    waits: bool = True
    """Whether its pods are waited for. Not where they run on nodes that may not be there (field report B39)."""


def register_release(name: str, args: ReleaseArgs, opts: pulumi.ResourceOptions) -> Release:
    """Registers a release.

    One that failed leaves nothing behind, so that the next update can install it (field report B40). Helm's `atomic`
    waits for pods whatever else it is told: a release that does not wait has `cleanup_on_fail` alone. A release that
    gets another name or namespace goes before its successor comes: objects of the cluster would have two owners.
    """
    located = charts.locate(args.charts, args.chart)
    return Release(
        name,
        name=args.release or name,
        namespace=args.namespace,
        chart=located.chart,
        version=located.version,
        repository_opts={"repo": located.repository} if located.repository else None,
        values=args.values,
        timeout=args.timeout_s,
        atomic=args.waits,
        cleanup_on_fail=True,
        skip_await=not args.waits,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=True)),
    )


def release_identity(release: Release, args: ReleaseArgs) -> pulumi.Output[str]:
    """What tells that a release changed: all that it is made of, and Helm's own count of its changes."""
    located = charts.locate(args.charts, args.chart)
    said = pods.digest([located.chart, located.version, located.repository, args.values])
    counted: pulumi.Output[str] = pulumi.Output.concat(
        "Release/", release.id, "/", said, "/", release.status.apply(_revision)
    )
    return counted


def _revision(status: Any) -> str:  # noqa: ANN401 - as the provider says it
    return str(status.revision if status is not None else None)
