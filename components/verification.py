"""The proof that the deployment works: the last resource of the stack.

Registers:
- ConfigMap of the program that checks, and of the known answers
- VerificationRun, which runs it whenever an object that it verifies changed, and fails the update if a check failed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi import dynamic
from pulumi_kubernetes.core.v1 import ConfigMap

from components.provider import Provider
from components.registration import all_identities, register
from fleet import pods, verification

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pulumi_kubernetes as kubernetes

    from fleet.settings import Settings


class VerificationFailed(Exception):  # noqa: N818 - a verdict, not a malfunction
    """The deployment does not do what it must; the text is the report and where to look first."""


class Runner(Provider):
    """Runs verification. Only what is verified counts: a new kubeconfig or another deadline proves nothing anew."""

    renewed_by = "digest"

    def identity(self, props: dict[str, Any]) -> str:  # noqa: ARG002 - a stack has one
        return "verification"

    def outputs(self, props: dict[str, Any]) -> dict[str, Any]:
        from services.verification import hint, runner  # noqa: PLC0415

        order = verification.Order(verification.Plan.model_validate_json(props["plan"]), props["config_map"])
        results = runner.run(order, props["kubeconfig"], _say, settling=True)
        if verification.failed(results):
            raise VerificationFailed(
                f"verification failed\n{verification.table(results)}\n"
                f"look first at: {hint.runnable(verification.first_look(order.plan, results))}"
            )
        return {"digest": props["digest"], "report": runner.report(results)}


def _say(line: str) -> None:
    """The engine shows what its providers print."""
    print(line, flush=True)  # noqa: T201


class VerificationRun(dynamic.Resource, module="triton-fleet", name="Verification"):
    """One proof of the deployment; it stands until an object that it verified changes."""

    report: pulumi.Output[list[dict[str, Any]]]

    def __init__(
        self,
        name: str,
        order: verification.Order,
        digest: pulumi.Input[str],
        kubeconfig: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "plan": order.plan.dump(),
            "config_map": order.config_map,
            "digest": digest,
            "kubeconfig": kubeconfig,
            "report": None,
        }
        super().__init__(Runner(), name, inputs, opts)


@dataclass(frozen=True, slots=True)
class VerificationArgs:
    """What is verified, and how the cluster is reached."""

    settings: Settings
    program: str
    """Text of the program that runs in the cluster."""
    cases: Mapping[str, object]
    """Known answers, by model."""
    identities: Sequence[pulumi.Output[str]]
    """Of every object that is verified."""
    kubeconfig: pulumi.Input[str]
    provider: kubernetes.Provider
    namespace: pulumi.Resource
    after: Sequence[pulumi.Resource]
    """All that must be there before anything can be proved."""


class Verification(pulumi.ComponentResource):
    """The deployment, proved."""

    report: pulumi.Output[list[dict[str, Any]]]

    def __init__(self, name: str, args: VerificationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:verification:Verification", name, None, opts)
        manifest = verification.config_map(args.settings, args.program, args.cases)
        config_map = register(
            ConfigMap,
            manifest,
            pulumi.ResourceOptions(parent=self, provider=args.provider, depends_on=[args.namespace]),
            name=verification.CONFIG_MAP,
        )
        asked = pulumi.Output.from_input(pods.digest([args.program, args.cases]))
        run = VerificationRun(
            name,
            verification.order(manifest),
            digest=all_identities([*args.identities, asked]),
            kubeconfig=args.kubeconfig,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*args.after, config_map]),
        )
        self.report = run.report
        self.register_outputs({"report": self.report})
