"""Run the Pulumi program on a stack whose state lies in the project's own folder: no account, no service."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from local import toolchain
from local.errors import LocalError
from local.state import PROJECT, State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CLUSTER_VARIABLE = "TRITON_FLEET_CLUSTER"
"""Read once by __main__.py: the kubeconfig file that replaces the stack's own."""
NOT_PASSED_ON = (
    "KUBECONFIG",
    "PULUMI_BACKEND_URL",
    "PULUMI_CONFIG_PASSPHRASE",
    "PULUMI_ACCESS_TOKEN",
    "PULUMI_STACK",
    CLUSTER_VARIABLE,
)
"""What a shell may have set for other work must neither be used nor changed."""
VERIFICATION_TYPE = "pulumi-python:dynamic/triton-fleet:Verification"


@dataclass(frozen=True)
class Stack:
    """One stack and where its state is.

    `home` holds backend, passphrase, and in `project` the working copy of the stack's settings: Pulumi writes the
    salt of a stack's secrets into its settings file, and the tracked file is not its to write to.
    """

    name: str
    home: Path
    kubeconfig: Path | None
    environment: Mapping[str, str]

    @property
    def settings_file(self) -> Path:
        return self.home / "project" / f"Pulumi.{self.name}.yaml"

    def pulumi(
        self, *arguments: str, folder: Path | None = None, capture: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run pulumi in the project; its output goes to the terminal, with its live view, unless captured."""
        plain = [] if sys.stdout.isatty() and not capture else ["--non-interactive"]
        return subprocess.run(
            [toolchain_program(self.environment), *arguments, *plain, f"--stack={self.name}"],
            cwd=folder or self.settings_file.parent,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            capture_output=capture,
            text=True,
            check=False,
        )

    def with_settings(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that reads settings, without the engine's own check of them: it stops at the first fault."""
        return self.pulumi(
            command, f"--config-file={self.settings_file}", "--skip-config-validation", *arguments, folder=PROJECT
        )


def toolchain_program(environment: Mapping[str, str]) -> str:
    """The pulumi that the environment's PATH finds first; `_environment` has put one there."""
    return shutil.which("pulumi", path=environment["PATH"]) or "pulumi"


def backend_home(state: State, cluster: Path | None) -> Path:
    """The folder of a stack's state. Each cluster has its own: a stack's state is true of one cluster only.

    A cluster is told apart by its servers, not by the file that names them.
    """
    if cluster is None:
        return state.pulumi / "embedded"
    document = yaml.safe_load(cluster.read_text())
    servers = sorted(str(entry["cluster"]["server"]) for entry in document["clusters"])
    return state.pulumi / hashlib.sha256(json.dumps(servers).encode()).hexdigest()[:12]


def open_stack(
    name: str,
    state: State,
    progress: Callable[[str], None],
    *,
    cluster: Path | None = None,
    kubeconfig: Path | None = None,
    project: Path = PROJECT,
) -> Stack:
    """Make or find the stack `name`. `kubeconfig` is the cluster to deploy on, None for a preview without one."""
    tracked = project / f"Pulumi.{name}.yaml"
    if not tracked.exists():
        known = ", ".join(sorted(path.name.split(".")[1] for path in project.glob("Pulumi.*.yaml")))
        raise LocalError(f"there is no stack {name!r}: {tracked.name} does not exist", fix=f"use one of: {known}")
    home = backend_home(state, cluster)
    (home / "backend").mkdir(parents=True, exist_ok=True)
    environment = _environment(home, progress)
    if kubeconfig is not None:
        environment[CLUSTER_VARIABLE] = str(kubeconfig)
    stack = Stack(name, home, kubeconfig, environment)
    stack.settings_file.parent.mkdir(exist_ok=True)
    shutil.copyfile(project / "Pulumi.yaml", stack.settings_file.parent / "Pulumi.yaml")
    _working_copy(tracked, stack.settings_file)
    made = stack.pulumi("stack", "select", "--create", capture=True)
    if made.returncode != 0:
        raise LocalError(f"the stack {name} could not be opened", details=made.stderr.strip(), fix=f"look into {home}")
    if any((home / "backend" / ".pulumi" / "locks").rglob("*.json")):
        # Our own lock is held, so the one that Pulumi left belongs to a process that died.
        progress("pulumi: an interrupted update left its lock; removing it")
        stack.pulumi("cancel", "--yes", capture=True)
    return stack


def _environment(home: Path, progress: Callable[[str], None]) -> dict[str, str]:
    passphrase = home / "passphrase"
    if not passphrase.exists():
        descriptor = os.open(passphrase, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
    kept = {key: value for key, value in os.environ.items() if key not in NOT_PASSED_ON}
    return {
        **kept,
        # The language host that can be built does not hear of the project's virtual environment: it runs the
        # first python on PATH, which is the one that runs this.
        "PATH": os.pathsep.join(
            [str(Path(sys.executable).parent), *toolchain.pulumi_path(progress), kept.get("PATH", os.defpath)]
        ),
        "PULUMI_BACKEND_URL": f"file://{home / 'backend'}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
        "PULUMI_HOME": str(home / "home"),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        # Every plugin is on PATH; without this a missing one is looked for on the internet, slowly.
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }


def _working_copy(tracked: Path, copy: Path) -> None:
    """Bring the copy up to the tracked settings; what Pulumi wrote into it stays."""
    settings: dict[str, Any] = yaml.safe_load(tracked.read_text()) or {}
    if copy.exists():
        old = yaml.safe_load(copy.read_text()) or {}
        settings |= {key: old[key] for key in ("encryptionsalt", "secretsprovider") if key in old}
    copy.write_text(yaml.safe_dump(settings, sort_keys=False))


def exported(stack: Stack) -> dict[str, Any]:
    """The stack's state with its secrets in plain text; keep it out of files that stay."""
    done = stack.pulumi("stack", "export", "--show-secrets", capture=True)
    if done.returncode != 0:
        raise LocalError(
            f"the state of stack {stack.name} could not be read", details=done.stderr.strip(), fix="make up"
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def outputs(stack: Stack) -> dict[str, Any]:
    done = stack.pulumi("stack", "output", "--json", capture=True)
    if done.returncode != 0:
        raise LocalError(
            f"the outputs of stack {stack.name} could not be read", details=done.stderr.strip(), fix="make up"
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document
