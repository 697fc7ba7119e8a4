"""A model on one SKU.

Registers:
- Deployment of Triton, bound to the SKU's nodes
- HorizontalPodAutoscaler or KEDA's ScaledObject, unless the settings say how many replicas there are
- Handover, where an autoscaler that was there before must go first
- RolloutRun, done when every replica is new and Ready
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.autoscaling.v2 import HorizontalPodAutoscaler

from components.handover import Handover, HandoverArgs
from components.registration import FORCE, SKIP_AWAIT, all_identities, identity, register, register_custom
from components.rollout import RolloutArgs, RolloutRun
from fleet import autoscaling, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.pods import Manifest
    from fleet.settings import ModelSettings, Placement, Settings


@dataclass(frozen=True, slots=True)
class TritonSkuArgs:
    """Which model runs where, from which content of the store, and after what."""

    settings: Settings
    model: ModelSettings
    placement: Placement
    digest: str
    """Of the model's files; names their folder in the store."""
    provider: kubernetes.Provider
    kubeconfig: pulumi.Input[str]
    after: Sequence[pulumi.Resource]
    """What must be there, and Ready, before this SKU is touched."""


class TritonSku(pulumi.ComponentResource):
    """Triton for one model on one SKU."""

    ready: RolloutRun
    """What the next SKU, and verification, come after."""
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: TritonSkuArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:serving:TritonSku", name, None, opts)
        self._name = name
        self._args = args
        self._owner = autoscaling.owner(args.settings, args.placement)
        manifest = workload.deployment(args.settings, args.model, args.placement, args.digest)
        deployment = self._register_deployment(manifest)
        self.identities = [identity(deployment, manifest)]
        scaler = self._register_scaler(deployment)
        self.ready = RolloutRun(
            name,
            RolloutArgs(
                namespace=args.settings.serving.namespace,
                deployment=manifest["metadata"]["name"],
                fewest=args.placement.replicas.min,
                deadline_s=workload.timing(args.model, args.placement, args.settings.images).rollout_s,
                digest=all_identities(self.identities),
                kubeconfig=args.kubeconfig,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[deployment, *scaler]),
        )
        self.register_outputs({})

    def _register_deployment(self, manifest: Manifest) -> Deployment:
        """The provider would wait for the whole deadline and not say why a pod fails; the rollout does both better.

        An autoscaler's number of replicas is nobody else's. Ignoring it keeps a Deployment at the size that it has when
        an autoscaler takes over: a field that is no longer applied would fall back to its default, one replica. The
        other way, the number is the autoscaler's in the cluster, and must be taken from it.
        """
        args = self._args
        settings_decide = self._owner == "settings"
        before = self._register_handover() if self._owner != "autoscaler" else []
        return register(
            Deployment,
            manifest,
            pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                depends_on=[*args.after, *before],
                ignore_changes=None if settings_decide else ["spec.replicas"],
            ),
            annotations={**SKIP_AWAIT, **FORCE} if settings_decide else SKIP_AWAIT,
        )

    def _register_handover(self) -> list[Handover]:
        args = self._args
        handover = HandoverArgs(args.settings.serving.namespace, self._name, self._owner, args.kubeconfig)
        return [Handover(self._name, handover, pulumi.ResourceOptions(parent=self, depends_on=list(args.after)))]

    def _register_scaler(self, deployment: Deployment) -> list[pulumi.CustomResource]:
        args = self._args
        options = pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[deployment])
        given = (args.settings, args.model, args.placement)
        if self._owner == "settings":
            return []
        if self._owner == "keda":
            return [register_custom(autoscaling.scaled_object(*given), options)]
        manifest = autoscaling.hpa(*given)
        scaler = register(HorizontalPodAutoscaler, manifest, options)
        self.identities.append(identity(scaler, manifest))
        return [scaler]
