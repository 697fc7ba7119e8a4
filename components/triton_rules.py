"""What Prometheus reckons and tells of the fleet.

Registers:
- PrometheusRules of the serving namespace: recording rules, alerts
- ServiceMonitor of the node autoscaler, where the stack installs it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi

from components.registration import identity, register_custom
from fleet import alerts, recording, scraping
from fleet.schema import EksCluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class TritonRulesArgs:
    """Which stack's rules, and what brings their kind."""

    settings: Settings
    provider: kubernetes.Provider
    namespace: pulumi.Resource
    crds: Sequence[pulumi.Resource]


class TritonRules(pulumi.ComponentResource):
    """The rules, registered. They wait for no pod: autoscaling needs its series while an update is under way."""

    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: TritonRulesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:monitoring:TritonRules", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[args.namespace, *args.crds])
        manifests = [recording.rules(args.settings), alerts.rules(args.settings)]
        if isinstance(args.settings.cluster, EksCluster):
            manifests.append(scraping.node_autoscaler_monitor(args.settings))
        self.identities = [identity(register_custom(manifest, child), manifest) for manifest in manifests]
        self.register_outputs({})
