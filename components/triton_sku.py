"""A model on one SKU.

Registers:
- Deployment of Triton, bound to the SKU's nodes
- RolloutRun, done when every replica is new and Ready
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment

from components.registration import SKIP_AWAIT, identity, register
from components.rollout import RolloutArgs, RolloutRun
from fleet import workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pulumi_kubernetes as kubernetes

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
        manifest = workload.deployment(args.settings, args.model, args.placement, args.digest)
        # The provider would wait for the whole deadline and not say why a pod fails; the rollout does both better.
        deployment = register(
            Deployment,
            manifest,
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=list(args.after)),
            annotations=SKIP_AWAIT,
        )
        self.identities = [identity(deployment, manifest)]
        self.ready = RolloutRun(
            name,
            RolloutArgs(
                namespace=args.settings.serving.namespace,
                deployment=manifest["metadata"]["name"],
                deadline_s=workload.timing(args.model, args.placement, args.settings.images).rollout_s,
                digest=self.identities[0],
                kubeconfig=args.kubeconfig,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[deployment]),
        )
        self.register_outputs({})
