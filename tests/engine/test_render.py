"""`make preview` and `make render` of every stack, on the real engine: no cluster, no account, no home."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from local import commands, rendering, stack
from local.state import PROJECT, State, cache_folder

if TYPE_CHECKING:
    from local.rendering import Plan

pytestmark = pytest.mark.engine

STACKS = sorted(path.name.split(".")[1] for path in PROJECT.glob("Pulumi.*.yaml"))
COMMAND_TIMEOUT_S = 180
SECRETS = """
encryptedkey: bm90LWEta2V5
secretsprovider: awskms://alias/absent?region=eu-central-1
config:
  triton-fleet:environment: local
  triton-fleet:alerts: {slack: {url: {secure: AAABAGFiY2Q=}}, channels: [{secure: AAABAGVmZ2g=}]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("render")


@cache
def planned(name: str, home: Path) -> Plan:
    return commands.planned(name, State(home), print)


@pytest.mark.parametrize("name", STACKS)
def test_the_plan_is_the_one_that_was_reviewed(name: str, home: Path) -> None:
    """The difference is for reading; `make golden` accepts it."""
    made = rendering.reviewed(planned(name, home))
    folder = PROJECT / "tests" / "golden" / name
    there = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    difference = [
        line
        for path in sorted({*made, *there})
        for line in difflib.unified_diff(
            there.get(path, "").splitlines(), made.get(path, "").splitlines(), path, f"{path} (now)", lineterm="", n=2
        )
    ]
    assert not difference, "\n".join([*difference, "", "make golden writes the plans anew"])


@pytest.mark.parametrize("name", STACKS)
def test_a_render_names_nothing_of_this_machine_and_is_whole(name: str, home: Path) -> None:
    plan = planned(name, home)
    text = "".join(rendering.files(plan).values())
    for private in (PROJECT, home, Path.home(), Path(sys.prefix), cache_folder()):
        assert f"{private}/" not in text
    assert stack.PLACEHOLDER not in text
    urns = {resource.urn for resource in plan.resources}
    named = {resource.parent for resource in plan.resources} | {
        urn for resource in plan.resources for urn in resource.dependencies
    }
    assert named - {None} <= urns
    kubernetes = [resource for resource in plan.resources if resource.type.startswith("kubernetes:")]
    assert kubernetes
    assert {resource.provider for resource in kubernetes} <= urns


def test_two_renders_are_equal(home: Path, tmp_path: Path) -> None:
    """Of the stack with the most in it, in another state folder, over what an earlier render left."""
    name = STACKS[-1]
    old = tmp_path / "rendered" / name / "manifests" / "gone.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("")
    target = commands.render(name, State(tmp_path / "state"), print, tmp_path / "rendered")
    made = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert json.loads(made.pop("preflight.json")) is not None
    assert made == rendering.files(planned(name, home))


@pytest.mark.parametrize("name", STACKS)
def test_a_preview_needs_no_home_no_cluster_and_no_account(name: str, tmp_path: Path) -> None:
    empty = tmp_path / "home"
    empty.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "PULUMI_", "KUBE"))}
    done = subprocess.run(
        [sys.executable, "-m", "local", f"--state={tmp_path / 'state'}", "preview", f"--stack={name}"],
        cwd=PROJECT,
        env={
            **kept,
            "HOME": str(empty),
            "TRITON_FLEET_CACHE": str(cache_folder()),
            "KUBECONFIG": "/nowhere/kubeconfig",
            "AWS_PROFILE": "absent",
            "AWS_CONFIG_FILE": "/nowhere/aws",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " to create" in done.stdout
    assert list(empty.rglob("*")) == []


def test_encrypted_settings_are_secret_placeholders_and_the_real_key_is_never_asked(tmp_path: Path) -> None:
    """A stack file whose key lies in a KMS that is not there."""
    tracked = tmp_path / "project" / "Pulumi.real.yaml"
    tracked.parent.mkdir()
    tracked.write_text(SECRETS)
    (tmp_path / "project" / "Pulumi.yaml").write_text((PROJECT / "Pulumi.yaml").read_text())
    said: list[str] = []
    rehearsed = stack.Rehearsed(tmp_path / "account", tmp_path / "absent")
    for _ in range(2):
        opened = stack.open_stack(
            "real", State(tmp_path / "state"), said.append, rehearsed=rehearsed, project=tracked.parent
        )
    assert tracked.read_text() == SECRETS
    copy = yaml.safe_load(opened.settings_file.read_text())
    assert set(copy) == {"config", "encryptionsalt"}
    assert set(copy["config"]["triton-fleet:alerts"]["slack"]["url"]) == {"secure"}
    shown = opened.pulumi("config", "--show-secrets", "--json", capture=True)
    alerts = json.loads(shown.stdout)["triton-fleet:alerts"]
    assert alerts["secret"] is True
    assert json.loads(alerts["value"]) == {
        "slack": {"url": "https://placeholder-of-a-secret.invalid/triton-fleet:alerts.slack.url"},
        "channels": ["https://placeholder-of-a-secret.invalid/triton-fleet:alerts.channels[0]"],
    }
    assert any("2 encrypted values are replaced by placeholders" in line for line in said)
