"""Which image each node needs, and loading it there without a registry."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from local.cluster.topology import NODES, Node
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.cluster.handle import Handle
    from local.images.build import Image

LOAD_TIMEOUT_S = 300
KEY_LABEL = "triton-fleet.io/key"
"""A label on the image in containerd: which build of the image the node has."""


def by_name(images: Sequence[Image]) -> dict[str, Image]:
    """Images by the last part of their reference without the tag: triton-fleet.local/pause:1 is `pause`."""
    return {image.ref.rpartition("/")[2].partition(":")[0]: image for image in images}


EVERYWHERE = ("pause", "tools", "node-feature-discovery")
WITH_GPUS = ("triton", "gpu-stand-in")
WITHOUT_GPUS = (
    "coredns",
    "prometheus-operator",
    "prometheus-config-reloader",
    "prometheus",
    "alertmanager",
    "prometheus-adapter",
    "kube-state-metrics",
    "metrics-server",
)


def needed_on(node: Node) -> tuple[str, ...]:
    """Names of the images that a node needs. The disk is the machine's: no node holds what no pod there runs."""
    return (*EVERYWHERE, *(WITH_GPUS if node.gpus else WITHOUT_GPUS))


Ctr = Callable[[Sequence[str], float], "subprocess.CompletedProcess[str]"]
"""Runs `ctr` with these arguments, for at most so many seconds."""


def load(running: Handle, images: Mapping[str, Image], progress: Callable[[str], None]) -> None:
    """Give each node the images that it lacks or has in another build; all nodes at once, for half of it is waiting."""

    def on(node: Node) -> None:
        def ctr(arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
            return running.run(["ctr", *arguments], node=node.name, timeout_s=timeout_s)

        fill(ctr, node.name, [images[name] for name in needed_on(node)], progress)

    with ThreadPoolExecutor(len(NODES)) as pool:
        for done in [pool.submit(on, node) for node in NODES]:
            done.result()


def fill(ctr: Ctr, where: str, images: Sequence[Image], progress: Callable[[str], None]) -> None:
    """Import what a containerd lacks or has in another build."""
    present = _present(ctr, where)
    for image in images:
        if present.get(image.ref) == image.key:
            continue
        progress(f"images: loading {image.ref} on {where}")
        _run(ctr, where, ["images", "import", str(image.archive)])
        _run(ctr, where, ["images", "label", image.ref, f"{KEY_LABEL}={image.key}"])


def _present(ctr: Ctr, where: str) -> dict[str, str]:
    """Image reference to build key, of what a containerd holds."""
    found: dict[str, str] = {}
    for line in _run(ctr, where, ["images", "list"]).splitlines()[1:]:
        columns = line.split()
        labels = dict(part.partition("=")[::2] for part in columns[-1].split(","))
        found[columns[0]] = labels.get(KEY_LABEL, "")
    return found


def _run(ctr: Ctr, where: str, arguments: Sequence[str]) -> str:
    argv = ["--namespace=k8s.io", *arguments]
    fix = "look at the disk with `df -h`, then run make up again"
    try:
        done = ctr(argv, LOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise LocalError(f"ctr {' '.join(argv)} on {where}: not done within {LOAD_TIMEOUT_S} s", fix=fix) from error
    if done.returncode != 0:
        raise LocalError(f"ctr {' '.join(argv)} on {where}: {done.stderr.strip()}", fix=fix)
    return done.stdout
