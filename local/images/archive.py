"""Image layers and docker archives, written so that equal content gives equal bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EPOCH_S = 1_767_225_600
"""2026-01-01: the time of whatever a build makes itself."""
CREATED = "2026-01-01T00:00:00Z"

PLAIN_MODE = 0o1777
"""Permissions and the sticky bit: no image program gains rights, so set-uid and set-gid are dropped."""


@dataclass(frozen=True)
class Layer:
    """An uncompressed layer: its tar file, the digest an image names it by, and the bytes of its files on a disk."""

    tar: Path
    diff_id: str
    unpacked_bytes: int


@dataclass(frozen=True)
class Settings:
    """What an image tells the container runtime. `user` is `uid:gid`: numbers, as `runAsNonRoot` asks for."""

    user: str
    env: Mapping[str, str]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class _Digesting(io.RawIOBase):
    """Writes to a file and digests what it writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - the buffer protocol has no name in 3.11
        self.digest.update(data)
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _walk(folder: Path) -> Iterator[Path]:
    """Everything below a folder, parents first, in an order that does not depend on the file system."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


def write_layer(tree: Path, tar: Path, *, made_after_s: float, owner: tuple[int, int] | None = (0, 0)) -> Layer:
    """Writes a folder as a layer.

    Files changed after `made_after_s` (seconds since 1970) get `EPOCH_S`; older ones keep their time, because compiled
    Python files name the time of their source. `owner` None keeps the owners found.
    """
    partial = tar.with_name(f".{tar.name}.partial")
    seen: dict[tuple[int, int], str] = {}
    unpacked_bytes = 0
    with _Digesting(partial) as out:
        with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in _walk(tree):
                found = path.lstat()
                name = path.relative_to(tree).as_posix()
                entry = tarfile.TarInfo(name)
                entry.mode = stat.S_IMODE(found.st_mode) & PLAIN_MODE
                entry.uid, entry.gid = owner or (found.st_uid, found.st_gid)
                entry.mtime = EPOCH_S if found.st_mtime >= made_after_s else int(found.st_mtime)
                if stat.S_ISDIR(found.st_mode):
                    entry.type = tarfile.DIRTYPE
                elif stat.S_ISLNK(found.st_mode):
                    entry.type = tarfile.SYMTYPE
                    entry.linkname = str(path.readlink())
                elif not stat.S_ISREG(found.st_mode):
                    raise ValueError(f"{name} is neither file, folder nor link: layers hold no others")
                elif (found.st_dev, found.st_ino) in seen:
                    entry.type = tarfile.LNKTYPE
                    entry.linkname = seen[found.st_dev, found.st_ino]
                else:
                    seen[found.st_dev, found.st_ino] = name
                    entry.size = found.st_size
                    unpacked_bytes += found.st_size
                    with path.open("rb") as content:
                        archive.addfile(entry, content)
                    continue
                archive.addfile(entry)
        diff_id = f"sha256:{out.digest.hexdigest()}"
    partial.replace(tar)
    return Layer(tar, diff_id, unpacked_bytes)


def remember(layer: Layer) -> None:
    """Writes what is known of a layer beside it; `recall` reads it."""
    facts = {name: value for name, value in asdict(layer).items() if name != "tar"}
    facts_file = layer.tar.with_suffix(".json")
    partial = facts_file.with_name(f".{facts_file.name}.partial")
    partial.write_text(json.dumps(facts))
    partial.replace(facts_file)


def recall(tar: Path) -> Layer | None:
    """A layer that an earlier build finished, if there is one."""
    facts_file = tar.with_suffix(".json")
    if not (tar.is_file() and facts_file.is_file()):
        return None
    return Layer(tar, **json.loads(facts_file.read_text()))


def write_image(archive: Path, ref: str, layers: Sequence[Layer], settings: Settings, architecture: str) -> None:
    """Writes a docker archive: what `ctr images import`, `docker load` and `podman load` read."""
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "created": CREATED,
            "config": {
                "User": settings.user,
                "Env": [f"{name}={value}" for name, value in sorted(settings.env.items())],
                "Entrypoint": list(settings.entrypoint) or None,
                "Cmd": list(settings.command) or None,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": CREATED, "created_by": f"triton-fleet {layer.tar.stem}"} for layer in layers],
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    names = [f"{layer.diff_id.removeprefix('sha256:')}.tar" for layer in layers]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [ref], "Layers": names}]).encode()
    partial = archive.with_name(f".{archive.name}.partial")
    with tarfile.open(partial, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, layer in zip(names, layers, strict=True):
            with layer.tar.open("rb") as content:
                tar.addfile(_plain(name, layer.tar.stat().st_size), content)
        for name, text in ((config_name, config), ("manifest.json", manifest)):
            tar.addfile(_plain(name, len(text)), io.BytesIO(text))
    partial.replace(archive)


def _plain(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, EPOCH_S, 0o644
    return entry
