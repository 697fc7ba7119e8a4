"""docs/settings.md and Pulumi.yaml are what the settings' types make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from fleet import settings_reference
from fleet.schema import Settings

if TYPE_CHECKING:
    from pathlib import Path

STALE = "run: .venv/bin/python -m fleet.settings_reference"


def test_the_reference_is_current(project: Path) -> None:
    assert (project / settings_reference.DOCS).read_text(encoding="utf-8") == settings_reference.reference(), STALE


def test_the_project_file_is_current(project: Path) -> None:
    assert (project / settings_reference.PROJECT).read_text(encoding="utf-8") == settings_reference.project_file(), (
        STALE
    )


def test_the_schema_declares_every_setting_once_and_requires_none() -> None:
    read = yaml.safe_load(settings_reference.project_file())["config"]
    assert {key: (entry["type"], entry["default"]) for key, entry in read.items()} == {
        "triton-fleet:environment": ("string", ""),
        "triton-fleet:cluster": ("object", {}),
        "triton-fleet:serving": ("object", {}),
        "triton-fleet:store": ("object", {}),
        "triton-fleet:skus": ("array", []),
        "triton-fleet:models": ("array", []),
        "triton-fleet:images": ("object", {}),
        "triton-fleet:gpu_stack": ("object", {}),
        "triton-fleet:monitoring": ("object", {}),
        "triton-fleet:alerts": ("object", {}),
        "triton-fleet:autoscaling": ("object", {}),
        "triton-fleet:charts": ("object", {}),
        "triton-fleet:verification": ("object", {}),
    }
    assert [key.removeprefix("triton-fleet:") for key in read] == list(Settings.model_fields)


def test_the_project_file_is_plain_yaml_as_the_engine_reads_it() -> None:
    text = settings_reference.project_file()
    assert "&" not in text, "an anchor"
    assert {tuple(entry) for entry in yaml.safe_load(text)["config"].values()} == {
        ("type", "description", "default"),
        ("type", "items", "description", "default"),
    }
