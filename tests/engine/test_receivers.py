"""Secrets of receivers on the real engine: from the command that sets them to the Secret, and nowhere else (B43).

The Kubernetes provider writes a file instead of asking a cluster: what stands there is what a cluster would get.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import alert_routing
from tests.engine.conftest import Engine, engine
from tests.unit.graph import local_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

CANARY = "canary-0b43"
RECEIVERS = [
    {"name": "chat", "kind": "slack", "channel": "#gpu"},
    {"name": "pager", "kind": "pagerduty"},
    {
        "name": "mail",
        "kind": "email",
        "to": "team@example.com",
        "sender": "fleet@example.com",
        "smarthost": "smtp.example.com:587",
        "username": "fleet",
    },
    {"name": "ops", "kind": "webhook"},
]
SECRETS = {
    "receivers[0].api_url": f"https://slack.invalid/{CANARY}-0",
    "receivers[1].routing_key": f"{CANARY}-1",
    "receivers[2].password": f"{CANARY}-2",
    "receivers[3].url": f"https://hooks.invalid/{CANARY}-3",
    "dead_mans_switch": f"https://alive.invalid/{CANARY}-4",
}
PROGRAM = """
import os
import pulumi
import pulumi_kubernetes as kubernetes
from pathlib import Path
from pulumi.runtime import config
from components.monitoring import _sealed
from components.registration import register
from fleet import monitoring, settings

stack = settings.load(settings.from_config(config.CONFIG.get()), Path(os.environ["FLEET"]))
provider = kubernetes.Provider("files", render_yaml_to_directory=os.environ["RENDERED"])
secret = _sealed(monitoring.receivers_secret(stack))
register(kubernetes.core.v1.Secret, secret, pulumi.ResourceOptions(provider=provider))
"""


def with_secrets(stack: Engine, config: dict[str, Any]) -> None:
    """The stack file says who is told, the command adds how."""
    stack.configure({**config, "alerts": {"receivers": RECEIVERS}})
    for path, text in SECRETS.items():
        done = stack.run("config", "set", "--secret", "--path", f"triton-fleet:alerts.{path}", text)
        assert done.status == 0, done.text
    assert CANARY not in stack.settings_file.read_text()


def test_secrets_reach_the_cluster_and_nothing_else(project: Path, engine_path: str, tmp_path: Path) -> None:
    program, home, rendered = tmp_path / "program", tmp_path / "home", tmp_path / "rendered"
    for folder in (program, home, rendered):
        folder.mkdir()
    for name in ("components", "fleet", "services", ".venv"):
        (program / name).symlink_to(project / name)
    (program / "Pulumi.yaml").write_text((project / "Pulumi.yaml").read_text())
    (program / "__main__.py").write_text(PROGRAM)
    stack = engine(program, home, engine_path, KUBECONFIG="", FLEET=str(project), RENDERED=str(rendered))
    with_secrets(stack, local_config(project))
    shown = stack.run("preview", "--diff").text + stack.run("preview", "--json").text
    done = stack.run("up", "--yes", "--diff")
    assert done.status == 0, done.text
    (file,) = rendered.rglob("*secret*.yaml")
    secret = yaml.safe_load(file.read_text())
    told = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
    assert (secret["metadata"]["name"], told) == (
        alert_routing.SECRET,
        {
            "chat.api_url": SECRETS["receivers[0].api_url"],
            "pager.routing_key": SECRETS["receivers[1].routing_key"],
            "mail.password": SECRETS["receivers[2].password"],
            "ops.url": SECRETS["receivers[3].url"],
            "dead-mans-switch.url": SECRETS["dead_mans_switch"],
        },
    )
    state = json.dumps(stack.state())
    assert f'"name": "{alert_routing.SECRET}"' in state
    encoded = [base64.b64encode(text.encode()).decode() for text in SECRETS.values()]
    assert [one for one in (CANARY, *encoded) if one in shown + done.text + state] == []


def test_the_plan_of_the_whole_stack_hides_them(project: Path, engine_path: str, tmp_path: Path) -> None:
    stack = engine(project, tmp_path, engine_path)
    config = local_config(project)
    config["cluster"]["kubeconfig"] = ".fleet/not-there/kubeconfig"
    with_secrets(stack, config)
    plan = stack.run("preview", "--json")
    assert plan.status == 0, plan.text
    assert alert_routing.path("ops.url") in plan.text
    assert CANARY not in plan.text + stack.run("preview", "--diff").text
