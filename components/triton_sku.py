"""A model on one SKU.

Registers:
- Deployment of Triton, bound to the SKU's nodes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment

from components.registration import MESSAGE_MARGIN_S, identity, register, seconds
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
    after: Sequence[pulumi.Resource]
    """What must be there, and Ready, before this SKU is touched."""


class TritonSku(pulumi.ComponentResource):
    """Triton for one model on one SKU; done when every replica is Ready."""

    deployment: Deployment
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: TritonSkuArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:serving:TritonSku", name, None, opts)
        manifest = workload.deployment(args.settings, args.model, args.placement, args.digest)
        times = workload.timing(args.model, args.placement, args.settings.images)
        ready = seconds(times.await_s + MESSAGE_MARGIN_S)
        gone = seconds(times.grace_s + MESSAGE_MARGIN_S)
        self.deployment = register(
            Deployment,
            manifest,
            pulumi.ResourceOptions(
                parent=self,
                provider=args.provider,
                depends_on=list(args.after),
                custom_timeouts=pulumi.CustomTimeouts(create=ready, update=ready, delete=gone),
            ),
        )
        self.identities = [identity(self.deployment, manifest)]
        self.register_outputs({})
