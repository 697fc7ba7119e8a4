"""The number of a Deployment's replicas changes hands.

Registers:
- Handover, done when no autoscaler is left that would overrule who decides from now on
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi import dynamic

from components.provider import Provider

if TYPE_CHECKING:
    from fleet.autoscaling import Owner


class HandoverFailed(Exception):  # noqa: N818 - a verdict, not a malfunction
    """An autoscaler could not be removed; the text says which and why."""


class Taker(Provider):
    """Removes the autoscaler that would overrule."""

    renewed_by = "owner"

    def identity(self, props: dict[str, Any]) -> str:
        return str(props["deployment"])

    def outputs(self, props: dict[str, Any]) -> dict[str, Any]:
        from services.verification import handover  # noqa: PLC0415

        failure = handover.run(props["kubeconfig"], props["namespace"], props["deployment"], props["owner"])
        if failure:
            raise HandoverFailed(failure)
        return {"owner": props["owner"]}


@dataclass(frozen=True, slots=True)
class HandoverArgs:
    """Who sets the replicas of which Deployment from now on."""

    namespace: str
    deployment: str
    owner: Owner
    kubeconfig: pulumi.Input[str]


class Handover(dynamic.Resource, module="triton-fleet", name="Handover"):
    """An autoscaler goes before the Deployment is told its size.

    The engine deletes what a program no longer registers at the end of an update. Until then an autoscaler that is to
    go would take back the number of replicas that the update has just set.
    """

    def __init__(self, name: str, args: HandoverArgs, opts: pulumi.ResourceOptions) -> None:
        inputs = {
            "namespace": args.namespace,
            "deployment": args.deployment,
            "owner": args.owner,
            "kubeconfig": args.kubeconfig,
        }
        super().__init__(Taker(), name, inputs, opts)
