"""What the kinds of layers have in common: where they take their inputs from, and what each has to say of itself."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.images.archive import Layer


@dataclass(frozen=True)
class Workshop:
    """`folder` holds locks, sources and this code; `cache` what was fetched and made; `binaries` programs by name."""

    folder: Path
    cache: Path
    binaries: Mapping[str, Path]


class LayerKind(Protocol):
    """The recipe of one layer: a dataclass whose fields say what is in it."""

    code: ClassVar[tuple[str, ...]]
    """Files of the workshop's folder that decide how the layer is made."""

    @property
    def name(self) -> str: ...

    def inputs(self, shop: Workshop) -> object:
        """What decides the content besides the recipe and the code; JSON can say it."""
        ...

    def make(self, shop: Workshop, scratch: Path, tar: Path) -> Layer:
        """Makes the layer, with an empty folder to work in."""
        ...


def digest(*parts: object) -> str:
    """A short name for values that JSON can say."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def program_digest(path: Path, cache: Path) -> str:
    """The digest of a large file, remembered in the cache for as long as its size, its times and its inode stay."""
    seen = path.stat()
    there = cache / "digests" / digest(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
    if not there.exists():
        there.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=there.parent, delete=False) as scratch:
            scratch.write(file_digest(path))
        Path(scratch.name).rename(there)
    return there.read_text()
