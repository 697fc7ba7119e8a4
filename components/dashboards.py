"""Dashboards, where Grafana's sidecar finds them.

Registers:
- ConfigMaps, one for each dashboard
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap

from components.registration import identity, register
from fleet import dashboards

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class DashboardsArgs:
    """Where they are put, through which provider, and after what."""

    settings: Settings
    provider: kubernetes.Provider
    namespaces: Sequence[pulumi.Resource]
    """Those of monitoring and of serving, where the stack makes them."""


class Dashboards(pulumi.ComponentResource):
    """All dashboards of the fleet."""

    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: DashboardsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:monitoring:Dashboards", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(args.namespaces))
        manifests = dashboards.config_maps(args.settings)
        registered = [register(ConfigMap, manifest, child) for manifest in manifests]
        self.identities = [*map(identity, registered, manifests)]
        self.register_outputs({})
