"""Where things lie: the project's own state folder, and the cache that checkouts share."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROJECT = Path(__file__).resolve().parent.parent
CACHE_VARIABLE = "TRITON_FLEET_CACHE"


def cache_folder() -> Path:
    """The folder of built tools and images: $TRITON_FLEET_CACHE, else the user's cache folder (XDG)."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return named_path(named, f"{CACHE_VARIABLE}={named}")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "triton-fleet"


def named_path(text: Path | str, said: str) -> Path:
    """What a person named, in full, there or not; LocalError where there can be no such file. `said` is how."""
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise LocalError(
            f"{said}: there is no user {Path(text).parts[0].removeprefix('~') or os.geteuid()} with a home folder",
            fix="write the path without ~",
        ) from None
    try:
        path.lstat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise LocalError(
                f"{said}: {error.strerror}: at most 255 bytes stand between two slashes, and 4095 in all",
                fix="name a shorter path",
            ) from None
    return path.resolve()


def switched_on(variable: str, said: str) -> bool:
    """Whether somebody set a variable to 1. LocalError for anything else: `YES=0` must not be taken for a yes."""
    if said not in ("", "1"):
        raise LocalError(
            f"{variable}={said}: it is 1, or nothing is said",
            fix=f"write {variable}=1 for it, or leave {variable} out",
        )
    return bool(said)


def require_folder(path: Path, said: str) -> None:
    """Refuse a folder that cannot be made or written to, before anything is; `said` is how the user named it."""
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise LocalError(f"{said}: {there} is no folder", fix="name a folder; it is made where it is not there yet")
    try:
        Path(tempfile.mkdtemp(dir=there)).rmdir()
    except OSError as error:
        raise LocalError(
            f"{said}: nothing can be written to {there} by user {os.geteuid()}: {error.strerror}",
            fix="name another folder, or run it as the user who owns that one",
        ) from error


@contextmanager
def held(lock: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """One at a time per lock file, whichever checkout asks; `waiting` is called where another has it.

    Of a command on a state folder, which hands its lock on to what it starts, see `local.turns`.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class State:
    """The files of one embedded cluster and of the stack that runs on it.

    Everything a cluster writes lies under `root`; removing the folder after a stop leaves nothing.
    """

    root: Path

    @property
    def cluster(self) -> Path:
        return self.root / "cluster"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def store(self) -> Path:
        """The folder that plays the shared file system; kept when the cluster goes, as the PV says."""
        return self.root / "store"

    @property
    def pulumi(self) -> Path:
        return self.root / "pulumi"

    @property
    def logs(self) -> Path:
        return self.cluster / "logs"

    @property
    def identity(self) -> str:
        """A short name for this cluster that no other checkout on the machine has: cgroups carry it."""
        return "triton-fleet-" + hashlib.sha256(str(self.root).encode()).hexdigest()[:8]


def default_state() -> State:
    return State(PROJECT / ".fleet")
