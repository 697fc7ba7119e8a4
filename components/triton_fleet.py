"""The fleet: all models, each behind one Service.

Registers:
- NetworkPolicies of the serving namespace
- PodMonitor of all Triton pods
- per model: shared Service, headless Service, PodDisruptionBudget, one TritonSku per placement
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.core.v1 import Service
from pulumi_kubernetes.networking.v1 import NetworkPolicy
from pulumi_kubernetes.policy.v1 import PodDisruptionBudget

from components.registration import SKIP_AWAIT, identity, register, register_custom
from components.triton_sku import TritonSku, TritonSkuArgs
from fleet import names, network, scraping, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.model_repository import ModelFolder
    from fleet.settings import ModelSettings, Settings


@dataclass(frozen=True, slots=True)
class TritonFleetArgs:
    """Which models are served, from what, and after what."""

    settings: Settings
    folders: Mapping[str, ModelFolder]
    """By model."""
    filled: Mapping[str, pulumi.Resource]
    """By model: what has put its files into the store."""
    provider: kubernetes.Provider
    kubeconfig: pulumi.Input[str]
    namespace: pulumi.Resource
    crds: Sequence[pulumi.Resource] | None = None
    """What brings the kind of the PodMonitor, where the stack does. None: nothing scrapes."""
    after: Sequence[pulumi.Resource] = ()
    """What else pods need to become Ready: what brings their nodes."""


class TritonFleet(pulumi.ComponentResource):
    """All models, served."""

    services: dict[str, Service]
    """By model: the one that its clients call."""
    skus: list[TritonSku]
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: TritonFleetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:serving:TritonFleet", name, None, opts)
        self._args = args
        self.skus = []
        self.identities = []
        policies = self._register_policies()
        self._register_monitor()
        self.services = {model.name: self._register_services(model) for model in args.settings.models}
        for model in args.settings.models:
            self._register_budget(model)
            self._register_skus(model, policies)
        self.register_outputs({})

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=self._args.provider, depends_on=[self._args.namespace])

    def _register_policies(self) -> list[NetworkPolicy]:
        manifests = network.policies(self._args.settings)
        policies = [register(NetworkPolicy, manifest, self._child()) for manifest in manifests]
        self.identities += map(identity, policies, manifests)
        return policies

    def _register_monitor(self) -> None:
        if (crds := self._args.crds) is None:
            return
        manifest = scraping.pod_monitor(self._args.settings)
        opts = pulumi.ResourceOptions(
            parent=self, provider=self._args.provider, depends_on=[self._args.namespace, *crds]
        )
        monitor = register_custom(manifest, opts)
        self.identities.append(identity(monitor, manifest))

    def _register_services(self, model: ModelSettings) -> Service:
        """Neither is waited for: a Service without endpoints is no fault of its own, and verification asks for more."""
        settings = self._args.settings
        shared_manifest = workload.service(settings, model)
        headless_manifest = workload.headless_service(settings, model)
        shared = register(Service, shared_manifest, self._child(), annotations=SKIP_AWAIT)
        headless = register(Service, headless_manifest, self._child(), annotations=SKIP_AWAIT)
        self.identities += [identity(shared, shared_manifest), identity(headless, headless_manifest)]
        return shared

    def _register_budget(self, model: ModelSettings) -> None:
        manifest = workload.disruption_budget(self._args.settings, model)
        budget = register(PodDisruptionBudget, manifest, self._child())
        self.identities.append(identity(budget, manifest))

    def _register_skus(self, model: ModelSettings, policies: list[NetworkPolicy]) -> None:
        """One SKU after the other, each when the one before is Ready: a bad update ends at the first."""
        args = self._args
        after: list[pulumi.Resource] = [args.namespace, args.filled[model.name], *policies, *args.after]
        for placement in model.placements:
            sku = TritonSku(
                names.deployment_name(model.name, placement.sku),
                TritonSkuArgs(
                    settings=self._args.settings,
                    model=model,
                    placement=placement,
                    digest=self._args.folders[model.name].digest12,
                    provider=self._args.provider,
                    kubeconfig=self._args.kubeconfig,
                    after=after,
                ),
                pulumi.ResourceOptions(parent=self),
            )
            after = [*after, sku.ready]
            self.skus.append(sku)
            self.identities += sku.identities
