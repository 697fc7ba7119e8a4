"""Reads a model's folder in Triton's own layout: `config.pbtxt`, version folders, and what verification expects.

Layout: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_repository.html
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from fleet import protobuf_text
from fleet.faults import Fault, Refused, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CONFIG_FILE: Final = "config.pbtxt"
VERIFICATION_FILE: Final = "verification.json"
"""What a model must answer. Not shipped with the model, so that a new expectation restarts no pod."""
CONFIG_MAP_MAX_BYTES: Final = 1024 * 1024
"""Data of one ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/"""
NAMES_BYTES: Final = 24 * 1024
"""Left for the names of the files in that ConfigMap."""
FILES_MAX_BYTES: Final = CONFIG_MAP_MAX_BYTES - NAMES_BYTES
FILES_MAX: Final = 256
DIGEST_SHORT_CHARS: Final = 12

_FILE_NAME = re.compile(r"[-._A-Za-z0-9]+")
_VERSION = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the program needs of a `config.pbtxt`.

    `name` is empty where the file leaves it to the folder. `latest` is how many of the newest versions Triton serves
    (None: all), unless `specific` names them. `kinds` are those of the instance groups (`KIND_CPU`, `KIND_GPU` …).
    """

    name: str
    backend: str
    platform: str
    max_batch_size: int
    kinds: tuple[str, ...]
    latest: int | None
    specific: tuple[int, ...]
    parameters: Mapping[str, str]

    def serves(self, version: int, versions: Sequence[int]) -> bool:
        """Whether Triton serves `version` of a folder that holds `versions`."""
        if self.specific:
            return version in self.specific
        return self.latest is None or version in sorted(versions, reverse=True)[: self.latest]


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's folder: what is shipped to the store, and what verification expects.

    `files` maps paths inside the folder (`1/model.py`) to their content, sorted by path; `digest` is over both.
    """

    name: str
    config: ModelConfig
    versions: tuple[int, ...]
    files: Mapping[str, bytes]
    digest: str
    verification: bytes | None

    @property
    def digest12(self) -> str:
        """The digest as the store's folders carry it: 48 bits, so that no two of a fleet's contents share one."""
        return self.digest[:DIGEST_SHORT_CHARS]


def read(project: Path, repository: str, setting: str = "models[].repository") -> ModelFolder:
    """The folder `repository`, relative to `project`. Raises `Refused` with faults of `setting` if it is unfit."""
    folder = _inside(project, repository, setting)
    files = _files(folder, repository, setting)
    verification = files.pop(VERIFICATION_FILE, None)
    if CONFIG_FILE not in files:
        raise Refused(
            [
                Fault(
                    setting,
                    f"{repository}, without {CONFIG_FILE}",
                    f"a folder that holds {CONFIG_FILE}",
                    "Triton learns from it what the model takes, gives and needs",
                    f"write {repository}/{CONFIG_FILE}",
                )
            ]
        )
    try:
        config = parse_config(files[CONFIG_FILE].decode())
    except ValueError as error:
        raise Refused(
            [
                Fault(
                    setting,
                    f"{repository}/{CONFIG_FILE}: {error}",
                    "protobuf text of Triton's ModelConfig, UTF-8",
                    "Triton refuses to load a model whose configuration it cannot read",
                    f"correct {repository}/{CONFIG_FILE}",
                )
            ]
        ) from None
    tops = {PurePosixPath(path).parts[0] for path in files if "/" in path}
    return ModelFolder(
        name=folder.name,
        config=config,
        versions=tuple(sorted(int(top) for top in tops if _VERSION.fullmatch(top))),
        files=files,
        digest=digest(files),
        verification=verification,
    )


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 in hex over paths and contents in the order of the paths.

    Lengths keep the end of one file from being read as the beginning of the next.
    """
    total = hashlib.sha256()
    for path, content in sorted(files.items()):
        total.update(f"{len(path.encode())}:{path}:{len(content)}:".encode())
        total.update(content)
    return total.hexdigest()


def parse_config(text: str) -> ModelConfig:
    """A `config.pbtxt`. Raises `ValueError` with the line that is no protobuf text or the field of the wrong type."""
    message = protobuf_text.parse(text)
    policy = message.one("version_policy")
    groups = message.many("instance_group")
    return ModelConfig(
        name=message.text("name"),
        backend=message.text("backend"),
        platform=message.text("platform"),
        max_batch_size=message.number("max_batch_size", 0),
        kinds=tuple(group.word("kind", "KIND_AUTO") for group in groups),
        latest=None if "all" in policy.fields else max(policy.one("latest").number("num_versions", 1), 1),
        specific=policy.one("specific").numbers("versions"),
        parameters={
            parameter.text("key"): parameter.one("value").text("string_value")
            for parameter in message.many("parameters")
        },
    )


def _inside(project: Path, repository: str, setting: str) -> Path:
    """The folder, which stands inside the project and is reached by no link."""
    path = PurePosixPath(repository)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Refused(
            [
                Fault(
                    setting,
                    shown(repository),
                    "a folder inside the project, relative to it, without '..'",
                    "what is served is what was reviewed: the project's own files",
                    "move the model's folder into model_repo/ and name it from there",
                )
            ]
        )
    folder = project
    try:
        for part in path.parts:
            folder /= part
            if stat.S_ISLNK(folder.lstat().st_mode):
                raise Refused([_link(setting, folder.relative_to(project).as_posix())])
        there = "there" if folder.is_dir() else "no folder"
    except (OSError, ValueError):
        there = "not there"
    if there != "there":
        raise Refused(
            [
                Fault(
                    setting,
                    f"{shown(repository)}, which is {there}",
                    "a folder in Triton's model repository layout",
                    "the program ships that folder into the store",
                    f"make the folder with {CONFIG_FILE} and a version folder in it, or correct the setting",
                )
            ]
        )
    return folder


def _files(folder: Path, repository: str, setting: str) -> dict[str, bytes]:
    """Content by path. Hidden files and Python's caches are no part of a model."""
    faults: list[Fault] = []
    paths: list[Path] = []
    try:
        for root, folders, files in os.walk(folder, onerror=_raise):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            paths += [Path(root) / name for name in [*folders, *files] if not name.startswith(".")]
            folders[:] = [name for name in folders if not name.startswith(".")]
        named = {path.relative_to(folder).as_posix(): path for path in sorted(paths)}
        modes = {relative: path.lstat() for relative, path in named.items()}
        regular = {relative: path for relative, path in named.items() if stat.S_ISREG(modes[relative].st_mode)}
        for relative in named:
            faults += _unfit(setting, f"{repository}/{relative}", modes[relative].st_mode)
        size = sum(modes[relative].st_size for relative in regular)
        if size > FILES_MAX_BYTES or len(regular) > FILES_MAX:
            faults.append(_too_much(setting, repository, len(regular), size))
        if not faults:
            return {relative: path.read_bytes() for relative, path in regular.items()}
    except OSError as error:
        faults.append(_unreadable(setting, repository, error))
    raise Refused(faults)


def _raise(error: OSError) -> None:
    raise error


def _unfit(setting: str, path: str, mode: int) -> Iterator[Fault]:
    if _FILE_NAME.fullmatch(PurePosixPath(path).name) is None:
        yield _odd_name(setting, path)
    if stat.S_ISLNK(mode):
        yield _link(setting, path)
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        yield _special(setting, path)


def _too_much(setting: str, repository: str, files: int, size: int) -> Fault:
    return Fault(
        setting,
        f"{repository}: {files} files of {size} bytes",
        f"{FILES_MAX} files of {FILES_MAX_BYTES} bytes",
        "the files reach the store through a ConfigMap, which Kubernetes limits to 1 MiB",
        "keep weights out of the folder: put them into the image and name their path by a parameter in config.pbtxt",
    )


def _link(setting: str, path: str) -> Fault:
    return Fault(
        setting,
        f"{shown(path)}, a link",
        "files and folders, no links",
        "a link may point outside the project, and points nowhere once it is shipped",
        "put the file itself there",
    )


def _odd_name(setting: str, path: str) -> Fault:
    return Fault(
        setting,
        shown(path),
        "names of ASCII letters, digits, '-', '_' and '.'",
        "files travel as keys of a ConfigMap, which allows no others",
        "rename the file",
    )


def _special(setting: str, path: str) -> Fault:
    return Fault(
        setting,
        f"{shown(path)}, neither a file nor a folder",
        "files and folders",
        "the program ships contents, and a pipe, socket or device has none to ship",
        "remove it",
    )


def _unreadable(setting: str, repository: str, error: OSError) -> Fault:
    return Fault(
        setting,
        f"{repository}: {error.strerror}",
        "files that the program may read",
        "the program ships their contents",
        "correct the permissions",
    )
