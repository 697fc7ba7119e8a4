"""Run the Pulumi program on a stack whose state lies in the project's own folder: no account, no service."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fleet import names
from local import toolchain, turns
from local.errors import LocalError
from local.state import PROJECT, State
from rehearsal import existing
from rehearsal.ledger import Ledger

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping

CLUSTER_VARIABLE = "TRITON_FLEET_CLUSTER"
"""Read once by __main__.py: the kubeconfig file that replaces the stack's own."""
NOT_PASSED_ON = (
    "KUBECONFIG",
    "PULUMI_BACKEND_URL",
    "PULUMI_CONFIG_PASSPHRASE",
    "PULUMI_ACCESS_TOKEN",
    "PULUMI_STACK",
    "PULUMI_DEBUG_GRPC",
    CLUSTER_VARIABLE,
)
"""What a shell may have set for other work must neither be used nor changed."""
PROJECT_NAME = "triton-fleet"
"""As Pulumi.yaml names it: a folder in the backend."""
STACK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
"""Names that Pulumi takes for a stack: https://www.pulumi.com/docs/iac/concepts/stacks/"""
TOP_LEVEL = ("config", "secretsprovider", "encryptionsalt", "encryptedkey", "environment")
"""What a stack file holds: https://www.pulumi.com/docs/iac/concepts/projects/stack-settings-file/"""
PLACEHOLDER = "https://placeholder-of-a-secret.invalid"
"""Stands offline for every value that the stack file holds encrypted: its key is elsewhere. A URL passes where one is
wanted, and where any text is."""
OFFLINE_CLUSTER = ".fleet/offline/kubeconfig"
"""A file that is never there: an offline plan is that of a first update, whatever runs on this machine."""
NAMESPACE = names.CONFIG_NAMESPACE
VERIFICATION_TYPE = "pulumi-python:dynamic/triton-fleet:Verification"


NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What PyYAML raises of a text that it cannot read: also of bytes that are no text, of a month 13, of a number of
thousands of digits, and of thousands of brackets within one another.
"""
Settings = dict[str, Any]
"""A stack file's `config`: Pulumi's keys, `<namespace>:<name>`."""


@dataclass(frozen=True)
class Rehearsed:
    """A stack without its account: stand-in plugins, and what takes the place of what only the account has.

    `account` is the folder in which the stand-ins keep what they "created", `kubeconfig` the cluster that theirs is
    played by; at a preview there is none. `substitute` makes the rehearsed settings from the stack file's.
    """

    account: Path
    kubeconfig: Path
    substitute: Callable[[Settings], Settings] | None = None
    plans_only: bool = False
    """Nothing is ever made: the engine need not write its state after each step, which takes the square of them."""


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
        return turns.run(
            [toolchain_program(self.environment), *arguments, *plain, f"--stack={self.name}"],
            folder=folder or self.settings_file.parent,
            environment=self.environment,
            capture=capture,
        )

    def with_settings(self, command: str, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command that reads settings, without the engine's own check of them: it stops at the first fault."""
        settings = (f"--config-file={self.settings_file}", "--skip-config-validation")
        return self.pulumi(command, *settings, *arguments, folder=PROJECT, capture=capture)


def toolchain_program(environment: Mapping[str, str]) -> str:
    """The pulumi that the environment's PATH finds first; `_environment` has put one there."""
    return shutil.which("pulumi", path=environment["PATH"]) or "pulumi"


def backend_home(state: State, cluster: Path | None) -> Path:
    """The folder of a stack's state. Each cluster has its own: a stack's state is true of one cluster only.

    A cluster is told apart by its servers, not by the file that names them.
    """
    if cluster is None:
        return state.pulumi / "embedded"
    return state.pulumi / hashlib.sha256(json.dumps(sorted(servers(cluster))).encode()).hexdigest()[:12]


def servers(kubeconfig: Path) -> list[str]:
    """The servers of the clusters that a kubeconfig file names."""
    return [str(entry["cluster"]["server"]) for entry in yaml.safe_load(kubeconfig.read_text())["clusters"]]


def known_stacks(project: Path = PROJECT) -> list[str]:
    """The stacks that have a file of settings, sorted."""
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in project.glob("Pulumi.*.yaml"))


def tracked_settings(name: str, project: Path = PROJECT) -> Path:
    """The stack file; raises `LocalError` where there is none, or where the name could be none's."""
    if not STACK_NAME.fullmatch(name):
        raise LocalError(
            f"STACK={name!r} is no name of a stack: letters, digits, hyphens, underscores and periods, at most 100",
            fix=f"use one of: {', '.join(known_stacks(project))}",
        )
    tracked = project / f"Pulumi.{name}.yaml"
    if not tracked.is_file():
        known = known_stacks(project)
        plain = name.lower().removeprefix("pulumi.").removesuffix(".yaml")
        close = difflib.get_close_matches(plain, known, n=1)
        raise LocalError(
            f"there is no stack {name!r}: {tracked.name} does not exist",
            fix=f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(known)}",
        )
    return tracked


def open_stack(
    name: str,
    state: State,
    progress: Callable[[str], None],
    *,
    cluster: Path | None = None,
    kubeconfig: Path | None = None,
    rehearsed: Rehearsed | None = None,
    project: Path = PROJECT,
) -> Stack:
    """Make or find the stack `name`. `kubeconfig` is the cluster to deploy on, None for a preview without one.

    With `rehearsed` nothing outside of this machine is asked, and nothing of the stack's real state is used.
    """
    tracked = tracked_settings(name, project)
    home = backend_home(state, cluster)
    (home / "backend").mkdir(parents=True, exist_ok=True)
    environment = _environment(home, progress)
    if kubeconfig is not None:
        environment[CLUSTER_VARIABLE] = str(kubeconfig)
    if rehearsed is not None:
        environment |= _stand_ins(rehearsed, environment["PATH"])
    stack = Stack(name, home, kubeconfig, environment)
    stack.settings_file.parent.mkdir(exist_ok=True)
    shutil.copyfile(project / "Pulumi.yaml", stack.settings_file.parent / "Pulumi.yaml")
    secure = _working_copy(tracked, stack.settings_file, rehearsed)
    made = stack.pulumi("stack", "select", "--create", capture=True)
    if made.returncode != 0:
        raise LocalError(f"the stack {name} could not be opened", details=made.stderr.strip(), fix=f"look into {home}")
    if secure:
        _encrypt_placeholders(stack, secure, progress)
    if rehearsed is not None:
        for line in _play_what_exists(name, rehearsed, read_settings(stack.settings_file).get("config") or {}):
            progress(f"stand-ins: {line}")
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


def _stand_ins(rehearsed: Rehearsed, path: str) -> dict[str, str]:
    """The stand-in plugins before all others, and what they are told by; no credentials, real or not."""
    folders = sorted({str(plugin.parent) for plugin in (PROJECT / "rehearsal").rglob("pulumi-resource-*")})
    rehearsed.account.mkdir(parents=True, exist_ok=True)
    return {
        **({"PULUMI_SKIP_CHECKPOINTS": "true"} if rehearsed.plans_only else {}),
        "PATH": os.pathsep.join([*folders, path]),
        "TRITON_FLEET_ACCOUNT": str(rehearsed.account),
        "TRITON_FLEET_REHEARSAL_KUBECONFIG": str(rehearsed.kubeconfig),
    }


def _play_what_exists(name: str, rehearsed: Rehearsed, config: Settings) -> list[str]:
    """What the stack file names in its account is there for the stand-ins too; returns what was made up."""
    endpoint = authority = ""
    if rehearsed.kubeconfig.exists():
        (here,) = yaml.safe_load(rehearsed.kubeconfig.read_text())["clusters"]
        endpoint, authority = here["cluster"]["server"], here["cluster"]["certificate-authority-data"]
    with Ledger(rehearsed.account, name).opened() as account:
        return existing.play(account, config, endpoint, authority)


class _Loader(yaml.SafeLoader):
    """YAML in which each name stands once, as Pulumi wants it: with the last of two, one would silently do nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as in the base
        found: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in found:
                    text = f"{key.value!r} stands there twice"
                    raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
                found.add(key.value)
        return super().construct_mapping(node, deep)


def read_settings(tracked: Path) -> dict[str, Any]:
    """A stack file as it was written, keys of its `config` in full; LocalError where Pulumi would not read it."""
    try:
        settings = yaml.load(tracked.read_text(), _Loader)  # noqa: S506 - a safe loader
    except NOT_YAML as error:
        raise LocalError(f"{tracked.name} is no YAML: {error}", fix="correct the line that it names") from error
    settings = {} if settings is None else settings
    config = settings.get("config") if isinstance(settings, dict) else settings
    if not isinstance(settings, dict) or not (config is None or isinstance(config, dict)):
        raise LocalError(
            f"{tracked.name} holds a {type(config).__name__} where settings by name are expected",
            fix="write the settings below `config:`, as docs/settings.md shows",
        )
    strange = sorted(str(key) for key in settings if key not in TOP_LEVEL)
    if strange:
        raise LocalError(
            f"{tracked.name} holds {', '.join(strange)}, of which nothing is read",
            fix=f"at the top of a stack file stand {', '.join(TOP_LEVEL)} alone; settings stand below config",
        )
    if not config:
        return settings
    faulty = list(_no_json(config, ""))
    if faulty:
        raise LocalError(
            f"{tracked.name} holds values that no setting can have: {'; '.join(faulty)}",
            fix="correct them; a text that YAML reads as something else, a date for example, goes in quotes",
        )
    full = {(key if ":" in str(key) else f"{NAMESPACE}:{key}"): value for key, value in config.items()}
    return {**settings, "config": full}


def _no_json(value: object, path: str) -> Iterator[str]:
    """What YAML has and settings, which travel as JSON, have not: path and value."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _no_json(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _no_json(one, f"{path}[{index}]")
    elif not (value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value))):
        yield f"{path}: {value}"


def _working_copy(tracked: Path, copy: Path, rehearsed: Rehearsed | None = None) -> dict[str, str]:
    """Bring the copy up to the tracked settings; what Pulumi wrote into it stays.

    A rehearsed stack has a key of its own: its encrypted values become placeholders, returned by path.
    """
    settings = read_settings(tracked)
    secure: dict[str, str] = {}
    kept: tuple[str, ...] = ("encryptionsalt", "secretsprovider")
    if rehearsed is not None:
        config: Settings = settings.get("config") or {}
        secure = {path: f"{PLACEHOLDER}/{path}" for path in secure_paths(config)}
        config = without_secure(config)
        settings = {"config": rehearsed.substitute(config) if rehearsed.substitute else config}
        kept = ("encryptionsalt",)
    if copy.exists():
        old = yaml.safe_load(copy.read_text()) or {}
        settings |= {key: old[key] for key in kept if key in old}
    copy.write_text(yaml.safe_dump(settings, sort_keys=False))
    return secure


def without_cluster(config: Settings) -> Settings:
    """Settings whose kubeconfig file, if they name one, is not there."""
    key = f"{NAMESPACE}:cluster"
    cluster = config.get(key)
    if not isinstance(cluster, dict) or "kubeconfig" not in cluster:
        return config
    return {**config, key: {**cluster, "kubeconfig": OFFLINE_CLUSTER}}


def secure_paths(config: object, path: str = "") -> list[str]:
    """Where a configuration holds encrypted values, as `pulumi config set --path` writes paths."""
    return list(_secure_paths(config, path))


def _secure_paths(value: object, path: str) -> Iterator[str]:
    if _is_secure(value):
        yield path
    elif isinstance(value, dict):
        for key, one in value.items():
            plain = not path or str(key).isidentifier()
            step = (f".{key}" if path else str(key)) if plain else f"[{json.dumps(str(key))}]"
            yield from _secure_paths(one, f"{path}{step}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _secure_paths(one, f"{path}[{index}]")


def without_secure(value: Any) -> Any:  # noqa: ANN401 - any YAML
    """A configuration with placeholders for its encrypted values."""
    if _is_secure(value):
        return PLACEHOLDER
    if isinstance(value, dict):
        return {key: without_secure(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_secure(one) for one in value]
    return value


def _is_secure(value: object) -> bool:
    """Whether this is what Pulumi writes for an encrypted value: one key, `secure`, with a text."""
    return isinstance(value, dict) and set(value) == {"secure"} and isinstance(value["secure"], str)


def _encrypt_placeholders(stack: Stack, secure: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Placeholders are secrets as what they stand for is: what must not be shown is seen to be hidden."""
    progress(f"settings: {len(secure)} encrypted values are replaced by placeholders: {', '.join(secure)}")
    pairs = [argument for path, text in secure.items() for argument in ("--secret", f"{path}={text}")]
    done = stack.pulumi("config", "set-all", "--path", f"--config-file={stack.settings_file}", *pairs, capture=True)
    if done.returncode != 0:
        raise LocalError(
            f"the placeholders of stack {stack.name} could not be encrypted",
            details=done.stderr.strip(),
            fix=f"look into {stack.settings_file}",
        )


def exported(stack: Stack, *, secrets: bool = True) -> dict[str, Any]:
    """The stack's state, with `secrets` in plain text: keep that out of files that stay."""
    done = stack.pulumi("stack", "export", *(["--show-secrets"] * secrets), capture=True)
    if done.returncode != 0:
        raise LocalError(
            f"the state of stack {stack.name} could not be read", details=done.stderr.strip(), fix="make up"
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def imported(stack: Stack, document: Mapping[str, Any]) -> None:
    """Puts a state, its secrets encrypted, in place of the stack's; pulumi drops what is pending in it."""
    path = stack.home / "state.json"
    path.write_text(json.dumps(document))
    try:
        done = stack.pulumi("stack", "import", f"--file={path}", capture=True)
    finally:
        path.unlink()
    if done.returncode != 0:
        raise LocalError(
            f"the state of stack {stack.name} could not be put back", details=done.stderr.strip(), fix="make up again"
        )


def outputs(stack: Stack) -> dict[str, Any]:
    done = stack.pulumi("stack", "output", "--json", capture=True)
    if done.returncode != 0:
        raise LocalError(
            f"the outputs of stack {stack.name} could not be read", details=done.stderr.strip(), fix="make up"
        )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def planned(stack: Stack, record: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A preview as JSON, and the lines of the engine's record of calls, which is removed: it holds plain values."""
    recording = replace(stack, environment={**stack.environment, "PULUMI_DEBUG_GRPC": str(record)})
    record.unlink(missing_ok=True)
    try:
        done = recording.with_settings("preview", "--json", capture=True)
        return done, record.read_text().splitlines() if record.exists() else []
    finally:
        record.unlink(missing_ok=True)
