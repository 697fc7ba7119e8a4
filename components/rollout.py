"""The wait for a Deployment's update, with the reason when it fails.

Registers:
- RolloutRun, which is done when every replica is new and available
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import dynamic

from components.provider import Provider


class RolloutFailed(Exception):  # noqa: N818 - a verdict, not a malfunction
    """The update cannot succeed; the text says which pod failed and why."""


class Waiter(Provider):
    """Waits for the update. Only another Deployment has another one."""

    renewed_by = "digest"

    def identity(self, props: dict[str, Any]) -> str:
        return str(props["deployment"])

    def outputs(self, props: dict[str, Any]) -> dict[str, Any]:
        from services.verification import hint, rollout  # noqa: PLC0415

        awaited = rollout.Awaited(props["namespace"], props["deployment"], props["fewest"], props["deadline_s"])
        # The engine shows what its providers print.
        verdict = rollout.run(props["kubeconfig"], awaited, lambda line: print(line, flush=True))  # noqa: T201
        if verdict.state == "failed":
            look = hint.runnable(f"kubectl -n {props['namespace']} {verdict.look}")
            raise RolloutFailed(f"{verdict.text}\nlook first at: {look}")
        return {"digest": props["digest"]}


@dataclass(frozen=True, slots=True)
class RolloutArgs:
    """Which Deployment is waited for, and how long."""

    namespace: str
    deployment: str
    fewest: int
    """Replicas that there are at least, whoever decides how many."""
    deadline_s: int
    digest: pulumi.Input[str]
    """Of the Deployment and of what scales it: another one is waited for again."""
    kubeconfig: pulumi.Input[str]


class RolloutRun(dynamic.Resource, module="triton-fleet", name="Rollout"):
    """One update that came to its end; it stands until the Deployment changes."""

    def __init__(self, name: str, args: RolloutArgs, opts: pulumi.ResourceOptions) -> None:
        inputs = {
            "namespace": args.namespace,
            "deployment": args.deployment,
            "fewest": args.fewest,
            "deadline_s": args.deadline_s,
            "digest": args.digest,
            "kubeconfig": args.kubeconfig,
        }
        super().__init__(Waiter(), name, inputs, opts)
