"""`make images PUSH=<registry>`: images of our own programs, built by buildah without a daemon, and pushed.

A tag says what an image was made from, so a tag that the registry has is not built or pushed again (ECR refuses to,
where tags do not move). The digest is the registry's: settings name images by it.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet import own_images
from fleet.load import job
from local import packages, toolchain
from local.errors import LocalError
from local.images import archive, build
from local.images.recipes import TOOLS
from local.state import PROJECT, cache_folder, held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Progress = Callable[[str], None]

REPORT = PROJECT / "reports" / "images.json"
BUILDAH = {"buildah": "buildah"}
COMMAND_TIMEOUT_S = 1200
TAG_CHARS = 12
_REGISTRY = re.compile(
    r"(?P<host>(localhost|[a-z0-9-]+(\.[a-z0-9-]+)+|\[[0-9a-f:]+\]|[a-z0-9-]+(?=:))(:[0-9]{1,5})?)"
    r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
)
_BASE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_UNREACHED = re.compile(r"connection refused|no such host|i/o timeout|no route to host|x509:|HTTP response to HTTPS")
"""What Go's clients say of a registry that no image can be pushed to; others may answer thus before a first push."""


@dataclass(frozen=True)
class Program:
    """A program of ours: its folder in services/, and every file that its image is made from."""

    name: str
    inputs: tuple[str, ...]

    @property
    def containerfile(self) -> str:
        return f"services/{own_images.SETTINGS[self.name]}/Containerfile"

    @property
    def files(self) -> tuple[str, ...]:
        return (self.containerfile, *self.inputs)


PROGRAMS = (
    Program(own_images.MODEL_STORE, ("services/model_store/fill.py",)),
    Program(
        own_images.VERIFICATION,
        ("services/verification/program.py", "local/images/base.txt", "local/images/tools.txt"),
    ),
    Program(own_images.LOAD, ("requirements/load.txt", *job.FILES)),
)


@dataclass(frozen=True)
class Pushed:
    """An image in a registry: by tag, for people, and by digest, for the setting `images.<setting>`."""

    setting: str
    tag: str
    image: str


def images(registry: str, base: str | None, progress: Progress) -> list[Pushed]:
    """Builds and pushes what the registry lacks; prints the settings, and writes `reports/images.json`.

    `base` is an image with Python, by digest; without one, the image of tools is made here and built on.
    """
    place = destination(registry)
    require_pinned(base)
    _require_buildah(progress)
    with _shop(place, progress) as shop:
        root = Base.of(base, progress)
        pushed = [_push(program, root, shop, progress) for program in PROGRAMS]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([asdict(each) for each in pushed], indent=2) + "\n")
    print("\nfor the stack file, below triton-fleet:images:")
    for each in pushed:
        print(f"  {each.setting}: {each.image}")
    return pushed


def _require_buildah(progress: Progress) -> None:
    if packages.missing(BUILDAH) and shutil.which("apt-get", path=packages.SEARCH) is None:
        raise LocalError(
            "images are built with buildah, which is missing, and there is no apt to install it",
            fix="install buildah by this system's own means, and run the same command again",
        )
    packages.ensure(progress, BUILDAH)


def destination(registry: str) -> str:
    """The registry, or a folder of one, as an image's name begins with it."""
    place = registry.rstrip("/")
    if _REGISTRY.fullmatch(place) is None:
        raise LocalError(
            f"PUSH={registry}: this is no registry",
            fix="name its host, with port and folder where it has them: PUSH=registry.example.com/team",
        )
    return place


def require_pinned(base: str | None) -> None:
    if base is not None and _BASE.fullmatch(base) is None:
        raise LocalError(
            f"BASE={base}: the base must be named by digest, or two builds could have two bases",
            fix="add the digest: BASE=<image>@sha256:<64 hexadecimal digits>; or leave BASE out, and it is made here",
        )


def tls(image: str) -> str:
    """The argument for buildah: only a registry on this machine, where nobody listens in, may speak plain HTTP."""
    host = re.sub(r":[0-9]+$", "", image.partition("/")[0]).strip("[]")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    return f"--tls-verify={'false' if loopback else 'true'}"


def tag(program: Program, base: str, project: Path = PROJECT) -> str:
    """A digest of all that the image is made from."""
    made_from = [program.name, base, platform.machine()]
    made_from += [f"{name}:{hashlib.sha256((project / name).read_bytes()).hexdigest()}" for name in program.files]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:TAG_CHARS]


@dataclass(frozen=True)
class Base:
    """What the images are built on: `name` says what it is, `source` is where buildah finds it."""

    name: str
    source: str

    @classmethod
    def of(cls, given: str | None, progress: Progress) -> Base:
        if given is not None:
            return cls(given, f"docker://{given}")
        packages.require_machine()
        packages.ensure(progress)
        go = Path(toolchain.go_program(progress))
        (tools,) = build.ensure(cache_folder(), [TOOLS], progress, {"go": go})
        return cls(tools.key, f"docker-archive:{tools.archive}")


@dataclass
class Shop:
    """buildah with storage of its own, and the registry. `base` is the base's ID once it is in the storage."""

    storage: Path
    place: str
    base: str | None = None

    def run(self, *arguments: str) -> str:
        done = self.tried(*arguments)
        if done.returncode != 0:
            raise self.failure(arguments[0], done)
        return done.stdout.strip()

    def failure(self, step: str, done: subprocess.CompletedProcess[str]) -> LocalError:
        return LocalError(
            f"`buildah {step}` failed with status {done.returncode}",
            details=(done.stdout + done.stderr).strip()[-1500:],
            fix=f"check that {self.place} is reached and lets you in (`buildah login`); docs/images.md has it for ECR",
        )

    def tried(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = ["buildah", "--storage-driver=vfs", f"--root={self.storage}/root", f"--runroot={self.storage}/run"]
        return subprocess.run(
            [*argv, *arguments],
            cwd=self.storage,
            # chroot needs no rights that a container lacks, so this works in CI's containers too.
            env={**os.environ, "BUILDAH_ISOLATION": "chroot", "PATH": packages.SEARCH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def there(self, ref: str) -> str | None:
        """The digest under which the registry has it already; only its manifest is fetched."""
        lookup = f"lookup-{hashlib.sha256(ref.encode()).hexdigest()[:TAG_CHARS]}"
        self.run("manifest", "create", lookup)
        found = self.tried("manifest", "add", tls(ref), lookup, f"docker://{ref}")
        self.run("manifest", "rm", lookup)
        if _UNREACHED.search(found.stderr):
            raise self.failure("manifest", found)
        digest = _DIGEST.findall(found.stdout)
        return digest[-1] if found.returncode == 0 and digest else None


def _push(program: Program, base: Base, shop: Shop, progress: Progress) -> Pushed:
    repository = own_images.repository(shop.place, program.name)
    ref = f"{repository}:{tag(program, base.name)}"
    digest = shop.there(ref)
    if digest is not None:
        progress(f"image {ref}: the registry has it")
    else:
        if shop.base is None:
            progress("images: fetching the base")
            shop.base = shop.run("pull", "--quiet", tls(base.name), base.source)
        progress(f"image {ref}: building it")
        made = _build(program, shop.base, shop)
        progress(f"image {ref}: pushing it")
        digest = _send(made, ref, shop)
    return Pushed(own_images.SETTINGS[program.name], ref, f"{repository}@{digest}")


def _build(program: Program, base: str, shop: Shop) -> str:
    """The image's ID. The build sees the files that the tag is made of, and no others."""
    with tempfile.TemporaryDirectory(dir=shop.storage) as scratch:
        context = Path(scratch, "context")
        for name in program.files:
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / name, context / name)
        id_file = Path(scratch, "id")
        shop.run(
            "build",
            "--pull=never",
            f"--timestamp={archive.EPOCH_S}",
            f"--iidfile={id_file}",
            f"--build-arg=BASE={base}",
            f"--file={context / program.containerfile}",
            str(context),
        )
        return id_file.read_text().strip()


def _send(made: str, ref: str, shop: Shop) -> str:
    with tempfile.TemporaryDirectory(dir=shop.storage) as scratch:
        digest_file = Path(scratch, "digest")
        shop.run("push", "--quiet", tls(ref), f"--digestfile={digest_file}", made, f"docker://{ref}")
        return digest_file.read_text().strip()


@contextlib.contextmanager
def _shop(place: str, progress: Progress) -> Iterator[Shop]:
    """Storage that is gone afterwards: vfs keeps a full copy per layer. One push at a time in a cache."""
    cache = cache_folder()
    storage = cache / "buildah"
    with held(cache / "buildah.lock", lambda: progress("images: waiting for another push from this machine")):
        shutil.rmtree(storage, ignore_errors=True)
        storage.mkdir()
        try:
            yield Shop(storage, place)
        finally:
            shutil.rmtree(storage, ignore_errors=True)
