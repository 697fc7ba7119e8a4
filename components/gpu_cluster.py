"""The cluster that the fleet runs on.

Registers:
- the stack's own Kubernetes provider, which every Kubernetes resource uses
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_kubernetes as kubernetes

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class GpuClusterArgs:
    """An existing cluster, adopted by its kubeconfig."""

    kubeconfig: pulumi.Input[str]


class GpuCluster(pulumi.ComponentResource):
    """The cluster, and the one way to it."""

    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(self, name: str, args: GpuClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:cluster:GpuCluster", name, None, opts)
        self._provide(name, args.kubeconfig)
        self.register_outputs({})

    def _provide(self, name: str, kubeconfig: pulumi.Input[str], ready: Sequence[pulumi.Resource] = ()) -> None:
        """The provider stands on all that its objects need to live and to be deleted; so then do they."""
        self.kubeconfig = pulumi.Output.secret(kubeconfig)
        self.provider = kubernetes.Provider(
            name,
            kubeconfig=self.kubeconfig,
            enable_server_side_apply=True,
            opts=pulumi.ResourceOptions(parent=self, additional_secret_outputs=["kubeconfig"], depends_on=list(ready)),
        )
