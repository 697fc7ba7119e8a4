"""What makes GPUs visible to Kubernetes, where nodes have some.

Registers, each unless the settings leave it out:
- Helm release of node feature discovery
- Helm release of NVIDIA's device plugin with GPU feature discovery
- Helm release of DCGM exporter
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

from components.release import ReleaseArgs, register_release, release_identity
from fleet import gpu_stack, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class GpuStackArgs:
    """Which parts, where and after what."""

    settings: Settings
    provider: kubernetes.Provider
    after: Sequence[pulumi.Resource] = ()
    """What brings the nodes."""
    monitoring: Sequence[pulumi.Resource] = ()
    """What brings the namespace of monitoring and knows ServiceMonitors (field report B08)."""


class GpuStack(pulumi.ComponentResource):
    """GPUs, labelled, offered and measured."""

    releases: list[pulumi.Resource]
    ready: list[pulumi.Resource]
    """What pods that ask for a GPU depend on: the node's labels and its offer. Not that it is measured."""
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: GpuStackArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:gpu:GpuStack", name, None, opts)
        self._args = args
        self.releases = []
        self.ready = []
        self.identities = []
        settings = args.settings
        parts = settings.gpu_stack
        if gpu_stack.gpu_skus(settings):
            if parts.node_feature_discovery:
                self._register(
                    gpu_stack.NFD, names.NAMESPACE_SYSTEM, gpu_stack.nfd_values(settings), after=args.after, ready=True
                )
            if parts.device_plugin:
                # GPU feature discovery writes objects of a kind that node feature discovery brings.
                self._register(
                    gpu_stack.DEVICE_PLUGIN,
                    names.NAMESPACE_SYSTEM,
                    gpu_stack.device_plugin_values(settings),
                    after=[*args.after, *self.releases],
                    ready=True,
                )
            if parts.dcgm_exporter:
                self._register(
                    gpu_stack.DCGM_EXPORTER,
                    settings.monitoring.namespace,
                    gpu_stack.dcgm_values(settings),
                    after=[*args.after, *args.monitoring],
                )
        self.register_outputs({})

    def _register(
        self,
        chart: str,
        namespace: str,
        values: Mapping[str, Any],
        *,
        after: Sequence[pulumi.Resource],
        ready: bool = False,
    ) -> None:
        # GPU nodes may not be there, and their pods take as long as the nodes do (field report B39).
        args = ReleaseArgs(self._args.settings.charts, chart, namespace, values, waits=False)
        release = register_release(
            chart,
            args,
            pulumi.ResourceOptions(parent=self, provider=self._args.provider, depends_on=list(after)),
        )
        self.releases.append(release)
        self.identities.append(release_identity(release, args))
        if ready:
            self.ready.append(release)
