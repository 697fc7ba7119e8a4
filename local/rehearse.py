"""The rehearsal of a stack: the real program and engine, the AWS side on stand-ins, Kubernetes on the embedded cluster.

Phases, each a row of reports/rehearsal.json: up, verify, a second preview, a destroy that protection refuses, the
protection taken off, the destroy, and what that left. A phase that fails ends the rehearsal; the rest is then not run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import client
from kubernetes.config import new_client_from_config

from fleet import aws_names, settings
from fleet.faults import Refused
from local import commands, diagnosis, mirror, packages, stack, turns
from local.cluster import config, hardware, lifecycle, prepare
from local.cluster.handle import Handle
from local.cluster.topology import NODES, Node
from local.errors import LocalError
from local.state import PROJECT, State
from rehearsal import file_system, overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from fleet.settings import Settings

REPORT = "rehearsal.json"
STOP_TIMEOUT_S = 10
DRIVER_DEADLINE_S = 60.0
CSI_DRIVER = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": file_system.DRIVER},
    "spec": {"attachRequired": False},
}
"""What the driver's add-on registers with the cluster."""

Progress = commands.Progress


@dataclass(frozen=True)
class Phase:
    """One row of the report. `left` names what is there still though the phase was to remove it."""

    phase: str
    ok: bool
    seconds: float
    created: int = 0
    updated: int = 0
    replaced: int = 0
    deleted: int = 0
    left: tuple[str, ...] = ()

    def counted(self, changes: Mapping[str, int]) -> Phase:
        return replace(
            self,
            created=changes.get("create", 0),
            updated=changes.get("update", 0),
            replaced=changes.get("replace", 0),
            deleted=changes.get("delete", 0),
        )


def rehearse(name: str, state: State, progress: Progress) -> None:
    """Rehearse a stack from nothing, write the report, and leave nothing running."""
    stack.tracked_settings(name)
    home = State(state.root / "rehearsal")
    packages.require_machine()
    commands.require_disk(home)
    with turns.alone(home):
        # A rehearsal that was killed left its cluster, with objects that this one's stack would find taken.
        lifecycle.stop(home, progress)
        report = commands.REPORTS / REPORT
        report.unlink(missing_ok=True)
        (home.root / "account" / f"{name}.json").unlink(missing_ok=True)
        for past in (home.pulumi, home.store):
            shutil.rmtree(past, ignore_errors=True)
        run = Rehearsal(name, home, progress)
        try:
            run.all()
        finally:
            commands.REPORTS.mkdir(exist_ok=True)
            report.write_text(json.dumps([asdict(phase) for phase in run.phases], indent=2) + "\n")
            lifecycle.stop(home, progress)
            shutil.rmtree(home.store, ignore_errors=True)
        progress(f"\nrehearsal of stack {name}:\n{table(run.phases)}")


class Rehearsal:
    """One rehearsal, from a cluster that is started to an account that is empty again."""

    def __init__(self, name: str, state: State, progress: Progress) -> None:
        self.name = name
        self.state = state
        self.progress = progress
        self.phases: list[Phase] = []
        self.account = state.root / "account"

    def all(self) -> None:
        substituted, said = overlay.substitute(
            stack.without_secure(_config(self.name)), overlay.Substitutes.of(_config(commands.LOCAL_STACK))
        )
        for line in said:
            self.progress(f"rehearsal: {line}")
        try:
            loaded = settings.load(settings.from_config(substituted), PROJECT)
        except Refused as refused:
            raise LocalError(f"stack {self.name} as it would be rehearsed: {refused}", fix="correct it") from refused
        plan = nodes_of(loaded)
        kubeconfig = commands.start_cluster(self.state, self.progress)
        mirror.complete(self.progress)
        _dress_nodes(kubeconfig, plan)
        for node, _ in plan:
            hardware.lay_bus(hardware.pci(self.state.cluster, node), node.gpus)
        # A fleet on its own kubeconfig gets this cluster's; one that makes a cluster gets it from the stand-in.
        named = kubeconfig if loaded.cluster.source == "kubeconfig" else None
        opened = stack.open_stack(
            self.name,
            self.state,
            self.progress,
            kubeconfig=named,
            rehearsed=stack.Rehearsed(self.account, kubeconfig, lambda _: substituted),
        )
        opened = replace(opened, kubeconfig=kubeconfig)
        with _file_systems(self.state, loaded, self.progress):
            self._phases(opened)

    def _phases(self, opened: stack.Stack) -> None:
        self._phase("up", lambda phase: self._updated(phase, opened, "up"), opened)
        self._phase("verify", lambda phase: replace(phase, ok=commands.run_verification(opened)), opened)
        self._phase("second preview", lambda phase: _unchanged(phase, opened), opened)
        before = _resources(opened)
        protected = [resource["urn"] for resource in before if resource.get("protect")]
        if protected:
            self._phase("destroy is refused", lambda phase: _refused(phase, opened, protected), opened)
            self._phase("unprotect", lambda phase: _unprotected(phase, opened), opened)
        self._phase("destroy", lambda phase: self._updated(phase, opened, "destroy"), opened)
        self._phase("what is left", lambda phase: self._left(phase, opened, before), opened)

    def _phase(self, name: str, act: Callable[[Phase], Phase], opened: stack.Stack) -> None:
        self.progress(f"rehearsal: {name}")
        began = time.monotonic()
        done = act(Phase(name, ok=False, seconds=0))
        self.phases.append(replace(done, seconds=round(time.monotonic() - began, 1)))
        if not done.ok:
            raise LocalError(
                f"the rehearsal of stack {self.name} failed at: {name}",
                details="\n".join(
                    [
                        table(self.phases),
                        *(f"left: {one}" for one in done.left),
                        diagnosis.of(self.state.kubeconfig, commands.namespace_of(opened)),
                    ]
                ),
                fix="what went wrong stands above",
            )

    def _updated(self, phase: Phase, opened: stack.Stack, command: str) -> Phase:
        done = opened.with_settings(command, "--yes", "--skip-preview", *(["--suppress-outputs"] * (command == "up")))
        return replace(phase.counted(_changes(opened)), ok=done.returncode == 0)

    def _left(self, phase: Phase, opened: stack.Stack, before: Sequence[Mapping[str, Any]]) -> Phase:
        """Only what the stack says it retains is in the account, and no resource in the state."""
        retained = {str(resource.get("id")) for resource in before if resource.get("retainOnDelete")}
        there = account_left(self.account / f"{self.name}.json")
        known = {key.rpartition("|")[2] for key in there}
        extra = [*(key for key in there if key.rpartition("|")[2] not in retained), *_state_left(opened)]
        lost = [one for one in _retained_in_aws(before) if one not in known]
        return replace(phase, ok=not extra and not lost, left=tuple(there if not extra else [*there, *extra]))


def table(phases: Sequence[Phase]) -> str:
    """The phases as a person reads them."""
    width = max((len(phase.phase) for phase in phases), default=0)
    lines = []
    for phase in phases:
        counts = ", ".join(
            f"{count} {what}"
            for what, count in (
                ("created", phase.created),
                ("updated", phase.updated),
                ("replaced", phase.replaced),
                ("deleted", phase.deleted),
            )
            if count
        )
        lines.append(
            f"{'ok' if phase.ok else 'FAIL':<5} {phase.phase:<{width}} {phase.seconds:7.1f} s  {counts}".rstrip()
        )
        lines += [f"{'':<{width + 17}}{one}" for one in phase.left]
    return "\n".join(lines)


def nodes_of(loaded: Settings) -> list[tuple[Node, tuple[dict[str, str], ...]]]:
    """The embedded cluster's GPU nodes as the stack's node groups would make them, with their taints."""
    free = [node for node in NODES if node.gpus]
    wanted = [sku for sku in loaded.skus if sku.gpu_product]
    if len(wanted) > len(free):
        raise LocalError(
            f"stack {loaded.environment} has {len(wanted)} GPU SKUs; the embedded cluster has {len(free)} GPU nodes",
            fix="rehearse a stack with fewer SKUs",
        )
    # A node that has the product already keeps it.
    free.sort(key=lambda node: node.gpu_product not in {sku.gpu_product for sku in wanted})
    plan = []
    for sku in sorted(wanted, key=lambda sku: sku.gpu_product not in {node.gpu_product for node in free}):
        node = next((node for node in free if node.gpu_product == sku.gpu_product), free[0])
        free.remove(node)
        taints = tuple({"key": t.key, "value": t.value, "effect": t.effect} for t in sku.taints)
        labels = {
            **node.labels,
            **sku.labels,
            aws_names.NODE_SKU_LABEL: sku.name,
            aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_GPU,
        }
        plan.append((Node(node.name, sku.gpu_product, sku.gpus_per_node, labels), taints))
    return plan


def account_left(file: Path) -> list[str]:
    """What is in a stand-in account, `<type>|<id>` each, but what AWS itself made."""
    if not file.exists():
        return []
    resources = json.loads(file.read_text())["resources"]
    return sorted(key for key, one in resources.items() if one.get("urn"))


def _retained_in_aws(before: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(one["id"]) for one in before if one.get("retainOnDelete") and one["type"].startswith("aws:")]


def _config(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(stack.tracked_settings(name).read_text())["config"]
    return document


def _resources(opened: stack.Stack) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = stack.exported(opened)["deployment"].get("resources") or []
    return resources


def _state_left(opened: stack.Stack) -> list[str]:
    return [resource["urn"] for resource in _resources(opened)]


def _changes(opened: stack.Stack) -> dict[str, int]:
    """What the last update did, by kind."""
    done = opened.pulumi("stack", "history", "--json", "--page-size=1", capture=True)
    history = json.loads(done.stdout) if done.returncode == 0 else []
    changes: dict[str, int] = (history[0].get("resourceChanges") or {}) if history else {}
    return changes


def _unchanged(phase: Phase, opened: stack.Stack) -> Phase:
    done = opened.with_settings("preview", "--json", capture=True)
    if done.returncode != 0:
        print(commands.said(done))
        return phase
    document = json.loads(done.stdout)
    changes = document["changeSummary"]
    changed = [f"{step['op']} {step['urn']}" for step in document["steps"] if step["op"] != "same"]
    return replace(phase.counted(changes), ok=set(changes) <= {"same"}, left=tuple(changed))


def _refused(phase: Phase, opened: stack.Stack, protected: Sequence[str]) -> Phase:
    """The destroy must fail, name something that is protected, and have removed nothing."""
    count = len(_resources(opened))
    # Without its preview the engine deletes all that is not protected before it fails.
    done = opened.with_settings("destroy", "--yes", capture=True)
    text = done.stdout + done.stderr
    named = [urn for urn in protected if urn in text or urn.rpartition("::")[2] in text]
    lost = count - len(_resources(opened))
    ok = done.returncode != 0 and bool(named) and lost == 0
    if not ok:
        print(text[-4000:])
    return replace(phase, ok=ok, deleted=lost, left=tuple(protected))


def _unprotected(phase: Phase, opened: stack.Stack) -> Phase:
    done = opened.pulumi("state", "unprotect", "--all", "--yes", capture=True)
    still = [resource["urn"] for resource in _resources(opened) if resource.get("protect")]
    return replace(phase, ok=done.returncode == 0 and not still, left=tuple(still))


def _dress_nodes(kubeconfig: Path, plan: Sequence[tuple[Node, tuple[dict[str, str], ...]]]) -> None:
    """Labels, taints and GPUs that node groups would give their nodes; the system nodes' label for the others."""
    with new_client_from_config(config_file=str(kubeconfig)) as api_client:
        api = client.CoreV1Api(api_client)
        system = {aws_names.NODE_ROLE_LABEL: aws_names.NODE_ROLE_SYSTEM}
        for node in NODES:
            if not node.gpus:
                api.patch_node(node.name, {"metadata": {"labels": system}})
        for node, taints in plan:
            api.patch_node(node.name, {"metadata": {"labels": node.all_labels}, "spec": {"taints": list(taints)}})
    prepare.pretend_gpus(kubeconfig, [node for node, _ in plan])


def _log(state: State, node: Node) -> Path:
    return state.logs / f"{node.name}-efs.log"


def _await_drivers(state: State) -> None:
    deadline = time.monotonic() + DRIVER_DEADLINE_S
    while True:
        done = lifecycle.kubectl(state, "get", "csinodes", "--output=json")
        listed = json.loads(done.stdout)["items"] if done.returncode == 0 else []
        has = {
            item["metadata"]["name"]
            for item in listed
            if any(driver["name"] == file_system.DRIVER for driver in item["spec"].get("drivers") or ())
        }
        lacking = [node for node in NODES if node.name not in has]
        if not lacking:
            return
        if time.monotonic() > deadline:
            raise LocalError(
                f"{file_system.DRIVER} was not registered on {', '.join(node.name for node in lacking)} "
                f"within {DRIVER_DEADLINE_S:.0f} s",
                details="\n".join(_log(state, node).read_text()[-1000:] for node in lacking),
                fix="run it again",
            )
        time.sleep(0.5)


@contextmanager
def _file_systems(state: State, loaded: Settings, progress: Progress) -> Iterator[None]:
    """The EFS driver on every node, for as long as the rehearsal runs; none where the store is no EFS."""
    running = Handle.read(state)
    if loaded.store.kind == "host_path" or running is None:
        yield
        return
    progress(
        f"rehearsal: {file_system.DRIVER} is played on every node: folders of this machine, no network, TLS or IAM"
    )
    applied = lifecycle.kubectl(state, "apply", "--filename=-", text=json.dumps(CSI_DRIVER))
    if applied.returncode != 0:
        raise LocalError(f"CSIDriver could not be registered: {applied.stderr.strip()}", fix="run it again")
    started = []
    try:
        for node in NODES:
            argv = [
                sys.executable, "-m", "rehearsal.file_system", f"--node={node.name}",
                f"--folder={config.NODE_STORE}/efs", f"--uid={loaded.serving.run_as_user}",
                f"--gid={loaded.serving.run_as_group}",
            ]  # fmt: skip
            with _log(state, node).open("wb") as log:
                started.append(
                    subprocess.Popen(
                        running.inside(argv, node.name),
                        # A process that enters a mount namespace starts at its root.
                        env={**os.environ, "PYTHONPATH": str(PROJECT)},
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=log,
                    )
                )
        _await_drivers(state)
        yield
    finally:
        for process in started:
            if process.stdin is not None:
                process.stdin.close()
        for process in started:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
