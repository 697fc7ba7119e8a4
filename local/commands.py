"""What the make targets do, one function each."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fleet import verification
from local import diagnosis, mirror, packages, preflight_table, rendering, stack, toolchain, turns
from local.cluster import images as cluster_images
from local.cluster import lifecycle, prepare, stock, topology
from local.cluster.handle import Handle
from local.errors import LocalError
from local.images import build, recipes
from local.state import PROJECT, State, cache_folder, default_state

if TYPE_CHECKING:
    import subprocess

LOCAL_STACK = "local"
DISK_NEEDED_GIB = 8
"""Three nodes' images and the cluster's own files, measured at 5 GiB, and some room."""
REPORTS = PROJECT / "reports"
RENDERED = PROJECT / "rendered"
VERIFICATION_FAILED = 1
"""Exit status of `services.verification.runner` when it ran and a check did not hold."""
GOLDEN = PROJECT / "tests" / "golden"
REPORT = REPORTS / "verification.json"

Progress = Callable[[str], None]


def up(state: State, cluster: Path | None, progress: Progress, *, refresh: bool = False) -> None:
    """Bring everything up, or find it up: cluster, images, stack; ends with the verification report.

    With `refresh` what was changed by hand is found and put right; else the objects are taken to be as they were made.
    """
    if cluster is None:
        packages.require_machine()
        require_disk(state)
    else:
        require_cluster(cluster)
        _require_another(cluster, state)
    with turns.alone(state):
        kubeconfig = cluster or start_cluster(state, progress)
        mirror.complete(progress)
        if cluster is None:
            _forget_stack_of_another_cluster(state, progress)
        opened = stack.open_stack(LOCAL_STACK, state, progress, cluster=cluster, kubeconfig=kubeconfig)
        _settle(opened, progress)
        # The last report must not stand as this update's, should it fail.
        REPORT.unlink(missing_ok=True)
        progress("pulumi: up, after a look at every object" if refresh else "pulumi: up")
        looked = ["--refresh"] if refresh else []
        done = opened.with_settings("up", "--yes", "--skip-preview", "--suppress-outputs", *looked)
        if done.returncode != 0:
            raise LocalError(
                "pulumi up failed; what it said stands above",
                details=diagnosis.of(kubeconfig, namespace_of(opened)),
                fix="correct what the messages name, then run make up again: it goes on where it stopped",
            )
        _print_result(opened)


def _settle(opened: stack.Stack, progress: Progress) -> None:
    """Creations that an interrupted update had begun are begun again, not warned of for ever.

    Kubernetes objects have names of their own: one that is there already is taken over.
    """
    document = stack.exported(opened, secrets=False)
    pending = document["deployment"].get("pending_operations") or []
    begun = [one["resource"]["urn"].rpartition("::")[2] for one in pending if one["type"] == "creating"]
    if not begun:
        return
    progress(f"pulumi: an interrupted update had begun to make {', '.join(begun)}; it is made now")
    # A state that is put back has no pending operations.
    stack.imported(opened, document)


def down(state: State, cluster: Path | None, progress: Progress) -> None:
    """Destroy the stack, then stop the embedded cluster and remove all it made."""
    if cluster is not None:
        require_cluster(cluster)
        _require_another(cluster, state)
    with turns.alone(state):
        running = Handle.read(state)
        reachable = cluster or (state.kubeconfig if running and running.alive and state.kubeconfig.exists() else None)
        home = stack.backend_home(state, cluster)
        failure: LocalError | None = None
        known = (home / "backend").exists()
        if reachable is not None and known:
            opened = stack.open_stack(LOCAL_STACK, state, progress, cluster=cluster, kubeconfig=reachable)
            progress("pulumi: destroy")
            if opened.with_settings("destroy", "--yes", "--skip-preview").returncode != 0:
                failure = LocalError(
                    "pulumi destroy failed; what it said stands above",
                    details=diagnosis.of(reachable, namespace_of(opened)),
                    fix="run make down again"
                    if cluster
                    else "the embedded cluster was stopped all the same, and the stack with it",
                )
        if cluster is None:
            lifecycle.stop(state, progress)
        if cluster is None or failure is None:
            shutil.rmtree(home, ignore_errors=True)
        if failure is not None:
            raise failure
        if cluster is not None and not known:
            progress(
                f"down: this checkout has no stack on {', '.join(stack.servers(cluster))}; nothing was changed there"
            )
            return
        progress("down: nothing is left running" if cluster is None else "down: nothing of the stack is left there")


def preview(name: str, state: State, progress: Progress) -> None:
    """`pulumi preview` without any cluster or account: what an `up` from nothing would do."""
    with _offline(name, state, progress) as opened:
        if opened.with_settings("preview").returncode != 0:
            raise LocalError("pulumi preview failed; what it said stands above", fix="correct what the messages name")


def render(name: str, state: State, progress: Progress, folder: Path = RENDERED) -> Path:
    """Write the stack's whole plan to rendered/<stack>, in place of what is there."""
    plan = planned(name, state, progress)
    texts = {**rendering.files(plan), "preflight.json": json.dumps(preflight_table.rows(name), indent=2) + "\n"}
    _replace_folder(folder / name, texts)
    progress(f"render: {len(plan.resources)} resources, {len(texts)} files in {folder / name}")
    return folder / name


def golden(state: State, progress: Progress) -> None:
    """Write the plans that tests compare with, of every stack: what a reviewer reads in the diff."""
    for name in stack.known_stacks():
        _replace_folder(GOLDEN / name, rendering.reviewed(planned(name, state, progress)))
        progress(f"golden: {GOLDEN / name}")


def planned(name: str, state: State, progress: Progress) -> rendering.Plan:
    """The plan of an `up` from nothing, with no cluster and no account."""
    with _offline(name, state, progress) as opened:
        done, calls = stack.planned(opened, opened.home / "calls.json")
        if done.returncode != 0:
            raise LocalError(
                f"the plan of stack {name} could not be made",
                details=said(done),
                fix=f"correct what the messages name; make preview STACK={name} shows them too",
            )
        return rendering.plan(json.loads(done.stdout), calls, str(PROJECT))


def preflight(name: str, progress: Progress) -> None:
    """What is wrong with a stack's settings and what may be, as a table; refuses what the program would refuse."""
    rows = preflight_table.rows(name)
    progress(preflight_table.table(name, rows))
    refused = sum(row["verdict"] == preflight_table.REFUSED for row in rows)
    if refused:
        faults = "1 fault" if refused == 1 else f"{refused} faults"
        raise LocalError(f"stack {name} is refused: {faults}, listed above", fix="correct what the table names")


def verify(name: str, state: State, cluster: Path | None, progress: Progress) -> None:
    """Run the verification again, on the plan that the stack's last update verified."""
    if cluster is not None:
        require_cluster(cluster)
        _require_another(cluster, state)
    with turns.alone(state):
        _require_deployed(name, state, cluster)
        opened = stack.open_stack(name, state, progress, cluster=cluster, kubeconfig=cluster or state.kubeconfig)
        if not run_verification(opened):
            raise LocalError(
                f"verification of stack {name} failed; the table stands above", fix="look at what it names first"
            )


def run_verification(opened: stack.Stack) -> bool:
    """Run it, print its table, write its report; whether every check held."""
    document = stack.exported(opened)
    REPORTS.mkdir(exist_ok=True)
    REPORT.unlink(missing_ok=True)
    done = turns.run(
        [sys.executable, "-m", "services.verification.runner", "--from-state", "/dev/stdin", "--json", str(REPORT)],
        folder=PROJECT,
        # In a rehearsal the programs that it asks AWS with are stand-ins too.
        environment={
            **opened.environment,
            **({} if opened.kubeconfig is None else {stack.CLUSTER_VARIABLE: str(opened.kubeconfig)}),
        },
        text=json.dumps(document),
    )
    if done.returncode not in (0, VERIFICATION_FAILED):
        raise LocalError(
            f"the verification of stack {opened.name} did not run; why stands above",
            fix="run make up again: it goes on where an update stopped",
        )
    return done.returncode == 0


def _require_deployed(name: str, state: State, cluster: Path | None) -> None:
    """Refuse to verify what was not deployed from here, or is not running."""
    home = stack.backend_home(state, cluster)
    if not (home / "backend" / ".pulumi" / "stacks" / stack.PROJECT_NAME / f"{name}.json").exists():
        own = name == LOCAL_STACK
        raise LocalError(
            f"stack {name} was not deployed from here: {home} holds no state of it",
            fix="run make up first"
            if own
            else f"give the verification the state of your own backend: `pulumi stack export --stack {name} "
            f"--show-secrets | {sys.executable} -m services.verification.runner --from-state /dev/stdin`",
        )
    running = Handle.read(state)
    if cluster is None and not (running and running.alive):
        raise LocalError("the embedded cluster is not running", fix="start it with make up, which also verifies")


def images(export: Path | None, progress: Progress) -> None:
    """Build the images; with `export`, lay their archives into a folder for other nodes to import."""
    packages.require_machine()
    packages.ensure(progress)
    binaries = _with_go(toolchain.ensure(recipes.programs(), progress), progress)
    if export is None:
        for image in build.ensure(cache_folder(), None, progress, binaries):
            progress(f"image {image.ref}: {image.archive}")
    else:
        build.export(export, cache_folder(), progress, binaries)


def prepare_cluster(
    cluster: Path, progress: Progress, *, simulate_gpus: bool, assume_yes: bool, nodes: Sequence[str] = ()
) -> None:
    """Label, taint and patch the nodes of another cluster, after asking."""
    require_cluster(cluster)
    if not simulate_gpus:
        raise LocalError(
            "make prepare has nothing to do: it only simulates GPUs",
            fix="add SIMULATE_GPUS=1, or label and taint the GPU nodes yourself as docs/architecture.md says",
        )
    plan = prepare.plan_nodes(cluster, topology.NODES, nodes)
    progress(f"prepare: on the cluster {prepare.server_of(cluster)}")
    for node_name, simulated in plan:
        progress(f"  {node_name}: {simulated.gpus} x {simulated.gpu_product} (simulated), its labels and its taint")
    if not assume_yes:
        try:
            answer = input("prepare: change these nodes? [y/N] ")
        except EOFError:
            answer = ""
        if answer.strip().lower() not in ("y", "yes"):
            raise LocalError("prepare: nothing was changed", fix="answer y, or add YES=1 where nobody can answer")
    prepare.label_nodes(cluster, plan)
    progress("prepare: done")


def start_cluster(state: State, progress: Progress) -> Path:
    """The embedded cluster with its images, GPUs and DNS; returns its kubeconfig file."""
    packages.ensure(progress)
    tools = toolchain.ensure([*toolchain.CLUSTER_TOOLS, *recipes.programs(), *toolchain.PULUMI_TOOLS], progress)
    built = cluster_images.by_name(build.ensure(cache_folder(), None, progress, _with_go(tools, progress)))
    binaries = {name: str(tools[name]) for name in ("kube", "kube-router")}
    for name in ("etcd", "containerd"):
        binaries[name] = str(packages.program(name))
    running = lifecycle.start(
        state,
        binaries,
        progress,
        equip=lambda: stock.equip(state, cache_folder(), binaries["containerd"], built, progress),
    )
    cluster_images.load(running, built, progress)
    prepare.prepare(running, built["coredns"], progress)
    return state.kubeconfig


def _with_go(tools: Mapping[str, Path], progress: Progress) -> dict[str, Path]:
    return {**tools, "go": Path(toolchain.go_program(progress))}


def require_cluster(kubeconfig: Path) -> None:
    """Refuse a kubeconfig file that is missing, unreadable, or whose cluster does not answer."""
    if not kubeconfig.is_file():
        raise LocalError(
            f"CLUSTER={kubeconfig}: there is no such file", fix="name the kubeconfig file of the cluster to use"
        )
    try:
        servers = stack.servers(kubeconfig)
    except (OSError, *stack.NOT_YAML, KeyError, TypeError):
        servers = []
    if not servers:
        raise LocalError(
            f"CLUSTER={kubeconfig}: this is no kubeconfig file: it names no cluster with a server",
            fix="name a file that `kubectl --kubeconfig=<file> get nodes` accepts",
        )
    answer = prepare.api_error(kubeconfig)
    if answer is not None:
        raise LocalError(
            f"CLUSTER={kubeconfig}: the cluster {', '.join(servers)} does not answer: {answer}",
            fix=f"check it with `kubectl --kubeconfig={kubeconfig} get nodes`",
        )


def _require_another(cluster: Path, state: State) -> None:
    """The embedded cluster has its stack already: a second one would take over its objects, and remove them."""
    for own in {state.kubeconfig, default_state().kubeconfig}:
        if own.is_file() and set(stack.servers(own)) & set(stack.servers(cluster)):
            raise LocalError(
                f"CLUSTER={cluster} is this checkout's own embedded cluster ({own})",
                fix="leave CLUSTER out: make up, make verify and make down are for the embedded cluster",
            )


def namespace_of(opened: stack.Stack) -> str:
    """The serving namespace of a stack, as its settings file says or leaves to the default."""
    settings: Mapping[str, Any] = (yaml.safe_load(opened.settings_file.read_text()) or {}).get("config", {})
    serving = settings.get("triton-fleet:serving") or {}
    return str(serving.get("namespace") or f"triton-{settings.get('triton-fleet:environment', opened.name)}")


def _print_result(opened: stack.Stack) -> None:
    result = stack.outputs(opened)
    rows = [verification.Result.model_validate(row) for row in result["verification"]]
    REPORTS.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(result["verification"], indent=2) + "\n")
    print(
        f"\nverification of stack {opened.name}, of the last update that changed something "
        f"(`make verify` runs it again):\n{verification.table(rows)}\n"
    )
    for model, endpoint in result["endpoint"].items():
        print(f"{model}: {endpoint['http']} and {endpoint['grpc']} (from this machine: {endpoint['address']})")
    print(f"kubeconfig: {opened.kubeconfig}")


def _forget_stack_of_another_cluster(state: State, progress: Progress) -> None:
    """A new embedded cluster holds nothing of what the last one's stack says it has made."""
    home = stack.backend_home(state, None)
    identity = (state.cluster / "pki" / "ca.crt").read_text()
    marker = home / "cluster.crt"
    if home.exists() and (not marker.exists() or marker.read_text() != identity):
        progress("pulumi: the cluster of the last update is gone; starting from an empty stack")
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True)
    marker.write_text(identity)


def require_disk(state: State) -> None:
    state.root.mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(state.root).free / 2**30
    if free_gib < DISK_NEEDED_GIB and not state.cluster.exists():
        raise LocalError(
            f"disk: {free_gib:.1f} GiB free at {state.root}; the embedded cluster needs {DISK_NEEDED_GIB} GiB "
            "for the images of three nodes",
            fix="free some room, or check the project out on a larger disk",
        )


@contextmanager
def _offline(name: str, state: State, progress: Progress) -> Iterator[stack.Stack]:
    """A stack with no cluster, no account and no state: everything in it is yet to be created."""
    home = State(state.root / "preview" / name)
    absent = home.root / "no-cluster"
    with turns.alone(home):
        rehearsed = stack.Rehearsed(home.root / "account", absent, stack.without_cluster, plans_only=True)
        progress(f"stack {name}: the plan of a first update; no cluster is asked, and AWS is played by stand-ins")
        # The account of a preview that died must not be this one's; what else the stand-ins keep there is a cache.
        (rehearsed.account / f"{name}.json").unlink(missing_ok=True)
        yield stack.open_stack(name, home, progress, rehearsed=rehearsed)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a captured preview said went wrong: its messages stand in its JSON."""
    try:
        messages = [
            one["message"].strip() for one in json.loads(done.stdout)["diagnostics"] if one["severity"] == "error"
        ]
    except (ValueError, KeyError, TypeError):
        messages = []
    return "\n".join(messages) or (done.stdout + done.stderr).strip()[-3000:]


def _replace_folder(target: Path, texts: Mapping[str, str]) -> None:
    """A whole folder or the old one: a reader never finds half of each."""
    scratch = target.with_name(f".{target.name}.new")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    for path, text in texts.items():
        file = scratch / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.rmtree(target, ignore_errors=True)
    scratch.rename(target)
