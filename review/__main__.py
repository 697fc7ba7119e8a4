"""The command line behind the workflows: python -m review {facts,comment}.

`comment` needs no more than Python 3.11: it runs from the base branch's checkout, without installing anything.
Exit status: 0 if the gate lets the pull request pass, 1 if it does not or a plan is missing, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final

from review import facts, gate, preview, renders
from review.comment import Review, written
from review.github import PullRequest, Refused
from review.plan import Plan, Unreadable

PREVIEW: Final = "preview.json"
BASE: Final = "base"
HEAD: Final = "head"
FACTS: Final = "facts.json"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m review", description="What a pull request would do.")
    command = parser.add_subparsers(dest="command", required=True)
    of_one = command.add_parser("facts", help="what this checkout says of a stack: cost and preflight, as JSON")
    of_one.add_argument("--stack", required=True)
    of_one.add_argument("--out", type=Path, required=True)
    comment = command.add_parser("comment", help="judge the plans of all stacks, and write or publish the comment")
    comment.add_argument(
        "--plans",
        type=Path,
        required=True,
        help=f"folder with one per stack, holding {BASE}/{FACTS}, {HEAD}/{FACTS}, and {PREVIEW} or the files of "
        f"`make render` in {BASE}/render and {HEAD}/render",
    )
    comment.add_argument("--stack", action="append", required=True, help="once for each stack")
    comment.add_argument("--out", type=Path, help="where to write the comment; standard output if not given")
    comment.add_argument("--label", action="append", default=[], help="a label that the pull request carries")
    comment.add_argument(
        "--pull-request",
        type=_pull_request,
        help="owner/name#number: read the labels there and publish there; needs GITHUB_TOKEN",
    )
    return parser


def _pull_request(text: str) -> PullRequest:
    match = re.fullmatch(r"([\w.-]+/[\w.-]+)#(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not owner/name#number")
    return PullRequest(
        os.environ.get("GITHUB_API_URL") or "https://api.github.com",
        match[1],
        int(match[2]),
        os.environ.get("GITHUB_TOKEN", ""),
    )


def review(stack: str, folder: Path, labels: frozenset[str]) -> Review:
    """What is known of one stack from the files in its folder. What is missing is told, never taken for harmless."""
    missing: list[str] = []
    known: dict[str, facts.Facts | None] = {BASE: None, HEAD: None}
    for side in known:
        file = folder / side / FACTS
        try:
            known[side] = facts.read(file.read_text())
        except (OSError, Unreadable) as error:
            missing.append(f"the facts of the {side} ({_reason(error)})")
    plan: Plan | None = None
    try:
        plan = _plan(folder, known)
    except Unreadable as error:
        missing.append(str(error))
    environments = {found.environment or stack for found in known.values() if found is not None} or {stack}
    findings = () if plan is None else gate.judge(plan, environments, labels)
    if missing:
        plan = None
    return Review(stack, plan, "; ".join(missing), findings, known[BASE], known[HEAD])


def _plan(folder: Path, known: dict[str, facts.Facts | None]) -> Plan:
    if (folder / PREVIEW).exists():
        return preview.read((folder / PREVIEW).read_text())
    for side, found in known.items():
        if found is not None and not (folder / side / "render").exists():
            raise Unreadable(f"neither a preview nor a render of the {side}: the job that makes them says why")
    return renders.read(folder / BASE / "render", folder / HEAD / "render")


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unreadable) else type(error).__name__


def _facts(stack: str, out: Path) -> int:
    from review import gather  # noqa: PLC0415 - needs the project's environment, which `comment` does without

    found = gather.gather(stack, Path(__file__).resolve().parents[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(facts.dumped(found))
    for fault in found.refusals if found else ():
        print(f"refused: {fault}", file=sys.stderr)
    return 0


def _comment(arguments: argparse.Namespace) -> int:
    pull: PullRequest | None = arguments.pull_request
    labels = frozenset(arguments.label)
    unpublished = ""
    if pull is not None:
        try:
            labels |= pull.labels()
        except Refused as refused:
            unpublished = str(refused)
    reviews = [review(stack, arguments.plans / stack, labels) for stack in arguments.stack]
    body = written(reviews)
    if arguments.out is None:
        sys.stdout.write(body)
    else:
        arguments.out.write_text(body)
    if pull is not None and not unpublished:
        try:
            print(f"comment: {pull.publish(body)}", file=sys.stderr)
        except Refused as refused:
            unpublished = str(refused)
    if unpublished:
        # A pull request from a fork may not write; what it would do is judged all the same.
        print(f"comment: not published: {unpublished}", file=sys.stderr)
    faults = [f"stack {one.stack}: {fault}" for one in reviews for fault in one.faults]
    for fault in faults:
        # On one line: at the beginning of a line the runner would take `::` for a command.
        print(f"refused: {' '.join(fault.split())}", file=sys.stderr)
    return 1 if faults else 0


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    return _facts(arguments.stack, arguments.out) if arguments.command == "facts" else _comment(arguments)


if __name__ == "__main__":
    sys.exit(main())
