"""The benchmarks: what an install costs in time and memory, against the bounds that were promised.

Each runs the real commands in a state folder of its own, so that a cluster that is up is not disturbed. Times
are this machine's, at this hour: the bounds are wide, and no test depends on them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from fleet import monitoring, names
from local import bench_load, bench_rules, bench_steps, commands, stack, toolchain, tune
from local.cluster import lifecycle
from local.cluster.handle import Handle
from local.errors import LocalError
from local.processes import cgroups, family, pss_kib
from local.state import CACHE_VARIABLE, PROJECT, State

SKUS = (1, 5, 20, 50)
"""Numbers of SKUs that a preview is measured with."""
SAMPLE_S = 0.25
SETTLE_S = 60
"""An idle cluster is measured this long after its last request."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One figure. `bound` is the most that it may be, None where nothing was promised, `holds` whether it is."""

    name: str
    what: str
    value: float
    unit: str
    bound: float | None
    holds: bool
    machine: str


def run(state: State, only: str | None, progress: Progress) -> None:
    """Run the benchmarks (all but up_fresh, which is run by name only) and write reports/bench.json."""
    if only is not None and only not in BENCHMARKS:
        raise LocalError(f"there is no benchmark {only!r}", fix=f"use one of: {', '.join(BENCHMARKS)}")
    chosen = [only] if only else [name for name in BENCHMARKS if name != "up_fresh"]
    bench = Bench(State(state.root / "bench"), progress)
    results: list[Result] = []
    try:
        for name in chosen:
            what, unit, bound, measure = BENCHMARKS[name]
            progress(f"bench: {name}: {what}")
            value = round(measure(bench), 2)
            results.append(Result(name, what, value, unit, bound, bound is None or value <= bound, machine()))
            progress(f"bench: {name}: {value} {unit}, " + ("no bound" if bound is None else f"bound {bound} {unit}"))
    finally:
        # What was measured in hours must not be lost with a cluster that does not stop.
        try:
            commands.REPORTS.mkdir(exist_ok=True)
            rows = [asdict(result) for result in results]
            (commands.REPORTS / "bench.json").write_text(json.dumps(rows, indent=2) + "\n")
        finally:
            bench.down()
    broken = [result.name for result in results if not result.holds]
    if broken:
        raise LocalError(f"bounds not held: {', '.join(broken)}", fix="see reports/bench.json; is the machine busy?")


def machine() -> str:
    """The machine in a line: cores, memory, kernel."""
    memory_kib = int(Path("/proc/meminfo").read_text().split(maxsplit=2)[1])
    return f"{os.cpu_count()} cores, {memory_kib / 2**20:.0f} GiB, {platform.system()} {platform.release()}"


class Bench:
    """The cluster that the benchmarks share, and how to run a command on it."""

    def __init__(self, state: State, progress: Progress) -> None:
        self.state = state
        self.progress = progress
        self._previews: dict[int, tuple[float, float]] = {}

    def timed(self, argv: list[str], environment: dict[str, str] | None = None) -> float:
        began = time.monotonic()
        done = subprocess.run(
            argv,
            cwd=PROJECT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LocalError(
                f"{' '.join(argv)} failed with status {done.returncode}",
                details=(done.stdout + done.stderr)[-3000:],
                fix="run it by itself",
            )
        return time.monotonic() - began

    def local(self, *arguments: str, environment: dict[str, str] | None = None) -> float:
        return self.timed([sys.executable, "-m", "local", f"--state={self.state.root}", *arguments], environment)

    def down(self) -> None:
        self.local("down")
        shutil.rmtree(self.state.root, ignore_errors=True)

    def previews(self) -> dict[int, tuple[float, float]]:
        """Seconds and peak memory (PSS, GiB) of a preview of prod, by how many SKUs it has; measured once."""
        if not self._previews:
            for skus in SKUS:
                self._previews[skus] = self._preview_of(skus)
                seconds, memory_gib = self._previews[skus]
                self.progress(f"bench: preview with {skus} SKUs: {seconds:.1f} s, {memory_gib:.2f} GiB")
        return self._previews

    def _preview_of(self, skus: int) -> tuple[float, float]:
        home = self.state.root / f"skus-{skus}"
        (home / "project").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / "Pulumi.yaml", home / "project" / "Pulumi.yaml")
        config = yaml.safe_load(stack.tracked_settings("prod").read_text())["config"]
        (home / "project" / "Pulumi.prod.yaml").write_text(yaml.safe_dump({"config": with_skus(config, skus)}))
        rehearsed = stack.Rehearsed(home / "account", home / "no-cluster", plans_only=True)
        opened = stack.open_stack("prod", State(home), self.progress, rehearsed=rehearsed, project=home / "project")
        peak = _Peak()
        began = time.monotonic()
        with peak:
            done = opened.with_settings("preview", "--json", capture=True)
        seconds = time.monotonic() - began
        if done.returncode != 0:
            raise LocalError(
                f"the preview with {skus} SKUs failed", details=commands.said(done), fix="make preview STACK=prod"
            )
        return seconds, peak.gib

    def up(self) -> State:
        """The cluster, up."""
        if not self.running():
            self.local("up")
        return self.state

    def running(self) -> bool:
        found = Handle.read(self.state)
        return found is not None and found.alive


class _Peak:
    """The most memory that this process's descendants used together while it was watched."""

    def __init__(self) -> None:
        self.gib = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(SAMPLE_S):
            now = sum(pss_kib(pid) for pid in family(os.getpid())[1:]) / 2**20
            self.gib = max(self.gib, now)


def _up_from_nothing(bench: Bench) -> float:
    bench.down()
    # What is built once must not be counted.
    toolchain.ensure([*toolchain.CLUSTER_TOOLS, *toolchain.PULUMI_TOOLS], bench.progress)
    bench.local("images")
    return bench.local("up")


def _up_again(bench: Bench) -> float:
    bench.up()
    return bench.local("up")


def _idle(bench: Bench) -> Handle:
    """The cluster, up and long enough without a request."""
    bench.up()
    time.sleep(SETTLE_S)
    running = Handle.read(bench.state)
    if running is None:
        raise LocalError("the cluster is gone", fix="run the benchmark again")
    return running


def _idle_memory_gib(bench: Bench) -> float:
    return sum(pss_kib(pid) for pid in family(_idle(bench).pid)) / 2**20


def _monitoring_memory_gib(bench: Bench) -> float:
    running = _idle(bench)
    said = lifecycle.kubectl(bench.state, "get", "pods", "--all-namespaces", "--output=json")
    if said.returncode != 0:
        raise LocalError(f"the cluster does not answer: {said.stderr.strip()}", fix="run the benchmark again")
    pods = {
        pod["metadata"]["uid"]
        for pod in json.loads(said.stdout)["items"]
        if pod["metadata"]["namespace"] == names.NAMESPACE_MONITORING
        or pod["metadata"]["name"].startswith(f"{monitoring.METRICS_SERVER}-")
    }
    return sum(pss_kib(pid) for pid in family(running.pid) if any(pod in cgroups(pid) for pod in pods)) / 2**20


def _check(bench: Bench) -> float:
    return bench.timed(["make", "check"])


def _up_fresh(bench: Bench) -> float:
    """With an empty cache: nothing built, nothing fetched."""
    bench.down()
    with tempfile.TemporaryDirectory(prefix="bench-cache-", dir=PROJECT / ".fleet") as cache:
        try:
            return bench.local("up", environment={CACHE_VARIABLE: cache}) / 60
        finally:
            bench.local("down", environment={CACHE_VARIABLE: cache})


def _preview_prod(bench: Bench) -> float:
    """The second one: what is built and compiled once must not be counted."""
    bench.local("preview", "--stack=prod")
    return bench.local("preview", "--stack=prod")


def _growth_of_time(bench: Bench) -> float:
    return growth({skus: seconds for skus, (seconds, _) in bench.previews().items()})


def _growth_of_memory(bench: Bench) -> float:
    return growth({skus: memory_gib for skus, (_, memory_gib) in bench.previews().items()})


def growth(figures: Mapping[int, float]) -> float:
    """How much more a further SKU costs among many than among few: 1 where cost grows linearly.

    `figures` has a cost by number of SKUs, four of them.
    """
    first, second, third, last = sorted(figures)
    few = (figures[second] + figures[third] - 2 * figures[first]) / (second + third - 2 * first)
    many = (figures[last] - figures[third]) / (last - third)
    return many / few


def with_skus(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """A stack's configuration with `count` SKUs like its first, each with its first model on it."""
    key = names.CONFIG_NAMESPACE
    sku, model = config[f"{key}:skus"][0], config[f"{key}:models"][0]
    skus = [f"sku-{number}" for number in range(count)]
    return {
        **config,
        f"{key}:skus": [
            {**sku, "name": name, "labels": {**sku.get("labels", {}), f"{names.DOMAIN}/bench": name}} for name in skus
        ],
        f"{key}:models": [{**model, "placements": [{**model["placements"][0], "sku": name} for name in skus]}],
    }


# name: what, unit, bound, how. The bounds are those of issues 3 to 6.
BENCHMARKS: dict[str, tuple[str, str, float | None, Callable[[Bench], float]]] = {
    "up": ("make up from nothing, tools and images built", "s", 180, _up_from_nothing),
    "up_again": ("make up where nothing changed", "s", 60, _up_again),
    "idle_memory": ("memory (PSS) of the idle cluster with two SKUs", "GiB", 3, _idle_memory_gib),
    "monitoring_memory": (
        "memory (PSS) of the pods of the namespace monitoring and of metrics-server, idle",
        "GiB",
        1,
        _monitoring_memory_gib,
    ),
    "scale_out": (
        "from a step in load to a larger Deployment, by what the guide's defaults need: medians of 20 steps",
        "times",
        0.7,
        lambda bench: bench_steps.measure(bench.up(), bench.progress),
    ),
    "tuned": (
        "throughput of the untuned model by that of the model as shipped, each within the same p95, on one core",
        "times",
        round(1 / 1.3, 2),
        lambda bench: tune.compare(bench.state, bench.progress),
    ),
    "check": ("make check, installed", "s", 60, _check),
    "preview_prod": ("make preview STACK=prod, the second time", "s", 20, _preview_prod),
    "preview_growth_time": (
        "what a further SKU costs in a preview of 20 to 50 SKUs, by what it costs in one of 1 to 20: time",
        "times",
        1.5,
        _growth_of_time,
    ),
    "preview_growth_memory": (
        "what a further SKU costs in a preview of 20 to 50 SKUs, by what it costs in one of 1 to 20: memory (PSS)",
        "times",
        1.5,
        _growth_of_memory,
    ),
    "rules": (
        "the slowest group of rules over 200 replicas with four models each: an evaluation by its interval",
        "%",
        10,
        lambda bench: bench_rules.measure(bench.progress),
    ),
    "load_100_users": (
        f"requests that failed of {bench_load.USERS} users, closed, for {bench_load.USERS_S} s",
        "requests",
        0,
        lambda bench: bench_load.users(bench.up(), bench.progress),
    ),
    "balance": (
        "p99 with one of four replicas at half speed by that with all at full speed; who is asked is printed",
        "times",
        None,
        lambda bench: bench_load.balance(bench.up(), bench.progress),
    ),
    "up_fresh": ("make up with an empty cache: everything is fetched and built", "min", 30, _up_fresh),
}
