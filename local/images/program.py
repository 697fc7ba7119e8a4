"""A layer of one static program."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from local.errors import LocalError
from local.images import archive
from local.images.workshop import file_digest, program_digest

if TYPE_CHECKING:
    from pathlib import Path

    from local.images.archive import Layer
    from local.images.workshop import Workshop


@dataclass(frozen=True)
class Program:
    """The program `name`, at `path` of the image (its name, if None): given as a binary, or compiled from the Go file
    `source`.
    """

    code: ClassVar[tuple[str, ...]] = ("archive.py", "program.py")

    name: str
    source: str | None = None
    path: str | None = None

    def inputs(self, shop: Workshop) -> object:
        given = self._given(shop)
        return program_digest(given, shop.cache) if given else file_digest(shop.folder / (self.source or ""))

    def make(self, shop: Workshop, scratch: Path, tar: Path) -> Layer:
        tree = scratch / "tree"
        program = tree / (self.path or self.name)
        program.parent.mkdir(parents=True)
        shutil.copyfile(self._given(shop) or self._compiled(shop, scratch), program)
        program.chmod(0o755)
        return archive.write_layer(tree, tar, made_after_s=0)

    def _given(self, shop: Workshop) -> Path | None:
        given = shop.binaries.get(self.name)
        if given is None and self.source is None:
            raise LocalError(
                f"the image of {self.name} needs the program {self.name}, which was not given",
                fix=f"build it first (local/tools), or leave the image of {self.name} out",
            )
        return given

    def _compiled(self, shop: Workshop, scratch: Path) -> Path:
        go = shop.binaries.get("go") or shutil.which("go")
        if go is None:
            raise LocalError(
                f"the image of {self.name} is compiled from Go source, and there is no go on PATH",
                fix="install Go, or put the one that is installed on PATH",
            )
        source, program = shop.folder / str(self.source), scratch / "compiled"
        ended = subprocess.run(
            [str(go), "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o", str(program), str(source)],
            check=False,
            env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
            cwd=source.parent,
            capture_output=True,
            text=True,
        )
        if ended.returncode != 0:
            raise LocalError(
                f"{self.source} does not compile", fix="correct what go names above", details=ended.stderr.strip()
            )
        return program
