"""`make preflight`: the same verdict as the program's, of a stack file, without the engine."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from local import commands, preflight_table
from local.errors import LocalError
from local.stack import secure_paths, without_secure

if TYPE_CHECKING:
    from pathlib import Path


def test_a_stack_that_can_work_has_no_row(project: Path) -> None:
    assert preflight_table.rows("local", project) == []


def test_every_fault_is_a_row_and_the_command_fails(project: Path, tmp_path: Path) -> None:
    document = yaml.safe_load((project / "Pulumi.local.yaml").read_text())
    document["config"]["triton-fleet:skus"][0]["nodes"] = {"min": 3, "max": 2}
    document["config"]["triton-fleet:modles"] = {"secure": "v1:abc:def"}
    (tmp_path / "Pulumi.local.yaml").write_text(yaml.safe_dump(document))
    shutil.copytree(project / "model_repo", tmp_path / "model_repo")
    (tmp_path / "local" / "charts").mkdir(parents=True)
    rows = preflight_table.rows("local", tmp_path)
    assert {(row["verdict"], row["setting"]) for row in rows} == {
        ("refused", "skus[0].nodes.min"),
        ("refused", "modles"),
    }
    assert all(row["why"] and row["fix"] for row in rows)
    text = preflight_table.table("local", rows)
    assert max(map(len, text.splitlines())) <= preflight_table.WIDTH_CHARS
    assert text.splitlines()[-1] == "preflight of stack local: 2 refused, 0 warnings"


def test_a_secret_that_stands_readable_beside_an_encrypted_one_is_a_row(project: Path, tmp_path: Path) -> None:
    document = yaml.safe_load((project / "Pulumi.prod.yaml").read_text())
    document["config"]["triton-fleet:alerts"] = {
        "receivers": [
            {"name": "ops", "kind": "webhook", "url": {"secure": "v1:abc:def"}},
            {"name": "more", "kind": "webhook", "url": "https://hooks.invalid/canary"},
        ]
    }
    (tmp_path / "Pulumi.prod.yaml").write_text(yaml.safe_dump(document))
    shutil.copytree(project / "model_repo", tmp_path / "model_repo")
    rows = preflight_table.rows("prod", tmp_path)
    assert [(row["verdict"], row["setting"]) for row in rows if row["setting"].startswith("alerts")] == [
        ("warning", "alerts.receivers[1].url")
    ]
    assert "canary" not in str(rows)


def test_a_refusal_fails_the_command_and_a_warning_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"verdict": "warning", "setting": "a", "got": "b", "limit": "c", "why": "d", "fix": "e"}
    said: list[str] = []
    monkeypatch.setattr(preflight_table, "rows", lambda _: [row])
    commands.preflight("local", said.append)
    assert said[0].splitlines() == [
        "verdict  setting  what",
        "-" * 120,
        "warning  a        got:   b",
        "                  limit: c",
        "                  why:   d",
        "                  fix:   e",
        "-" * 120,
        "preflight of stack local: 0 refused, 1 warning",
    ]
    monkeypatch.setattr(preflight_table, "rows", lambda _: [{**row, "verdict": "refused"}])
    with pytest.raises(LocalError, match="stack local is refused: 1 fault,"):
        commands.preflight("local", said.append)


def test_a_stack_without_a_file_is_named() -> None:
    with pytest.raises(LocalError, match="there is no stack 'nowhere'"):
        preflight_table.rows("nowhere")


def test_encrypted_values_are_found_and_replaced_wherever_they_stand() -> None:
    config = {
        "triton-fleet:alerts": {"slack": {"secure": "v1:a"}, "a.b": [{"secure": "v1:b"}, 1], "secure": "plain"},
        "triton-fleet:token": {"secure": "v1:c"},
        "triton-fleet:object": {"secure": {"of": "another"}},
    }
    assert secure_paths(config) == [
        "triton-fleet:alerts.slack",
        'triton-fleet:alerts["a.b"][0]',
        "triton-fleet:token",
    ]
    hidden = "https://placeholder-of-a-secret.invalid"
    assert without_secure(config) == {
        "triton-fleet:alerts": {"slack": hidden, "a.b": [hidden, 1], "secure": "plain"},
        "triton-fleet:token": hidden,
        "triton-fleet:object": {"secure": {"of": "another"}},
    }
