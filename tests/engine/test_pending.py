"""What an interrupted update left pending in the real Pulumi's state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local import commands, stack
from local.state import State

if TYPE_CHECKING:
    from local.stack import Stack

pytestmark = pytest.mark.engine

URN = "urn:pulumi:local::triton-fleet"
STACK = {"urn": f"{URN}::pulumi:pulumi:Stack::triton-fleet-local", "custom": False, "type": "pulumi:pulumi:Stack"}
BEGUN = {"urn": f"{URN}::kubernetes:core/v1:ConfigMap::x", "custom": True, "type": "kubernetes:core/v1:ConfigMap"}


def state_of(opened: Stack) -> dict[str, Any]:
    deployment: dict[str, Any] = stack.exported(opened, secrets=False)["deployment"]
    return deployment


def test_a_creation_that_was_begun_is_pending_no_more_and_the_rest_is_kept(tmp_path: Path) -> None:
    said: list[str] = []
    opened = stack.open_stack("local", State(tmp_path), said.append, kubeconfig=Path("/nowhere"))
    document = stack.exported(opened, secrets=False)
    document["deployment"]["resources"] = [STACK]
    stack.imported(opened, document)
    file = opened.home / "backend" / ".pulumi" / "stacks" / stack.PROJECT_NAME / "local.json"
    checkpoint = json.loads(file.read_text())
    checkpoint["checkpoint"]["latest"]["pending_operations"] = [{"resource": BEGUN, "type": "creating"}]
    file.write_text(json.dumps(checkpoint))
    assert len(state_of(opened)["pending_operations"]) == 1
    commands._settle(opened, said.append)
    assert "pending_operations" not in state_of(opened)
    assert [resource["urn"] for resource in state_of(opened)["resources"]] == [STACK["urn"]]
    assert said == ["pulumi: an interrupted update had begun to make x; it is made now"]
