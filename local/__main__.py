"""The command line behind the Makefile: python -m local <command>."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.load import profiles
from local import bench, commands, load, packages, push, rehearse, simulate, stack, tune, turns
from local.cluster import topology
from local.errors import LocalError
from local.state import CACHE_VARIABLE, State, cache_folder, default_state, named_path, require_folder, switched_on
from services.load.run import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local", description="Run stack `local` on this machine.")
    parser.add_argument("--state", type=Path, help="state folder, instead of .fleet in the checkout")
    command = parser.add_subparsers(dest="command", required=True)

    up = command.add_parser("up", help="start the embedded cluster, deploy the stack, print the verification report")
    down = command.add_parser("down", help="destroy the stack, stop the embedded cluster")
    verify = command.add_parser("verify", help="run the verification again")
    up.add_argument("--refresh", default="", help="1: find and put right what was changed by hand")
    for parsed in (up, down, verify):
        parsed.add_argument(
            "--cluster", type=Path, help="kubeconfig file of a cluster to use instead of the embedded one"
        )
    preview = command.add_parser("preview", help="pulumi preview without a cluster and without an account")
    render = command.add_parser("render", help="write the stack's plan to rendered/<stack>")
    preflight = command.add_parser("preflight", help="what is wrong with a stack's settings, as a table")
    rehearsal = command.add_parser("rehearse", help="the whole program on this machine, AWS played")
    simulation = command.add_parser("simulate", help="what the autoscalers of a stack will do with a load")
    simulation.add_argument("--trace", default="", help="file of the load, or the name of one in local/traces")
    loading = command.add_parser("load", help="a load on the fleet, with a live view and a report")
    loading.add_argument("--model", default="", help="model to ask; without it the only one")
    loading.add_argument("--scenario", default="", help="how a model that writes text is asked")
    loading.add_argument("--cluster", type=Path, help="kubeconfig file of another cluster")
    loading.add_argument("--in-cluster", default="", help="1: make it inside the cluster")
    loading.add_argument("--pods", default="", help="make it inside the cluster, by so many pods")
    loading.add_argument("variables", nargs="*", metavar="NAME=VALUE", help=", ".join(profiles.VARIABLES.values()))
    for parsed in (preview, render, preflight, rehearsal, verify, simulation, loading):
        parsed.add_argument("--stack", required=True)
    tuning = command.add_parser("tune", help="what batching and how many instances serve a model best here")
    tuning.add_argument("--model", default="", help=f"a folder of {tune.MODELS}; without it {tune.MODEL}")
    tuning.add_argument("--cores", default="", help="Triton's; without it all but one, which the load needs")
    tuning.add_argument("--p95-ms", default="", help="longest 95th percentile of the latency")
    command.add_parser("golden", help="write the plans in tests/golden again")
    images = command.add_parser("images", help="build the images")
    images.add_argument("--export", type=Path, help="folder to write the image archives to")
    images.add_argument("--push", metavar="REGISTRY", help="build our programs' images and push them there")
    images.add_argument("--base", metavar="IMAGE", help="with --push: a Python image with its digest to build on")
    prepare = command.add_parser("prepare", help="label, taint and patch the nodes of another cluster")
    prepare.add_argument("--cluster", type=Path, required=True)
    prepare.add_argument("--simulate-gpus", default="", help="1: make the nodes pretend to have GPUs")
    prepare.add_argument("--nodes", default="", help="the nodes to change, separated by commas, instead of a choice")
    prepare.add_argument("--yes", default="", help="1: do not ask")
    measure = command.add_parser("bench", help="the benchmarks, into reports/bench.json")
    measure.add_argument("--only", metavar="NAME", help=f"run one: {', '.join(bench.BENCHMARKS)}")
    return parser


def _progress(line: str) -> None:
    print(line, flush=True)


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _adapt(os.environ)
    try:
        named = _file(arguments.state, "STATE")
        state = State(named) if named else default_state()
        _require(arguments, state)
        COMMANDS[arguments.command](arguments, state)
    except LocalError as error:
        print(f"\nerror: {error}", file=sys.stderr, flush=True)
        return 1
    except LoadError as error:
        failed = LocalError("the load was not made", details=str(error), fix="see what it says")
        print(f"\nerror: {failed}", file=sys.stderr, flush=True)
        return 1
    except PermissionError as error:
        print(f"\nerror: {_not_ours(error)}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        on = "; `make up` goes on where it stopped, `make down` removes what is there"
        print(f"\ninterrupted{on if arguments.command in STEPWISE else ''}", file=sys.stderr)
        return 130
    return 0


COMMANDS: Mapping[str, Callable[[argparse.Namespace, State], object]] = {
    "up": lambda given, state: commands.up(
        state, _file(given.cluster, "CLUSTER"), _progress, refresh=switched_on("REFRESH", given.refresh)
    ),
    "down": lambda given, state: commands.down(state, _file(given.cluster, "CLUSTER"), _progress),
    "verify": lambda given, state: commands.verify(given.stack, state, _file(given.cluster, "CLUSTER"), _progress),
    "preview": lambda given, state: commands.preview(given.stack, state, _progress),
    "render": lambda given, state: commands.render(given.stack, state, _progress),
    "preflight": lambda given, _: commands.preflight(given.stack, _progress),
    "rehearse": lambda given, state: rehearse.rehearse(given.stack, state, _progress),
    "simulate": lambda given, _: simulate.simulate(given.stack, given.trace, _progress),
    "load": lambda given, state: load.load(
        load.Given(
            stack=given.stack,
            variables=dict(text.partition("=")[::2] for text in given.variables),
            model=given.model,
            scenario=given.scenario,
            cluster=_file(given.cluster, "CLUSTER"),
            pods=load.asked_pods(given.in_cluster, given.pods),
        ),
        state,
        _progress,
    ),
    "tune": lambda given, state: tune.tune(
        tune.wish(given.model, given.cores, given.p95_ms, len(os.sched_getaffinity(0))), state, _progress
    ),
    "golden": lambda _, state: commands.golden(state, _progress),
    "images": lambda given, _: (
        push.images(given.push, given.base, _progress)
        if given.push
        else commands.images(_file(given.export, "EXPORT"), _progress)
    ),
    "prepare": lambda given, _: commands.prepare_cluster(
        named_path(given.cluster, f"CLUSTER={given.cluster}"),
        _progress,
        simulate_gpus=switched_on("SIMULATE_GPUS", given.simulate_gpus),
        assume_yes=switched_on("YES", given.yes),
        nodes=[name for name in given.nodes.split(",") if name],
    ),
    "bench": lambda given, state: bench.run(state, given.only, _progress),
}


STEPWISE = ("up", "down")
"""Commands that another one completes."""


def _require(arguments: argparse.Namespace, state: State) -> None:
    """What a command is told is checked before it makes anything: a stack's name becomes part of paths."""
    if "stack" in arguments:
        stack.tracked_settings(arguments.stack)
    require_folder(state.root, f"STATE={arguments.state}" if arguments.state else "the state folder of this checkout")
    require_folder(cache_folder(), f"the cache ({CACHE_VARIABLE} names another)")
    export = _file(getattr(arguments, "export", None), "EXPORT")
    if export is not None:
        require_folder(export, f"EXPORT={arguments.export}")


def _not_ours(error: PermissionError) -> LocalError:
    return LocalError(
        f"user {os.geteuid()} may not do this to {error.filename}: {error.strerror}",
        fix="a checkout belongs to one user: run it as the one who used it first, or check it out anew as this one",
    )


def _adapt(environment: MutableMapping[str, str]) -> None:
    """What every program started from here needs: system programs on PATH, and no proxy on the way to the cluster."""
    environment["PATH"] = packages.SEARCH
    past = environment.get("no_proxy") or environment.get("NO_PROXY")
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = ",".join(filter(None, [past, str(topology.NEVER_ROUTED)]))


def _file(path: Path | None, variable: str) -> Path | None:
    return None if path is None else named_path(path, f"{variable}={path}")


if __name__ == "__main__":
    turns.interruptible()
    sys.exit(main())
