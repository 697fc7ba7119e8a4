"""The nodes' cgroups: made before a kubelet starts, removed after the last process is gone.

Both layouts are handled: version 1, one tree per controller, and version 2, one tree for all
(https://docs.kernel.org/admin-guide/cgroup-v2.html).
"""

from __future__ import annotations

import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS_V2 = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
"""A kubelet refuses a `cgroupRoot` that lacks one of cpu, cpuset, memory, hugetlb, pids that the kernel has."""
REMOVE_DEADLINE_S = 20.0


def is_version_2(mount: Path = MOUNT) -> bool:
    return (mount / "cgroup.controllers").exists()


def hierarchies(mount: Path = MOUNT) -> list[Path]:
    """The roots in which a cgroup has to exist."""
    if is_version_2(mount):
        return [mount]
    # Joint controllers (cpu,cpuacct) appear once by their real folder, and again as links.
    return [
        entry
        for entry in sorted(mount.iterdir())
        if entry.is_dir() and not entry.is_symlink() and (entry / "cgroup.procs").exists()
    ]


def make(path: str, mount: Path = MOUNT) -> None:
    """Make the cgroup `path` (as `/a/b`) in every hierarchy, with what a kubelet needs in each."""
    for root in hierarchies(mount):
        parent = root
        for part in path.strip("/").split("/"):
            if is_version_2(mount):
                _enable_controllers(parent)
            child = parent / part
            child.mkdir(exist_ok=True)
            # Version 1 starts a cpuset empty, and a process cannot enter an empty one.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if not is_version_2(mount) and (child / name).exists() and not (child / name).read_text().strip():
                    (child / name).write_text((parent / name).read_text())
            parent = child


def _enable_controllers(folder: Path) -> None:
    available = (folder / "cgroup.controllers").read_text().split()
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    for controller in CONTROLLERS_V2:
        if controller in available and controller not in enabled:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remaining(path: str, mount: Path = MOUNT) -> list[Path]:
    """The folders that the cgroup `path` still has, deepest first."""
    found: list[Path] = []
    for root in hierarchies(mount):
        top = root / path.strip("/")
        if top.exists():
            found += sorted((p for p in top.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts))
            found.append(top)
    return found


def processes(path: str, mount: Path = MOUNT) -> set[int]:
    """PIDs in the cgroup `path` or below it; without those of another PID namespace, which the kernel lists as 0."""
    pids: set[int] = set()
    for folder in remaining(path, mount):
        try:
            pids.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split() if pid != "0")
        except OSError:
            continue
    return pids


def remove(path: str, mount: Path = MOUNT) -> list[Path]:
    """Remove the cgroup `path` everywhere; returns what could not be removed within the deadline."""
    deadline = time.monotonic() + REMOVE_DEADLINE_S
    while True:
        left: list[Path] = []
        for folder in remaining(path, mount):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(folder)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)
