"""The command line behind the Makefile: python -m local <command>."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from local import bench, commands, packages
from local.cluster import topology
from local.errors import LocalError
from local.state import State, default_state

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local", description="Run stack `local` on this machine.")
    parser.add_argument("--state", type=Path, help="state folder, instead of .fleet in the checkout")
    command = parser.add_subparsers(dest="command", required=True)

    up = command.add_parser("up", help="start the embedded cluster, deploy the stack, print the verification report")
    down = command.add_parser("down", help="destroy the stack, stop the embedded cluster")
    verify = command.add_parser("verify", help="run the verification again")
    for parsed in (up, down, verify):
        parsed.add_argument(
            "--cluster", type=Path, help="kubeconfig file of a cluster to use instead of the embedded one"
        )
    preview = command.add_parser("preview", help="pulumi preview without a cluster")
    for parsed in (preview, verify):
        parsed.add_argument("--stack", required=True)
    images = command.add_parser("images", help="build the images")
    images.add_argument("--export", type=Path, help="folder to write the image archives to")
    prepare = command.add_parser("prepare", help="label, taint and patch the nodes of another cluster")
    prepare.add_argument("--cluster", type=Path, required=True)
    prepare.add_argument("--simulate-gpus", action="store_true")
    prepare.add_argument("--nodes", default="", help="the nodes to change, separated by commas, instead of a choice")
    prepare.add_argument("--yes", action="store_true", help="do not ask")
    measure = command.add_parser("bench", help="the benchmarks, into reports/bench.json")
    measure.add_argument("--only", metavar="NAME", help=f"run one: {', '.join(bench.BENCHMARKS)}")
    return parser


def _progress(line: str) -> None:
    print(line, flush=True)


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    state = State(arguments.state.resolve()) if arguments.state else default_state()
    _adapt(os.environ)
    try:
        match arguments.command:
            case "up":
                commands.up(state, _file(arguments.cluster), _progress)
            case "down":
                commands.down(state, _file(arguments.cluster), _progress)
            case "verify":
                commands.verify(arguments.stack, state, _file(arguments.cluster), _progress)
            case "preview":
                commands.preview(arguments.stack, state, _progress)
            case "images":
                commands.images(arguments.export, _progress)
            case "prepare":
                commands.prepare_cluster(
                    arguments.cluster.expanduser().resolve(),
                    _progress,
                    simulate_gpus=arguments.simulate_gpus,
                    assume_yes=arguments.yes,
                    nodes=[name for name in arguments.nodes.split(",") if name],
                )
            case "bench":
                bench.run(state, arguments.only, _progress)
    except LocalError as error:
        print(f"\nerror: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; `make up` goes on where it stopped, `make down` removes what is there", file=sys.stderr)
        return 130
    return 0


def _adapt(environment: MutableMapping[str, str]) -> None:
    """What every program started from here needs: system programs on PATH, and no proxy on the way to the cluster."""
    environment["PATH"] = packages.SEARCH
    past = environment.get("no_proxy") or environment.get("NO_PROXY")
    for name in ("no_proxy", "NO_PROXY"):
        environment[name] = ",".join(filter(None, [past, str(topology.NEVER_ROUTED)]))


def _file(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().resolve()


if __name__ == "__main__":
    sys.exit(main())
