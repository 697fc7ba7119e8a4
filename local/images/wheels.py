"""Python packages for images: fetched by hash, unpacked without an installer, so that no machine path gets in."""

from __future__ import annotations

import compileall
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from local.errors import LocalError
from local.images import archive
from local.images.workshop import file_digest

if TYPE_CHECKING:
    from local.images.archive import Layer
    from local.images.workshop import Workshop

PYTHON = (3, 11)
"""The interpreter of the images: Debian 12's."""

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<rest>(\s+--hash=sha256:[0-9a-f]{64})+)$")


@dataclass(frozen=True)
class Pin:
    """One line of a lock file."""

    name: str
    version: str
    hashes: frozenset[str]


@dataclass(frozen=True)
class Placement:
    """Where a part of the unpacked packages goes in the image. `source` is a folder or file in site-packages."""

    source: str
    target: str
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wheels:
    """The packages of the lock file `<lock>`, put where `placements` says."""

    code: ClassVar[tuple[str, ...]] = ("archive.py", "wheels.py")

    name: str
    lock: str
    placements: tuple[Placement, ...]

    def inputs(self, shop: Workshop) -> object:
        return [(shop.folder / self.lock).read_text(), _compiles()]

    def make(self, shop: Workshop, scratch: Path, tar: Path) -> Layer:
        site, tree = scratch / "site", scratch / "tree"
        for wheel in fetch(shop.folder / self.lock, shop.cache):
            unpack(wheel, site)
        place(site, tree, self.placements)
        return archive.write_layer(tree, tar, made_after_s=0)


def _compiles() -> bool:
    """Whether this interpreter's compiled files are the image's."""
    return sys.version_info[:2] == PYTHON


def pins(lock: Path) -> list[Pin]:
    """Reads a lock file of `uv pip compile --generate-hashes`."""
    lines = lock.read_text().replace("\\\n", " ").splitlines()
    read = []
    for line in (text.partition("#")[0].strip() for text in lines):
        if not line:
            continue
        pin = _PIN.match(line)
        if pin is None:
            raise LocalError(
                f"{lock.name} has a line that is not a version pinned by hash: {line[:100]}",
                fix="renew the lock as local/images/README.md says",
            )
        read.append(Pin(pin["name"], pin["version"], frozenset(re.findall(r"sha256:([0-9a-f]{64})", pin["rest"]))))
    return read


def _project(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def cached(pin: Pin, folder: Path) -> Path | None:
    """The wheel of a pin in a folder, if its content is what was locked."""
    for wheel in sorted(folder.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        if (_project(name), version) != (_project(pin.name), pin.version):
            continue
        if file_digest(wheel) in pin.hashes:
            return wheel
    return None


def fetch(lock: Path, cache: Path) -> list[Path]:
    """The wheels of a lock file, each with one of its hashes; downloads what `<cache>/wheels` lacks."""
    folder = cache / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pins(lock)
    if any(cached(pin, folder) is None for pin in wanted):
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            ended = subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
                    *("--only-binary=:all:", f"--python-version={PYTHON[0]}.{PYTHON[1]}"),
                    *(f"--find-links={folder}", f"--dest={fresh}", f"--requirement={lock}"),
                ],
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if ended.returncode != 0:
                raise LocalError(
                    f"pip could not fetch the packages of {lock.name} (status {ended.returncode})",
                    fix="check that `python -m pip download` works here with this machine's package index",
                    details=ended.stdout.strip(),
                )
            for wheel in Path(fresh).glob("*.whl"):
                wheel.replace(folder / wheel.name)
    found = [(pin, cached(pin, folder)) for pin in wanted]
    missing = [pin.name for pin, wheel in found if wheel is None]
    if missing:
        raise LocalError(
            f"no wheel with a hash of {lock.name} for: {', '.join(missing)}",
            fix="renew the lock as local/images/README.md says",
        )
    return [wheel for _, wheel in found if wheel is not None]


def unpack(wheel: Path, site: Path) -> None:
    """Unpacks a wheel into a site-packages folder (the layout of PEP 427, without console scripts)."""
    with zipfile.ZipFile(wheel) as content:
        for entry in content.infolist():
            parts = entry.filename.split("/")
            if parts[0].endswith(".data"):
                if parts[1] not in ("purelib", "platlib"):
                    continue
                parts = parts[2:]
            if entry.is_dir() or ".." in parts:
                continue
            path = site.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            with content.open(entry) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            path.chmod(0o755 if entry.external_attr >> 16 & 0o111 else 0o644)


def place(site: Path, tree: Path, placements: tuple[Placement, ...]) -> None:
    """Moves parts of unpacked packages to where an image has them, and compiles their Python files.

    The compiled files are tied to the content of their sources, not to times: images run on read-only file systems,
    where Python could not write them itself.
    """
    for placement in placements:
        source, target = site / placement.source, tree / placement.target
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copy2(source, target)
            continue
        shutil.copytree(
            source,
            target,
            dirs_exist_ok=True,
            ignore=lambda _, names, drop=placement.drop: [
                name for name in names if any(fnmatch(name, pattern) for pattern in drop)
            ],
        )
    if _compiles():
        compileall.compile_dir(
            tree,
            maxlevels=32,
            quiet=2,
            stripdir=str(tree),
            prependdir="/",
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
