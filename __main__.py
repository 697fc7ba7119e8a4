"""The fleet as a Pulumi program: read the settings, refuse what cannot work, compose the components, export outputs."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pulumi
from pulumi.runtime import config as runtime_config

from components import access
from components.dashboards import Dashboards, DashboardsArgs
from components.gpu_cluster import GpuCluster, GpuClusterArgs
from components.gpu_stack import GpuStack, GpuStackArgs
from components.model_store import ModelStore, ModelStoreArgs
from components.monitoring import Monitoring, MonitoringArgs
from components.place import Place
from components.serving_namespace import ServingNamespace, ServingNamespaceArgs
from components.triton_fleet import TritonFleet, TritonFleetArgs
from components.triton_rules import TritonRules, TritonRulesArgs
from components.verification import Verification, VerificationArgs
from fleet import cost, known_answers, model_repository, names, outputs, preflight, preflight_observe, settings
from fleet.faults import Refused

if TYPE_CHECKING:
    from fleet.model_repository import ModelFolder
    from fleet.settings import Settings

PROJECT = Path(__file__).resolve().parent
FILL_PROGRAM = PROJECT / "services" / "model_store" / "fill.py"
VERIFICATION_PROGRAM = PROJECT / "services" / "verification" / "program.py"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A configuration that can work, and what it refers to."""

    settings: Settings
    folders: dict[str, ModelFolder]
    cases: dict[str, object]
    kubeconfig: pulumi.Input[str] | None
    """Of a cluster that is reached by one; None where AWS tells how its cluster is reached."""


def admit() -> Admitted:
    """All that the stack needs from outside; ends the program, with every fault, before anything is registered."""
    try:
        return _admit()
    except Refused as refused:
        raise pulumi.RunError(str(refused)) from refused


def _admit() -> Admitted:
    stack = settings.load(settings.from_config(runtime_config.CONFIG.get()), PROJECT)
    verdict = preflight.check(stack, PROJECT)
    refusals = [*settings.of_another_stack(pulumi.get_stack(), stack.environment), *verdict.refusals]
    folders, cases = {}, {}
    for model in stack.models if not refusals else ():
        folders[model.name] = model_repository.read(PROJECT, model.repository)
        known, faults = known_answers.read(folders[model.name])
        refusals += faults
        cases[model.name] = known.model_dump(mode="json")["cases"] if known else []
    override = os.environ.get(access.CLUSTER_VARIABLE)
    asked = None
    if stack.cluster.source == "kubeconfig":
        asked = access.access(PROJECT, stack.cluster.kubeconfig, override)
    elif override:
        refusals.append(access.unused(override))
    kubeconfig = None
    try:
        kubeconfig = None if asked is None else access.read(asked, preview=pulumi.runtime.is_dry_run())
    except Refused as refused:
        refusals += refused.faults
    if refusals:
        raise Refused(refusals)
    encrypted = {
        name for name in settings.HOLD_SECRETS if runtime_config.is_config_secret(f"{names.CONFIG_NAMESPACE}:{name}")
    }
    warnings = (
        *settings.unread(runtime_config.CONFIG.get()),
        *verdict.warnings,
        *preflight_observe.readable(stack, encrypted),
    )
    for warning in warnings:
        pulumi.log.warn(str(warning))
    if asked is None:
        return Admitted(stack, folders, cases, None)
    if kubeconfig is None:
        pulumi.log.warn(f"{asked.path.name} is not there yet: this is the plan of a first update")
    return Admitted(stack, folders, cases, _unknown() if kubeconfig is None else kubeconfig)


def _unknown() -> pulumi.Output[str]:
    """A value that is not known before the update: what a cluster that is yet to come will have."""
    value: asyncio.Future[str] = asyncio.Future()
    known: asyncio.Future[bool] = asyncio.Future()
    secret: asyncio.Future[bool] = asyncio.Future()
    value.set_result("")
    known.set_result(False)
    secret.set_result(True)
    return pulumi.Output(set(), value, known, secret)


def place(stack: Settings, kubeconfig: pulumi.Input[str] | None) -> Place:
    """The cluster that the settings name, found or made, with what it stands on."""
    if kubeconfig is not None:
        return Place(GpuCluster("cluster", GpuClusterArgs(kubeconfig)))
    from components import aws_place  # noqa: PLC0415 - AWS' classes are loaded only by stacks that are in AWS

    return aws_place.of(stack)


def main() -> None:
    """The stack."""
    admitted = admit()
    stack = admitted.settings

    ground = place(stack, admitted.kubeconfig)
    cluster = ground.cluster
    serving = ServingNamespace("serving", ServingNamespaceArgs(stack.serving, cluster.provider))
    monitoring = Monitoring(
        "monitoring",
        MonitoringArgs(stack, cluster.provider, namespaces=[serving.namespace], disks=ground.disks),
    )
    gpus = GpuStack(
        "gpus",
        GpuStackArgs(stack, cluster.provider, after=ground.after, monitoring=[*monitoring.namespace, *monitoring.crds]),
    )
    rules = TritonRules("rules", TritonRulesArgs(stack, cluster.provider, serving.namespace, monitoring.crds))
    store = ModelStore(
        names.STORE_NAME,
        ModelStoreArgs(
            settings=stack,
            folders=admitted.folders,
            program=FILL_PROGRAM.read_text(),
            provider=cluster.provider,
            namespace=serving.namespace,
            handle=ground.handle,
            mountable=ground.mountable,
        ),
    )
    fleet = TritonFleet(
        "fleet",
        TritonFleetArgs(
            settings=stack,
            folders=admitted.folders,
            filled=store.filled,
            provider=cluster.provider,
            kubeconfig=cluster.kubeconfig,
            namespace=serving.namespace,
            after=[*ground.after, *gpus.ready],
            crds=monitoring.crds,
        ),
    )
    dashboards = Dashboards(
        "dashboards",
        DashboardsArgs(stack, cluster.provider, namespaces=[*monitoring.namespace, serving.namespace]),
    )
    proof = Verification(
        "verification",
        VerificationArgs(
            settings=stack,
            program=VERIFICATION_PROGRAM.read_text(),
            cases=admitted.cases,
            identities=[
                *serving.identities,
                *monitoring.identities,
                *gpus.identities,
                *rules.identities,
                *store.identities,
                *fleet.identities,
                *dashboards.identities,
            ],
            kubeconfig=cluster.kubeconfig,
            provider=cluster.provider,
            namespace=serving.namespace,
            after=[serving, monitoring, gpus, rules, store, fleet, dashboards],
        ),
    )

    addresses = {model: service.spec.cluster_ip for model, service in fleet.services.items()}
    pulumi.export("endpoint", pulumi.Output.all(**addresses).apply(lambda known: outputs.endpoint(stack, known)))
    pulumi.export("verification", proof.report)
    pulumi.export("skus", outputs.skus(stack))
    pulumi.export("grafana", outputs.grafana(stack))
    pulumi.export("cost", cost.output(stack))


main()
