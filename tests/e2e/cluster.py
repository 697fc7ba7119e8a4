"""What the end-to-end tests ask of a cluster that runs: its programs by process, and monitoring by its own APIs."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.cluster.handle import Handle, children
from local.processes import cgroups
from local.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.checkout import Checkout

WITHIN_S = 90
"""A look at the node every 5 s, a kubelet's report every 5 s, and a busy machine."""


def eventually(holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
    """A command that fails meanwhile is no answer: a kubelet that is away shows no log."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
            if holds():
                sys.stderr.write(f"\n  {what}: {time.monotonic() - began:.0f} s")
                return
        assert time.monotonic() - began < within_s, f"not within {within_s} s: {what}"
        time.sleep(1)


def running(checkout: Checkout) -> Handle:
    found = Handle.read(State(checkout.folder / ".fleet"))
    assert found
    return found


def process_of(checkout: Checkout, program: str, *arguments: str) -> int:
    """The process of a component of the cluster, as the machine counts it, by its name and by arguments of it."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children(running(checkout).pid)}
    wanted = {argument.encode() for argument in arguments}
    found = [pid for pid, words in commands.items() if words[1:2] == [program.encode()] and wanted <= {*words}]
    assert len(found) == 1, f"{len(found)} processes of {program} {' '.join(arguments)}"
    return found[0]


def kubelet_of(checkout: Checkout, node: str) -> int:
    return process_of(checkout, "kubelet", f"--hostname-override={node}")


def tritonservers(uid: str) -> list[int]:
    """The servers in a pod, as the machine counts them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "exe").readlink().name == "tritonserver" and uid in cgroups(int(entry.name)):
                    found.append(int(entry.name))
    return found


def nodes(checkout: Checkout) -> dict[str, dict[str, Any]]:
    items = json.loads(checkout.kubectl("get", "nodes", "--output=json"))["items"]
    return {item["metadata"]["name"]: item for item in items}


def condition(item: dict[str, Any], kind: str) -> str:
    """The status of a condition of an object; empty where it has none."""
    return next((one["status"] for one in item["status"].get("conditions", []) if one["type"] == kind), "")


def get(checkout: Checkout, path: str) -> Any:  # noqa: ANN401 - whatever the API answers
    return json.loads(checkout.kubectl("get", "--raw", path))


def service(name: str, path: str) -> str:
    return f"/api/v1/namespaces/monitoring/services/{name}/proxy{path}"


def prometheus(path: str) -> str:
    return service("prometheus-kube-prometheus-prometheus:9090", path)


def alertmanager(path: str) -> str:
    return service("prometheus-kube-prometheus-alertmanager:9093", path)
