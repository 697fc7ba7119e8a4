"""Stores of unpacked images: what is shared, what is copied, when one is made and when it goes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.cluster import images, stock
from local.cluster.topology import NODES
from local.images.build import Image
from local.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = {
    "io.containerd.content.v1.content/blobs/sha256/0123": "a layer",
    "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/bin/program": "a program",
    "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/var/lib/some.db": "no database of containerd",
}
DATABASES = {
    "io.containerd.metadata.v1.bolt/meta.db": "names",
    "io.containerd.snapshotter.v1.overlayfs/metadata.db": "layers",
}
DAY_S = 86400


def _fill(store: Path) -> None:
    for name, text in (FILES | DATABASES).items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(text)
    fs = store / "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs"
    (fs / "bin/program").chmod(0o755)
    (fs / "sh").symlink_to("bin/program")
    (fs / "var/lib").chmod(0o1777)


def _held(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_files_are_shared_and_databases_are_not(tmp_path: Path) -> None:
    store, node = tmp_path / "store", tmp_path / "node"
    _fill(store)
    stock.link(store, node)
    assert _held(node) == _held(store)
    shared = {name for name in FILES | DATABASES if (store / name).samefile(node / name)}
    assert shared == set(FILES)
    snapshot = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs"
    assert (node / snapshot / "sh").readlink() == Path("bin/program")
    assert oct((node / snapshot / "var/lib").stat().st_mode) == "0o41777"
    for name in DATABASES:
        (node / name).write_text("changed")
    shutil.rmtree(node / "io.containerd.content.v1.content")
    assert _held(store) == FILES | DATABASES | {f"{snapshot}/sh": "a program"}


class Place:
    """A cluster to be started and a cache; making a store is played, and recorded."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.cache = State(folder / "state"), folder / "cache"
        self.containerd = folder / "containerd"
        self.version("1.6.20~ds1")
        self.made: list[list[str]] = []
        self.images = {
            name: Image(f"home/{name}:1", Path(f"{name}.tar"), "k1")
            for node in NODES
            for name in images.needed_on(node)
        }
        monkeypatch.setattr(stock, "_make", self._make)

    def version(self, version: str) -> None:
        self.containerd.write_text(
            f"#!/bin/sh\necho containerd github.com/containerd/containerd {version} {os.urandom(4).hex()}\n"
        )
        self.containerd.chmod(0o755)

    def _make(self, store: Path, _containerd: str, wanted: Sequence[Image], _progress: object) -> None:
        self.made.append([image.ref for image in wanted])
        _fill(store)

    def equip(self) -> list[str]:
        said: list[str] = []
        stock.equip(self.state, self.cache, str(self.containerd), self.images, said.append)
        return said

    @property
    def stores(self) -> list[Path]:
        return sorted((self.cache / "stores").iterdir())

    def node(self, name: str) -> Path:
        return self.state.cluster / "nodes" / name / "containerd"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_store_is_made_once_for_nodes_with_the_same_images(place: Place) -> None:
    system, gpu, _ = NODES
    wanted = [[f"home/{name}:1" for name in images.needed_on(node)] for node in (system, gpu)]
    assert place.equip() == [
        f"images: unpacking {len(wanted[0])} images, once for every start",
        f"images: unpacking {len(wanted[1])} images, once for every start",
    ]
    assert place.made == wanted
    for node in NODES:
        assert _held(place.node(node.name)).keys() >= FILES.keys()
        assert [path.name for path in place.node(node.name).parent.iterdir()] == ["containerd"]
    shutil.rmtree(place.state.cluster)
    assert place.equip() == []
    assert (place.made, len(place.stores)) == (wanted, 2)


def test_a_node_that_exists_keeps_what_it_has(place: Place) -> None:
    for node in NODES:
        place.node(node.name).mkdir(parents=True)
    assert place.equip() == []
    assert not (place.cache / "stores").exists()
    assert [list(place.node(node.name).iterdir()) for node in NODES] == [[], [], []]


def test_other_images_or_another_containerd_make_another_store(place: Place) -> None:
    place.equip()
    first = place.stores
    place.images["triton"] = Image("home/triton:1", Path("triton.tar"), "k2")
    shutil.rmtree(place.state.cluster)
    place.equip()
    assert [path.name for path in place.stores if path not in first] == [
        stock.key(str(place.containerd), [place.images[name] for name in images.needed_on(NODES[1])])
    ]
    place.version("1.7.24")
    shutil.rmtree(place.state.cluster)
    place.equip()
    assert len(place.stores) == 5


def test_a_store_that_nobody_used_for_days_goes_when_another_is_made(place: Place) -> None:
    place.equip()
    half = place.cache / "stores" / ".making-x"
    half.mkdir()
    system, gpu = (
        place.cache
        / "stores"
        / stock.key(str(place.containerd), [place.images[name] for name in images.needed_on(node)])
        for node in NODES[:2]
    )
    for store, days in ((system, 8), (gpu, 6)):
        then = store.stat().st_mtime - days * DAY_S
        os.utime(store, (then, then))
    kept = _held(place.node("system"))
    place.images["pause"] = Image("home/pause:2", Path("pause.tar"), "k1")
    shutil.move(place.state.cluster, place.state.root / "before")
    place.equip()
    assert not system.exists()
    assert not half.exists()
    assert gpu.exists()
    assert _held(place.state.root / "before/nodes/system/containerd") == kept


def test_links_are_not_tried_across_disks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "_same_disk", lambda *_: False)
    assert place.equip() == []
    assert not place.state.cluster.exists()


def test_what_a_containerd_that_does_not_start_said_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ctr").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "ctr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    process = subprocess.Popen(["false"])
    process.wait()
    log = tmp_path / "log"
    log.write_text("failed to create listener")
    with pytest.raises(stock.LocalError) as failed:
        stock._wait_until_it_answers(process, tmp_path / "s.sock", log)
    assert str(failed.value) == (
        "images: the containerd that unpacks them did not start\n"
        "failed to create listener\n"
        "fix: correct what it names, then run make up again"
    )
