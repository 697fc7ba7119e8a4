"""A running embedded cluster as the machine sees it: is it there, and run something inside it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.state import State


@dataclass(frozen=True)
class Handle:
    """What `process.json` records of a started cluster.

    `started` is the start time of `pid` in clock ticks since boot (proc(5), field 22): a PID alone may have
    been given to another process since.
    """

    state: State
    pid: int
    started: int
    network: str
    link: str

    @classmethod
    def read(cls, state: State) -> Handle | None:
        """The last started cluster of this state folder, running or not."""
        try:
            recorded = json.loads(process_file(state).read_text())
            return cls(state, recorded["pid"], recorded["started"], recorded["network"], recorded["link"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write(self) -> None:
        process_file(self.state).write_text(
            json.dumps({"pid": self.pid, "started": self.started, "network": self.network, "link": self.link}) + "\n"
        )

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    @property
    def status(self) -> dict[str, Any]:
        """Components and nodes as the first process last wrote them; empty before it did."""
        try:
            read: dict[str, Any] = json.loads((self.state.cluster / "status.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return read

    def inside(self, argv: Sequence[str], node: str | None = None) -> list[str]:
        """The command that runs `argv` in the cluster's namespaces, or in those of one of its nodes."""
        entered = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--"]
        if node is not None:
            entered += ["nsenter", f"--target={self.status['nodes'][node]}", "--mount", "--net", "--"]
        return [*entered, *argv]

    def run(
        self, argv: Sequence[str], node: str | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.inside(argv, node), capture_output=True, text=True, timeout=timeout_s, check=False)


def process_file(state: State) -> Path:
    return state.cluster / "process.json"


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot, None where there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in text.split()]


def same_pid_namespace(pid: int) -> set[int]:
    """Every process of the machine that is in the PID namespace of `pid`."""
    wanted = Path(f"/proc/{pid}/ns/pid").readlink()
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns" / "pid").readlink() == wanted:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found
