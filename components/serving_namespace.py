"""The namespace that the models are served in.

Registers:
- Namespace, which admits restricted pods only
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
from pulumi_kubernetes.core.v1 import Namespace

from components.registration import identity, register
from fleet import network

if TYPE_CHECKING:
    import pulumi_kubernetes as kubernetes

    from fleet.settings import Serving


@dataclass(frozen=True, slots=True)
class ServingNamespaceArgs:
    """What the namespace is, and through which provider it is made."""

    serving: Serving
    provider: kubernetes.Provider


class ServingNamespace(pulumi.ComponentResource):
    """The serving namespace; all that is in it depends on it."""

    namespace: Namespace
    identities: list[pulumi.Output[str]]

    def __init__(self, name: str, args: ServingNamespaceArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:serving:ServingNamespace", name, None, opts)
        manifest = network.namespace(args.serving)
        child = pulumi.ResourceOptions(parent=self, provider=args.provider)
        self.namespace = register(Namespace, manifest, child)
        self.identities = [identity(self.namespace, manifest)]
        self.register_outputs({})
