"""What a cluster could leave on the machine, listed before and after."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
PROGRAMS = (
    "etcd",
    "containerd",
    "containerd-shim",
    "kube",
    "kube-router",
    "tritonserver",
    "coredns",
    "pause",
    "unshare",
)
NAMESPACES = ("mnt", "net", "pid")


def snapshot() -> dict[str, list[str]]:
    """By kind: processes, mounts, links, routes, packet filter rules, IP sets, namespaces, cgroups, machine settings.

    Only what other work on the machine does not change by itself; each kind is a sorted list, so that two
    snapshots can be compared whole.
    """
    return {
        "processes": sorted(_processes()),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "links": sorted(link["ifname"] for link in json.loads(_run("ip", "-json", "link", "show"))),
        "routes": sorted(_run("ip", "-4", "route", "show", "table", "all").splitlines()),
        "rules": sorted(line for line in _run("iptables-save").splitlines() if line.startswith("-A")),
        "sets": sorted(_run("ipset", "list", "-name").splitlines()),
        "namespaces": sorted(_foreign_namespaces()),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").rglob("triton-fleet-*") if path.is_dir()),
        "settings": [f"{name}={(Path('/proc/sys') / name).read_text().strip()}" for name in SETTINGS],
    }


def difference(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is there after and was not before, by kind; empty where nothing was left."""
    left = {kind: [line for line in after[kind] if line not in before[kind]] for kind in before}
    return {kind: lines for kind, lines in left.items() if lines}


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout


def _processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = Path((entry / "exe").readlink()).name
            except OSError:
                continue
            if name in PROGRAMS:
                found.append(f"{entry.name} {name}")
    return found


def _foreign_namespaces() -> set[str]:
    """Namespaces that some process is in and this one is not."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for kind in NAMESPACES:
                try:
                    there = str((entry / "ns" / kind).readlink())
                    if there != str(Path(f"/proc/self/ns/{kind}").readlink()):
                        found.add(there)
                except OSError:
                    continue
    return found
