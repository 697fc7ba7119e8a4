"""Triton from our own image, by itself on this machine: no cluster, namespaces of its own, chosen cores.

It listens on loopback. What its container would have in a pod it has here: the image's files and environment, its
user, a `/tmp` and a `/dev/shm` of its own, and the model repository that nobody writes to.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import tarfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from local.errors import LocalError
from local.images.recipes import RECIPES, RUN_AS, TRITON

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from local.images.build import Image

ADDRESS: Final = "127.0.0.1"
START_S: Final = 60
CALL_S: Final = 60
"""A model is loaded, and the one before it unloaded, within a call."""
MODELS: Final = "/models"
# $1 is the root, $2 the model repository, $3 user and group; what follows is run. The shell stays as process 1: a
# process that becomes another user's is no longer ended with its parent (prctl(2), PR_SET_PDEATHSIG).
MOUNTS: Final = """
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
mount -t tmpfs -o mode=1777 tmp "$1/tmp"
mkdir -p "$1/models"
mount --bind "$2" "$1/models"
mount -o remount,bind,ro "$1/models"
root=$1 user=$3
shift 3
chroot --userspec="$user" "$root" "$@" &
wait $!
"""


class RefusedError(Exception):
    """Triton answered with something else than what was asked for, or not at all; the text says what it said."""


@dataclass(frozen=True, slots=True)
class Server:
    """A Triton that runs, as `pid` and what descends from it."""

    port: int
    pid: int

    def get(self, path: str) -> Any:  # noqa: ANN401 - whatever the JSON holds
        return self._call("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401
        return self._call("POST", path, json.dumps(body))

    def load(self, model: str) -> None:
        """Loads the model as its folder is now; it then serves."""
        self.post(f"/v2/repository/models/{model}/load", {})

    def _call(self, method: str, path: str, body: str | None) -> Any:  # noqa: ANN401
        connection = http.client.HTTPConnection(ADDRESS, self.port, timeout=CALL_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError(f"{method} {path}: no answer: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise RefusedError(f"{method} {path}: HTTP {answer.status}: {said.decode(errors='replace')[:500]}")
        return json.loads(said or b"{}")


def unpack(image: Image, root: Path) -> None:
    """The image's files, as its layers lie on one another; our layers take nothing away."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    with tarfile.open(image.archive) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None  # noqa: S101 - it is a file
        for name in json.load(manifest)[0]["Layers"]:
            layer = archive.extractfile(name)
            assert layer is not None  # noqa: S101 - it is a file
            # tar itself: it keeps owners, modes and hard links, and is quick.
            with subprocess.Popen(["tar", "-x", "-C", str(root)], stdin=subprocess.PIPE) as tar:
                assert tar.stdin is not None  # noqa: S101 - it is a pipe
                shutil.copyfileobj(layer, tar.stdin, 1 << 20)
            if tar.returncode != 0:
                raise LocalError(f"{image.ref} could not be unpacked to {root}", fix="look at the disk with `df -h`")


@contextmanager
def serving(root: Path, models: Path, log: Path, cores: Collection[int], threads: int) -> Iterator[Server]:
    """Triton on these cores, with no model loaded; `threads` are for each instance's linear algebra."""
    port = _free_port()
    image = next(recipe for recipe in RECIPES if recipe.ref == TRITON).settings
    environment = {**image.env, "OPENBLAS_NUM_THREADS": str(threads)}
    with log.open("w") as said:
        # It ends with this process, however that ends, and all that it started and mounted with it.
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "KILL"),
                *("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child"),
                *("taskset", "--cpu-list", ",".join(map(str, sorted(cores)))),
                *("sh", "-ec", MOUNTS, "sh", str(root), str(models), f"{RUN_AS}:{RUN_AS}"),
                *("tritonserver", f"--model-repository={MODELS}", "--model-control-mode=explicit"),
                *(f"--http-address={ADDRESS}", f"--http-port={port}", "--allow-grpc=false", "--allow-metrics=false"),
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        server = Server(port, process.pid)
        _wait(server, process, log)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            server.get("/v2")
        except RefusedError as error:
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            raise LocalError(
                f"Triton did not start: {error}",
                details=log.read_text(errors="replace")[-2000:],
                fix="correct what it names, then run the command again",
            ) from error
        return


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((ADDRESS, 0))
        return int(free.getsockname()[1])
