"""Processes of this machine: who descends from whom, in which pod, with how much memory and time."""

from __future__ import annotations

import os
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for member in found:
        found += parents.get(member, [])
    return found


def cgroups(pid: int) -> str:
    """The cgroups that a process is in; those of a pod's have the pod's UID in their path."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


def pss_kib(pid: int) -> int:
    """Proportional set size: memory that processes share is counted once, divided among them (proc(5))."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def cpu_s(pid: int) -> float:
    """Seconds that a process has computed so far (proc_pid_stat(5): utime and stime)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
