"""The real Pulumi engine with its real plugins, in a folder of its own, with nothing of the user's around it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local import toolchain

if TYPE_CHECKING:
    from collections.abc import Mapping

STACK = "local"
COMMAND_TIMEOUT_S = 240


@dataclass(frozen=True)
class Done:
    """A finished command."""

    status: int
    text: str
    """Standard output and standard error together."""


@dataclass(frozen=True)
class Engine:
    """One stack: the program in `program`, its state and the copy of its settings in `home`."""

    program: Path
    home: Path
    environment: Mapping[str, str]
    stack: str = STACK

    @property
    def settings_file(self) -> Path:
        return self.home / f"Pulumi.{self.stack}.yaml"

    def configure(self, config: Mapping[str, object]) -> None:
        """Sets the program's settings; what Pulumi itself wrote beside them stays."""
        document = yaml.safe_load(self.settings_file.read_text()) if self.settings_file.exists() else {}
        document["config"] = {f"triton-fleet:{key}": value for key, value in config.items()}
        self.settings_file.write_text(yaml.safe_dump(document))

    def run(self, command: str, *arguments: str, **environment: str) -> Done:
        """Runs pulumi on the stack."""
        return self._pulumi(self.program, command, f"--config-file={self.settings_file}", *arguments, **environment)

    def state(self) -> dict[str, Any]:
        """The stack's state as it lies on the disk, secrets encrypted."""
        document: dict[str, Any] = json.loads(self._pulumi(self.home, "stack", "export").text)
        return document

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, secrets in plain text."""
        document: dict[str, Any] = json.loads(
            self._pulumi(self.home, "stack", "output", "--json", "--show-secrets").text
        )
        return document

    def restore(self, document: Mapping[str, Any]) -> None:
        """Puts an edited state back."""
        path = self.home / "edited.json"
        path.write_text(json.dumps(document))
        done = self._pulumi(self.home, "stack", "import", f"--file={path}")
        assert done.status == 0, done.text

    def cancel(self) -> Done:
        """Takes away the lock of an update that was killed."""
        return self._pulumi(self.home, "cancel", "--yes")

    def open(self) -> None:
        """Makes the stack, which writes the salt of its secrets beside a Pulumi.yaml: the copy."""
        shutil.copy(self.program / "Pulumi.yaml", self.home)
        made = self._pulumi(self.home, "stack", "init")
        assert made.status == 0, made.text

    def _pulumi(self, folder: Path, *arguments: str, **environment: str) -> Done:
        done = subprocess.run(
            ["pulumi", *arguments, f"--stack={self.stack}", "--non-interactive", "--color=never"],
            cwd=folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout)


@pytest.fixture(scope="session")
def engine_path() -> str:
    """PATH with the engine, its plugins and this Python before everything else."""
    folders = [str(Path(sys.executable).parent), *toolchain.pulumi_path(print), os.environ.get("PATH", os.defpath)]
    return os.pathsep.join(folders)


def with_stand_ins(engine_path: str, project: Path) -> str:
    """PATH with the stand-ins for `aws` and `eks` too; this Python, which runs them, stays first."""
    python, _, rest = engine_path.partition(os.pathsep)
    return os.pathsep.join([python, str(project / "rehearsal" / "bin"), rest])


def engine(program: Path, home: Path, path: str, stack: str = STACK, **environment: str) -> Engine:
    """A stack without a cluster and with nothing of the user's: no home, no kubeconfig, no account."""
    for folder in ("home", "backend", "pulumi"):
        (home / folder).mkdir()
    made = Engine(
        program,
        home,
        {
            "PATH": path,
            "HOME": str(home / "home"),
            "KUBECONFIG": "/nowhere/kubeconfig",
            "PULUMI_BACKEND_URL": f"file://{home / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "engine tests",
            "PULUMI_HOME": str(home / "pulumi"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        },
        stack,
    )
    made.open()
    return made
