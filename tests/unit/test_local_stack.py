"""How Pulumi is run: with what settings, state and environment; and what is refused before it is."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections import namedtuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from local import commands, stack
from local.errors import LocalError
from local.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

TRACKED = "config:\n  triton-fleet:environment: local\n  triton-fleet:store: {size_gib: 1}\n"
SALT = "encryptionsalt: v1:salt\n"


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


def kubeconfig(path: Path, *servers: str) -> Path:
    path.write_text(yaml.safe_dump({"clusters": [{"name": s, "cluster": {"server": s}} for s in servers]}))
    return path


# Where a stack's state is


def test_each_cluster_has_a_state_of_its_own_told_by_its_servers(state: State, tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "first", "https://a.invalid", "https://b.invalid")
    moved = kubeconfig(tmp_path / "moved", "https://b.invalid", "https://a.invalid")
    other = kubeconfig(tmp_path / "other", "https://a.invalid")
    homes = [stack.backend_home(state, cluster) for cluster in (None, first, moved, other)]
    assert homes[0] == state.root / "pulumi" / "embedded"
    assert homes[1] == homes[2]
    assert len({homes[0], homes[1], homes[3]}) == 3
    assert {home.parent for home in homes} == {state.root / "pulumi"}
    kubeconfig(first, "https://a.invalid")
    assert stack.backend_home(state, first) == homes[3]


@pytest.mark.parametrize(
    ("old", "copied"),
    [
        pytest.param(None, TRACKED, id="new"),
        pytest.param("config: {triton-fleet:environment: dev}\n", TRACKED, id="settings of before"),
        pytest.param(TRACKED + SALT, TRACKED + SALT, id="the salt"),
        pytest.param(
            SALT + "secretsprovider: passphrase\n", TRACKED + SALT + "secretsprovider: passphrase\n", id="both"
        ),
        pytest.param("", TRACKED, id="empty"),
    ],
)
def test_the_working_copy_follows_the_tracked_settings_and_keeps_its_salt(
    tmp_path: Path, old: str | None, copied: str
) -> None:
    tracked, copy = tmp_path / "tracked.yaml", tmp_path / "copy.yaml"
    tracked.write_text(TRACKED)
    if old is not None:
        copy.write_text(old)
    stack._working_copy(tracked, copy)
    assert yaml.safe_load(copy.read_text()) == yaml.safe_load(copied)
    assert tracked.read_text() == TRACKED


# The environment


def test_pulumi_gets_nothing_of_what_the_shell_has_for_other_work(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name in (
        "KUBECONFIG",
        "PULUMI_ACCESS_TOKEN",
        "PULUMI_BACKEND_URL",
        "PULUMI_CONFIG_PASSPHRASE",
        "PULUMI_CONFIG_PASSPHRASE_FILE",
        "PULUMI_HOME",
        "PULUMI_STACK",
        "TRITON_FLEET_CLUSTER",
    ):
        monkeypatch.setenv(name, "the-users-own")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("PATH", "/users/bin")
    monkeypatch.setattr(stack.toolchain, "pulumi_path", lambda _: ["/tools/pulumi", "/tools/host"])
    monkeypatch.setattr(stack.sys, "executable", "/venv/bin/python")
    state.root.mkdir()
    expected = {
        "LANG": "C.UTF-8",
        "PATH": "/venv/bin:/tools/pulumi:/tools/host:/users/bin",
        "PULUMI_BACKEND_URL": f"file://{state.root}/backend",
        "PULUMI_CONFIG_PASSPHRASE_FILE": f"{state.root}/passphrase",
        "PULUMI_HOME": f"{state.root}/home",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
    }
    assert stack._environment(state.root, lambda _: None) == expected
    passphrase = state.root / "passphrase"
    made = passphrase.read_text()
    assert (len(made) >= 32, stat.S_IMODE(passphrase.stat().st_mode)) == (True, 0o600)
    assert stack._environment(state.root, lambda _: None) == expected
    assert passphrase.read_text() == made


# Opening a stack


class Project:
    """A project with stack `local`, and a pulumi that records how it is called and does as told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "log"
        (self.folder / "Pulumi.yaml").write_text("name: triton-fleet\n")
        (self.folder / "Pulumi.local.yaml").write_text(TRACKED)
        (self.folder / "Pulumi.dev.yaml").write_text("")

    def pulumi(self, script: str = "exit 0") -> None:
        program = self.bin / "pulumi"
        program.write_text(f"#!/bin/sh\necho \"$PWD: $* ($TRITON_FLEET_CLUSTER)\" >> '{self.log}'\n{script}\n")
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path)
    made.pulumi()
    monkeypatch.delenv("TRITON_FLEET_CLUSTER", raising=False)
    monkeypatch.setattr(stack, "PROJECT", made.folder)
    monkeypatch.setattr(stack.sys, "executable", str(made.bin / "python"))
    monkeypatch.setattr(stack.toolchain, "pulumi_path", lambda _: [str(made.bin)])
    return made


def opened(checkout: Project, state: State, said: list[str] | None = None, name: str = "local") -> stack.Stack:
    return stack.open_stack(
        name, state, (said if said is not None else []).append, kubeconfig=Path("/kube"), project=checkout.folder
    )


def test_a_stack_is_made_from_the_working_copy_and_leaves_the_tracked_settings_alone(
    checkout: Project, state: State
) -> None:
    home = state.pulumi / "embedded"
    # Making a stack, Pulumi writes beside the Pulumi.yaml of the folder that it runs in.
    checkout.pulumi(f"[ -e Pulumi.yaml ] && printf '{SALT.strip()}\\n' >> Pulumi.local.yaml")
    made = opened(checkout, state)
    assert (made.name, made.home, made.kubeconfig) == ("local", home, Path("/kube"))
    assert checkout.calls == [f"{home}/project: stack select --create --non-interactive --stack=local (/kube)"]
    assert yaml.safe_load(made.settings_file.read_text()) == yaml.safe_load(TRACKED + SALT)
    assert (checkout.folder / "Pulumi.local.yaml").read_text() == TRACKED


def test_commands_read_the_working_copy(checkout: Project, state: State) -> None:
    made = opened(checkout, state)
    checkout.pulumi("exit 7")
    assert made.with_settings("up", "--yes").returncode == 7
    words = f"up --config-file={made.settings_file} --skip-config-validation --yes --non-interactive --stack=local"
    assert checkout.calls[1:] == [f"{checkout.folder}: {words} (/kube)"]


def test_the_lock_of_a_process_that_died_is_removed(checkout: Project, state: State) -> None:
    said: list[str] = []
    opened(checkout, state, said)
    assert said == []
    lock = state.pulumi / "embedded" / "backend" / ".pulumi" / "locks" / "organization" / "local" / "1.json"
    lock.parent.mkdir(parents=True)
    lock.touch()
    opened(checkout, state, said)
    assert said == ["pulumi: an interrupted update left its lock; removing it"]
    assert (
        checkout.calls[-1] == f"{state.pulumi}/embedded/project: cancel --yes --non-interactive --stack=local (/kube)"
    )


def test_an_unknown_stack_is_refused_with_those_that_there_are(checkout: Project, state: State) -> None:
    with pytest.raises(LocalError) as refused:
        opened(checkout, state, name="prod")
    assert str(refused.value) == (
        "there is no stack 'prod': Pulumi.prod.yaml does not exist\nfix: use one of: dev, local"
    )
    assert checkout.calls == []
    assert not state.root.exists()


def test_a_stack_that_cannot_be_opened_is_an_error(checkout: Project, state: State) -> None:
    checkout.pulumi("echo 'error: no passphrase' >&2; exit 255")
    with pytest.raises(LocalError) as failed:
        opened(checkout, state)
    assert str(failed.value) == (
        f"the stack local could not be opened\nerror: no passphrase\nfix: look into {state.pulumi / 'embedded'}"
    )


@pytest.mark.parametrize(
    ("read", "words", "what"),
    [
        (stack.exported, "stack export --show-secrets", "the state of stack local could not be read"),
        (stack.outputs, "stack output --json", "the outputs of stack local could not be read"),
    ],
)
def test_state_and_outputs_are_read_or_an_error(
    checkout: Project, state: State, read: Callable[[stack.Stack], dict[str, Any]], words: str, what: str
) -> None:
    made = opened(checkout, state)
    checkout.pulumi("""echo '{"a": [1]}'""")
    assert read(made) == {"a": [1]}
    assert checkout.calls[-1] == f"{state.pulumi}/embedded/project: {words} --non-interactive --stack=local (/kube)"
    checkout.pulumi("echo broken >&2; exit 1")
    with pytest.raises(LocalError) as failed:
        read(made)
    assert str(failed.value) == f"{what}\nbroken\nfix: make up"


# What the commands refuse and find


@pytest.mark.parametrize(
    ("write", "text"),
    [
        pytest.param(
            lambda _: None,
            "CLUSTER={0}: there is no such file\nfix: name the kubeconfig file of the cluster to use",
            id="no file",
        ),
        pytest.param(
            lambda path: path.mkdir(),
            "CLUSTER={0}: there is no such file\nfix: name the kubeconfig file of the cluster to use",
            id="a folder",
        ),
        *(
            pytest.param(
                lambda path, content=content: path.write_bytes(content),
                "CLUSTER={0}: this is no kubeconfig file: it names no cluster with a server\n"
                "fix: name a file that `kubectl --kubeconfig=<file> get nodes` accepts",
                id=name,
            )
            for name, content in (
                ("bytes", b"\xff\xfe\x00"),
                ("no yaml", b"a: ["),
                ("no date", b"clusters: 2026-13-45"),
                ("a number without end", b"clusters: " + 5000 * b"9"),
                ("brackets without end", 5000 * b"["),
                ("empty", b""),
                ("a list", b"- clusters"),
                ("other yaml", b"kind: Pod"),
                ("no cluster", b"apiVersion: v1\nkind: Config\nclusters: []\n"),
                ("a cluster without server", b"clusters: [{name: a, cluster: {}}]"),
            )
        ),
        pytest.param(
            lambda path: path.write_text(
                yaml.safe_dump(
                    {
                        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:9"}}],
                        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                        "users": [{"name": "u", "user": {"token": "t"}}],
                        "current-context": "c",
                    }
                )
            ),
            "CLUSTER={0}: the cluster https://127.0.0.1:9 does not answer: "
            "Failed to establish a new connection: [Errno 111] Connection refused\n"
            "fix: check it with `kubectl --kubeconfig={0} get nodes`",
            id="no answer",
        ),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(tmp_path: Path, write: Callable[[Path], None], text: str) -> None:
    path = tmp_path / "kubeconfig"
    write(path)
    with pytest.raises(LocalError) as refused:
        commands.require_cluster(path)
    assert str(refused.value) == text.format(path)


def test_too_little_disk_for_a_new_cluster_is_refused(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - as shutil's own
    free_gib = 7.94
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40, 2**39, int(free_gib * 2**30)))
    with pytest.raises(LocalError) as refused:
        commands.require_disk(state)
    assert str(refused.value) == (
        f"disk: 7.9 GiB free at {state.root}; the embedded cluster needs 8 GiB for the images of three nodes\n"
        "fix: free some room, or check the project out on a larger disk"
    )
    free_gib = 8.0
    commands.require_disk(state)
    free_gib = 1.0
    state.cluster.mkdir()
    commands.require_disk(state)


@pytest.mark.parametrize(
    ("settings", "namespace"),
    [
        ({"triton-fleet:environment": "local"}, "triton-local"),
        ({}, "triton-dev"),
        ({"triton-fleet:serving": {"namespace": "fleet"}, "triton-fleet:environment": "local"}, "fleet"),
        ({"triton-fleet:serving": {"client_cidrs": []}, "triton-fleet:environment": "local"}, "triton-local"),
    ],
)
def test_the_namespace_is_the_settings_or_its_default(tmp_path: Path, settings: object, namespace: str) -> None:
    made = stack.Stack("dev", tmp_path, None, {})
    made.settings_file.parent.mkdir()
    made.settings_file.write_text(json.dumps({"config": settings}))
    assert commands.namespace_of(made) == namespace


def test_the_state_of_a_cluster_that_is_gone_is_forgotten(state: State) -> None:
    said: list[str] = []
    home = state.pulumi / "embedded"
    authority = state.cluster / "pki" / "ca.crt"
    authority.parent.mkdir(parents=True)

    def begun(identity: str) -> bool:
        """Whether the state of the update before is still there."""
        authority.write_text(identity)
        commands._forget_stack_of_another_cluster(state, said.append)
        kept = (home / "backend").exists()
        (home / "backend").mkdir(exist_ok=True)
        return kept

    assert [begun("one"), begun("one"), begun("two"), begun("two")] == [False, True, False, True]
    assert said == ["pulumi: the cluster of the last update is gone; starting from an empty stack"]
    (home / "cluster.crt").unlink()
    assert begun("two") is False


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"config: [", "Pulumi.x.yaml is no YAML", id="no yaml"),
        pytest.param(b"\xff\xfe\x00", "Pulumi.x.yaml is no YAML", id="bytes"),
        pytest.param(b"config: {a: 2026-13-45}", "Pulumi.x.yaml is no YAML: month must be in 1..12", id="no date"),
        pytest.param(b"config: {a: " + 5000 * b"9" + b"}", "Pulumi.x.yaml is no YAML", id="a number without end"),
        pytest.param(5000 * b"[", "Pulumi.x.yaml is no YAML", id="brackets without end"),
        pytest.param(b"- config", "Pulumi.x.yaml holds a list where settings by name are expected", id="a list"),
        pytest.param(
            b"config: [a]", "Pulumi.x.yaml holds a list where settings by name are expected", id="a list below"
        ),
        pytest.param(
            b"confg: {}\nconfig: {}\na: 1", "Pulumi.x.yaml holds a, confg, of which nothing is read", id="other names"
        ),
        pytest.param(
            b"config: {a: 1}\nconfig: {b: 1}",
            "Pulumi.x.yaml is no YAML: 'config' stands there twice\n  in \"<unicode string>\", line 2, column 1",
            id="a name twice",
        ),
        pytest.param(
            b"config:\n  triton-fleet:x: [{cpu: .nan, b: 2026-01-01, c: 1, d: null, e: .inf}]",
            "Pulumi.x.yaml holds values that no setting can have: triton-fleet:x[0].cpu: nan; "
            "triton-fleet:x[0].b: 2026-01-01; triton-fleet:x[0].e: inf",
            id="no JSON",
        ),
    ],
)
def test_a_stack_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    tracked = tmp_path / "Pulumi.x.yaml"
    tracked.write_bytes(content)
    with pytest.raises(LocalError) as refused:
        stack.read_settings(tracked)
    assert refused.value.what.startswith(text)


def test_a_bare_key_of_a_stack_file_is_the_projects_own_as_for_pulumi(tmp_path: Path) -> None:
    tracked = tmp_path / "Pulumi.x.yaml"
    tracked.write_text("encryptionsalt: v1:s\nconfig: {store: {size_gib: 1}, aws:region: x}\n")
    assert stack.read_settings(tracked) == {
        "encryptionsalt": "v1:s",
        "config": {"triton-fleet:store": {"size_gib": 1}, "aws:region": "x"},
    }


# What is refused before Pulumi is asked


def deployed(home: Path, name: str = "local") -> None:
    file = home / "backend" / ".pulumi" / "stacks" / "triton-fleet" / f"{name}.json"
    file.parent.mkdir(parents=True)
    file.touch()


def test_what_was_not_deployed_is_not_verified(state: State) -> None:
    for name, fix in (("local", "run make up first"), ("prod", "give the verification the state of your own backend")):
        with pytest.raises(LocalError) as refused:
            commands._require_deployed(name, state, None)
        assert refused.value.what == (
            f"stack {name} was not deployed from here: {state.pulumi / 'embedded'} holds no state of it"
        )
        assert refused.value.fix.startswith(fix)


def test_a_cluster_that_is_not_running_is_not_verified(state: State, tmp_path: Path) -> None:
    deployed(state.pulumi / "embedded")
    with pytest.raises(LocalError) as refused:
        commands._require_deployed("local", state, None)
    assert str(refused.value) == (
        "the embedded cluster is not running\nfix: start it with make up, which also verifies"
    )
    other = kubeconfig(tmp_path / "other", "https://a.invalid")
    deployed(stack.backend_home(state, other))
    commands._require_deployed("local", state, other)


def test_the_embedded_cluster_is_no_other_cluster(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = State(tmp_path / "default")
    monkeypatch.setattr(commands, "default_state", lambda: default)
    for one in (state, default):
        one.root.mkdir()
    kubeconfig(state.kubeconfig, "https://198.18.0.2:6443")
    kubeconfig(default.kubeconfig, "https://198.18.16.2:6443")
    commands._require_another(kubeconfig(tmp_path / "other", "https://198.18.32.2:6443"), state)
    for server, own in (("https://198.18.0.2:6443", state), ("https://198.18.16.2:6443", default)):
        copy = kubeconfig(tmp_path / "copy", server)
        with pytest.raises(LocalError) as refused:
            commands._require_another(copy, state)
        assert refused.value.what == f"CLUSTER={copy} is this checkout's own embedded cluster ({own.kubeconfig})"


def test_down_on_a_cluster_without_a_stack_of_ours_says_so(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "require_cluster", lambda _: None)
    said: list[str] = []
    commands.down(state, kubeconfig(tmp_path / "other", "https://a.invalid"), said.append)
    assert said == ["down: this checkout has no stack on https://a.invalid; nothing was changed there"]


@pytest.mark.parametrize(
    ("pending", "put_back", "said"),
    [
        ([], False, []),
        ([("updating", "a")], False, []),
        (
            [("creating", "a"), ("updating", "b"), ("creating", "c")],
            True,
            ["pulumi: an interrupted update had begun to make a, c; it is made now"],
        ),
    ],
)
def test_creations_that_were_begun_are_made_anew_and_warned_of_no_more(
    checkout: Project,
    state: State,
    pending: list[tuple[str, str]],
    put_back: bool,  # noqa: FBT001 - a row's verdict
    said: list[str],
) -> None:
    def operations(rows: list[tuple[str, str]]) -> list[dict[str, Any]]:
        return [{"type": kind, "resource": {"urn": f"urn:pulumi:local::p::t::{name}"}} for kind, name in rows]

    (checkout.folder / "state.json").write_text(
        json.dumps({"version": 3, "deployment": {"resources": [1], "pending_operations": operations(pending)}})
    )
    checkout.pulumi(
        f'[ "$2" = export ] && cat {checkout.folder}/state.json; '
        f'[ "$2" = import ] && cp "${{3#--file=}}" {checkout.folder}/put.json; exit 0'
    )
    told: list[str] = []
    commands._settle(opened(checkout, state), told.append)
    assert told == said
    put = checkout.folder / "put.json"
    assert put.exists() is put_back
    if put_back:
        assert json.loads(put.read_text()) == json.loads((checkout.folder / "state.json").read_text())
    assert not (state.pulumi / "embedded" / "state.json").exists()
