"""Monitoring: Prometheus, Alertmanager and Grafana, and the metrics APIs that autoscaling reads.

Registers:
- Namespace, Secrets of Grafana and of Alertmanager's receivers, StorageClass of Prometheus' disk
- Helm releases of kube-prometheus-stack, prometheus-adapter and metrics-server, each unless the cluster has it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.core.v1 import Namespace, Secret
from pulumi_kubernetes.storage.v1 import StorageClass

from components.registration import identity, register
from components.release import ReleaseArgs, register_release, release_identity
from fleet import autoscaling, monitoring, names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pulumi_kubernetes as kubernetes
    from pulumi_kubernetes.helm.v3 import Release

    from fleet.pods import Manifest
    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class MonitoringArgs:
    """What is installed, through which provider, and after what."""

    settings: Settings
    provider: kubernetes.Provider
    namespaces: Sequence[pulumi.Resource]
    """The stack's other namespaces. An API whose server is gone keeps a namespace from going (field report B38), so
    the servers of the metrics APIs come after all namespaces, and go before them."""
    disks: Sequence[pulumi.Resource] = ()
    """What makes disks, where the stack brings it."""


class Monitoring(pulumi.ComponentResource):
    """Monitoring, installed. Nothing of it waits for the fleet, nor the fleet's pods for it."""

    namespace: list[pulumi.Resource]
    """The namespace, where the stack makes it: whatever is in it depends on it."""
    crds: list[pulumi.Resource]
    """What brings the definitions of monitoring's custom resources: each of those depends on it (field report B08)."""
    ready: list[pulumi.Resource]
    """All releases."""
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:monitoring:Monitoring", name, None, opts)
        self._args = args
        self.namespace, self.crds, self.ready, self.identities = [], [], [], []
        settings = args.settings.monitoring
        if settings.kube_prometheus_stack:
            self._register_namespace()
            self.crds = [self._register_stack()]
        if autoscaling.adapter_wanted(args.settings):
            values = monitoring.adapter_values(args.settings)
            self._register_api(monitoring.ADAPTER, settings.namespace, values)
        if settings.metrics_server:
            values = monitoring.metrics_server_values(args.settings)
            self._register_api(monitoring.METRICS_SERVER, names.NAMESPACE_SYSTEM, values)
        self.register_outputs({})

    def _child(self, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.provider, depends_on=list(depends_on))

    def _register_namespace(self) -> None:
        manifest = monitoring.namespace(self._args.settings)
        namespace = register(Namespace, manifest, self._child(*self._args.disks))
        self.namespace = [namespace]
        self.identities.append(identity(namespace, manifest))

    def _register_stack(self) -> Release:
        settings = self._args.settings
        before = [*self.namespace, *self._secrets(), *self._storage_class()]
        return self._release(
            monitoring.STACK,
            ReleaseArgs(
                charts=settings.charts,
                chart=monitoring.STACK,
                namespace=settings.monitoring.namespace,
                values=monitoring.stack_values(settings),
                release=settings.monitoring.release,
            ),
            before,
        )

    def _secrets(self) -> list[pulumi.Resource]:
        """What the settings keep secret stands in Secrets, which the releases name (field report B43)."""
        settings = self._args.settings
        manifests = (monitoring.grafana_secret(settings), monitoring.receivers_secret(settings))
        return [
            register(Secret, _sealed(manifest), self._child(*self.namespace))
            for manifest in manifests
            if manifest is not None
        ]

    def _storage_class(self) -> list[pulumi.Resource]:
        manifest = monitoring.storage_class(self._args.settings)
        return [] if manifest is None else [register(StorageClass, manifest, self._child(*self._args.disks))]

    def _register_api(self, name: str, namespace: str, values: dict[str, Any]) -> None:
        args = ReleaseArgs(charts=self._args.settings.charts, chart=name, namespace=namespace, values=values)
        self._release(name, args, [*self.namespace, *self._args.namespaces, *self.crds])

    def _release(self, name: str, args: ReleaseArgs, before: list[pulumi.Resource]) -> Release:
        release = register_release(name, args, self._child(*before))
        self.ready.append(release)
        self.identities.append(release_identity(release, args))
        return release


def _sealed(manifest: Manifest) -> Manifest:
    return {**manifest, "stringData": pulumi.Output.secret(manifest["stringData"])}
