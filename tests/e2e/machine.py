"""What a cluster could leave on the machine, listed before and after."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from local.state import State
from tests.e2e.checkout import FOLDER

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
    "operator",
    "prometheus",
    "prometheus-config-reloader",
    "alertmanager",
    "adapter",
    "kube-state-metrics",
    "metrics-server",
    "nfd-master",
    "nfd-worker",
    "nfd-gc",
    "gpu-stand-in",
)
COPIES = ("first", "second", "refusals", "rehearsal")
"""Folders of the copies of the project that the tests make."""
NAMESPACES = ("mnt", "net", "pid")


def snapshot() -> dict[str, list[str]]:
    """By kind: processes, mounts, links, routes, packet filter rules, IP sets, namespaces, cgroups, machine settings.

    Only what other work on the machine does not change by itself; each kind is a sorted list, so that two
    snapshots can be compared whole. A cluster of another checkout may start or end meanwhile: what is its own is
    left out.
    """
    strangers = _strangers()
    return {
        "processes": sorted(_processes(strangers)),
        "mounts": sorted(Path("/proc/self/mounts").read_text().splitlines()),
        "links": sorted(link["ifname"] for link in _links() if not _is_strangers(link)),
        "routes": sorted(_routes()),
        "rules": sorted(line for line in _run("iptables-save").splitlines() if line.startswith("-A")),
        "sets": sorted(_run("ipset", "list", "-name").splitlines()),
        "namespaces": sorted(_foreign_namespaces(strangers)),
        "cgroups": sorted(
            str(path)
            for path in Path("/sys/fs/cgroup").rglob("triton-fleet-*")
            if path.is_dir() and path.name in _identities()
        ),
        "settings": [f"{name}={(Path('/proc/sys') / name).read_text().strip()}" for name in SETTINGS],
    }


def difference(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is there after and was not before, by kind; empty where nothing was left."""
    left = {kind: [line for line in after[kind] if line not in before[kind]] for kind in before}
    return {kind: lines for kind, lines in left.items() if lines}


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout


def _identities() -> set[str]:
    """The clusters that these tests start, as their cgroups and links are named."""
    return {State(FOLDER / name / ".fleet").identity for name in COPIES} | {
        State(FOLDER / name / ".fleet" / "rehearsal").identity for name in COPIES
    }


def _links() -> list[dict[str, Any]]:
    links: list[dict[str, Any]] = json.loads(_run("ip", "-json", "link", "show"))
    return links


def _is_strangers(link: dict[str, Any]) -> bool:
    alias = str(link.get("ifalias", ""))
    return alias.startswith("triton-fleet-") and alias not in _identities()


def _routes() -> list[str]:
    strangers = {link["ifname"] for link in _links() if _is_strangers(link)}
    lines = _run("ip", "-4", "route", "show", "table", "all").splitlines()
    return [line for line in lines if not strangers & set(line.split())]


def _strangers() -> set[int]:
    """Every process of a cluster of another checkout: its first one, by what it was started with, and all below."""
    parents: dict[int, list[int]] = {}
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
            if "local.cluster.init" in command and f"{FOLDER}/" not in command:
                found.append(int(entry.name))
    for pid in found:
        found += [child for child in parents.get(pid, []) if child not in found]
    return set(found)


def _processes(strangers: set[int]) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in strangers:
            try:
                name = Path((entry / "exe").readlink()).name
            except OSError:
                continue
            if name in PROGRAMS:
                found.append(f"{entry.name} {name}")
    return found


def _foreign_namespaces(strangers: set[int]) -> set[str]:
    """Namespaces that some process is in and this one is not."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in strangers:
            for kind in NAMESPACES:
                try:
                    there = str((entry / "ns" / kind).readlink())
                    if there != str(Path(f"/proc/self/ns/{kind}").readlink()):
                        found.add(there)
                except OSError:
                    continue
    return found
