"""A small Debian root file system, from the package mirror that this machine uses itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from local.errors import LocalError
from local.images import archive

if TYPE_CHECKING:
    from pathlib import Path

    from local.images.archive import Layer
    from local.images.workshop import Workshop

EMPTIED = ("boot", "dev", "home", "media", "mnt", "proc", "run", "srv", "sys", "tmp", "var/cache", "var/log", "var/tmp")
REMOVED = (
    "debootstrap",
    "etc/apt/sources.list",
    "etc/hostname",
    "etc/machine-id",
    "etc/resolv.conf",
    "usr/share/bash-completion",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/lib/apt/lists",
    "var/lib/dpkg/available-old",
    "var/lib/dpkg/status-old",
)
"""What this machine or the hour left in the tree, and what no program of an image reads."""
DOCS = "usr/share/doc"
LICENSE = "copyright"
LAST_LINES = 10


@dataclass(frozen=True)
class Debian:
    """The minimal system of a Debian release, with packages and users (name, and number for user and group)."""

    code: ClassVar[tuple[str, ...]] = ("archive.py", "debian.py")

    name: str
    suite: str
    packages: tuple[str, ...]
    users: tuple[tuple[str, int], ...]

    def inputs(self, shop: Workshop) -> object:  # noqa: ARG002 - which versions the mirror has is not asked each time
        return None

    def make(self, shop: Workshop, scratch: Path, tar: Path) -> Layer:  # noqa: ARG002 - takes nothing from there
        started_s, tree = time.time(), scratch / "tree"
        self._bootstrap(tree)
        trim(tree)
        for name, number in self.users:
            with (tree / "etc/passwd").open("a") as passwd:
                passwd.write(f"{name}:x:{number}:{number}::/tmp:/usr/sbin/nologin\n")
            with (tree / "etc/group").open("a") as group:
                group.write(f"{name}:x:{number}:\n")
        return archive.write_layer(tree, tar, made_after_s=started_s, owner=None)

    def _bootstrap(self, tree: Path) -> None:
        """Unpacks and configures the packages.

        debootstrap mounts /proc in the tree: it runs in mount and PID namespaces of its own, which end with this
        program, so that nothing stays mounted and no process stays behind however that ends.
        """
        if os.geteuid() != 0:
            raise LocalError("the images are made by debootstrap, which needs root", fix="run this as root")
        ended = subprocess.run(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                *("debootstrap", "--variant=minbase", "--force-check-gpg", f"--include={','.join(self.packages)}"),
                *(self.suite, str(tree), mirror(self.suite)),
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ended.returncode != 0:
            log = tree / "debootstrap" / "debootstrap.log"
            logged = log.read_text(errors="replace") if log.exists() else ""
            raise LocalError(
                f"debootstrap could not make the Debian {self.suite} base of the images (status {ended.returncode})",
                fix="see its last lines above; what cannot be fetched is a matter of this machine's apt mirror",
                details="\n".join([*logged.splitlines()[-LAST_LINES:], *ended.stdout.splitlines()[-LAST_LINES:]]),
            )


def mirror(suite: str) -> str:
    """The address from which this machine's apt takes `main` of a Debian release."""
    found = site_of(_index_targets(), suite)
    if found is None:
        subprocess.run(["apt-get", "update", "--quiet=2"], check=False)
        found = site_of(_index_targets(), suite)
    if found is None:
        raise LocalError(
            f"apt on this machine has no source for Debian {suite} main, from which the images are made",
            fix=f"add the machine's mirror for '{suite} main' to /etc/apt/sources.list.d",
            details=f"sources found:\n{_index_targets()}",
        )
    return found


def site_of(targets: str, suite: str) -> str | None:
    """The site of a release's `main` in lines of release, component and site."""
    for line in targets.splitlines():
        release, component, site = line.split(maxsplit=2)
        if (release, component) == (suite, "main"):
            return site
    return None


def _index_targets() -> str:
    return subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(SITE)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def trim(tree: Path) -> None:
    """Removes from a root file system what an image must not carry; licences stay."""
    for name in REMOVED:
        _remove(tree / name)
    for name in EMPTIED:
        for path in (tree / name).iterdir():
            _remove(path)
    for path in sorted((tree / DOCS).rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.name != LICENSE:
            path.unlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
