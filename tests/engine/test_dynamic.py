"""The resources that this program brings itself, on the real engine, against a cluster that does not answer."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from tests.engine.conftest import Engine, engine
from tests.unit.conftest import kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

PROGRAM = """
import os
import pulumi
from pathlib import Path
from components.rollout import RolloutArgs, RolloutRun
from components.verification import VerificationRun
from fleet import settings, verification
from tests.unit.graph import local_settings

project = Path(os.environ["FLEET"])
secret = pulumi.Output.secret(os.environ["CLUSTER"])
if "rollout" in os.environ["WANTED"]:
    RolloutRun("m", RolloutArgs("triton-local", "m", 1, 1, os.environ["DIGEST"], secret), pulumi.ResourceOptions())
else:
    order = verification.order(verification.config_map(local_settings(project), "program", {}))
    run = VerificationRun("verification", order, os.environ["DIGEST"], secret, pulumi.ResourceOptions())
    pulumi.export("verification", run.report)
"""


@pytest.fixture
def stack(project: Path, engine_path: str, tmp_path: Path) -> Engine:
    """A program that registers one of the resources alone."""
    program, home = tmp_path / "program", tmp_path / "home"
    program.mkdir()
    home.mkdir()
    for name in ("components", "fleet", "services", "tests", ".venv"):
        (program / name).symlink_to(project / name)
    (program / "Pulumi.yaml").write_text((project / "Pulumi.yaml").read_text())
    (program / "__main__.py").write_text(PROGRAM)
    made = engine(program, home, engine_path)
    made.configure({})
    return made


@pytest.fixture(scope="module")
def silent() -> str:
    """The kubeconfig of a cluster that does not answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return kubeconfig(f"http://127.0.0.1:{port}")


def up(stack: Engine, project: Path, wanted: str, cluster: str) -> str:
    done = stack.run("up", "--yes", "--skip-preview", FLEET=str(project), CLUSTER=cluster, DIGEST="one", WANTED=wanted)
    assert done.status != 0
    return done.text


def test_a_failed_verification_fails_the_update_with_its_table_alone(stack: Engine, project: Path, silent: str) -> None:
    text = up(stack, project, "verification", silent)
    table = text[text.index("verification failed") :]
    assert "FAIL  placement/minilm/a100-40gb" in table
    assert "Connection refused" in table
    # The first check of the plan: a GPU node's DaemonSet, before whatever needs its GPUs.
    assert "look first at: kubectl -n kube-system describe daemonset node-feature-discovery-worker" in table
    assert "Traceback" not in text
    assert "canary-token" not in text + json.dumps(stack.state())


def test_a_failed_rollout_fails_the_update_with_its_reason_alone(stack: Engine, project: Path, silent: str) -> None:
    text = up(stack, project, "rollout", silent)
    assert "RolloutFailed: not done within 1 s: m: reading Deployment m: " in text
    assert "look first at: kubectl -n triton-local describe deployment m" in text
    assert "Traceback" not in text
    assert "canary-token" not in text + json.dumps(stack.state())
