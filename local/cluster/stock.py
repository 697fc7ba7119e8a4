"""Stores of containerd that already hold the images of a node: a new node begins with links to one.

Unpacking the images on each node took most of a start, and most of its disk. So it is done once for each set of images,
in the cache. What containerd has unpacked it never writes to again (content is named by its digest, and a container's
changes go to a layer of its own), so files are links; its databases are copies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from local.cluster import images as cluster_images
from local.cluster.topology import NODES
from local.errors import LocalError
from local.images.workshop import digest
from local.state import held

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.images.build import Image
    from local.state import State

FORM = 1
"""Part of a store's key: what changes when this file makes stores otherwise."""
DATABASES = "io.containerd.*/*.db"
START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 30.0
UNUSED_DAYS = 7
"""A store that no start has used for so long is removed when another one is made."""
CONFIG = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
  address = "{socket}"
"""


def equip(
    state: State, cache: Path, containerd: str, images: Mapping[str, Image], progress: Callable[[str], None]
) -> None:
    """Give each node that does not exist yet a store with its images, where links to the cache can be made.

    What a node lacks then is loaded as into any node (`cluster_images.load`).
    """
    nodes = [(node, state.cluster / "nodes" / node.name / "containerd") for node in NODES]
    new = [(node, folder) for node, folder in nodes if not folder.exists()]
    if not new or not _same_disk(state.root, cache):
        return
    (cache / "stores").mkdir(parents=True, exist_ok=True)
    # Whichever checkout: no store is removed while another command links to it.
    with held(cache / "stores.lock"):
        for node, folder in new:
            store = _ensure(cache, containerd, [images[name] for name in cluster_images.needed_on(node)], progress)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".linking-") as scratch:
                link(store, Path(scratch, "new"))
                Path(scratch, "new").rename(folder)


def link(store: Path, target: Path) -> None:
    """A second folder of the same files; databases, which are written in place, are copies."""
    subprocess.run(["cp", "--archive", "--link", str(store), str(target)], check=True)
    for database in target.glob(DATABASES):
        database.unlink()
        shutil.copy2(store / database.relative_to(target), database)


def key(containerd: str, images: Sequence[Image]) -> str:
    """A digest of what decides a store's content."""
    version = subprocess.run([containerd, "--version"], capture_output=True, text=True, check=True).stdout.split()[:3]
    return digest(FORM, version, sorted((image.ref, image.key) for image in images))


def _ensure(cache: Path, containerd: str, images: Sequence[Image], progress: Callable[[str], None]) -> Path:
    """The store with these images; made where the cache lacks it."""
    store = cache / "stores" / key(containerd, images)
    if not store.exists():
        _forget_unused(store.parent)
        progress(f"images: unpacking {len(images)} images, once for every start")
        with tempfile.TemporaryDirectory(dir=store.parent, prefix=".making-") as scratch:
            _make(Path(scratch, "store"), containerd, images, progress)
            Path(scratch, "store").rename(store)
    os.utime(store)
    return store


def _make(store: Path, containerd: str, images: Sequence[Image], progress: Callable[[str], None]) -> None:
    # A socket's path has at most 107 bytes, and the cache's may be long.
    with tempfile.TemporaryDirectory(prefix="triton-fleet-") as short:
        socket, settings, log = (Path(short, name) for name in ("s.sock", "containerd.toml", "log"))
        settings.write_text(CONFIG.format(root=store, state=Path(short, "state"), socket=socket))
        with log.open("wb") as said:
            # It ends with this process, however that ends, and its mounts with it.
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", "unshare", "--mount", containerd, f"--config={settings}"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        try:
            _wait_until_it_answers(process, socket, log)

            def ctr(arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
                argv = ["ctr", f"--address={socket}", *arguments]
                return subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)

            cluster_images.fill(ctr, "the cache", images, progress)
        finally:
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while subprocess.run(["ctr", f"--address={socket}", "version"], capture_output=True, check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LocalError(
                "images: the containerd that unpacks them did not start",
                details=log.read_text(errors="replace")[-1500:],
                fix="correct what it names, then run make up again",
            )
        time.sleep(0.1)


def _forget_unused(stores: Path) -> None:
    """Remove stores that are no longer used, and what a killed command left half made; links to their files stay."""
    for old in stores.iterdir():
        if old.name.startswith(".") or time.time() - old.stat().st_mtime > UNUSED_DAYS * 86400:
            shutil.rmtree(old)


def _same_disk(*folders: Path) -> bool:
    devices = set()
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        devices.add(folder.stat().st_dev)
    return len(devices) == 1
