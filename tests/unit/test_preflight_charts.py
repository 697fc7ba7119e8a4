"""Charts that the settings name are to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet import preflight_charts
from fleet.catalog.charts import CHARTS
from fleet.faults import Fault
from fleet.schema import Charts

if TYPE_CHECKING:
    from pathlib import Path

OTHER = {"repository": "https://charts.example.com", "version": "1.2.3"}


def unknown(name: str, fix: str) -> Fault:
    return Fault(
        f"charts.overrides.{name}",
        f"a chart named '{name}'",
        f"one of {', '.join(CHARTS)}",
        "the stack installs no chart of that name, and the override would silently do nothing",
        fix,
    )


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["cluster-autoscaler", "metrics-server"], []),
        (
            ["cluster-autoscaller", "vault"],
            [unknown("cluster-autoscaller", "did you mean 'cluster-autoscaler'?"), unknown("vault", "remove it")],
        ),
    ],
)
def test_overrides_are_of_charts_that_there_are(tmp_path: Path, overrides: list[str], expected: list[Fault]) -> None:
    charts = Charts.model_validate({"overrides": dict.fromkeys(overrides, OTHER)})
    assert list(preflight_charts.refusals(charts, tmp_path)) == expected


@pytest.mark.parametrize(
    ("mirror", "repository", "refused"),
    [
        (None, "https://charts.example.com", []),
        (None, "oci://registry.example.com/charts", []),
        (None, "../charts", ["charts.overrides.metrics-server.repository"]),
        ("oci://registry.example.com/charts", "https://charts.example.com", []),
        (".", "https://charts.example.com", ["charts.overrides.metrics-server"]),
    ],
)
def test_an_override_is_found(tmp_path: Path, mirror: str | None, repository: str, refused: list[str]) -> None:
    overrides = {"metrics-server": {"repository": repository, "version": "1.2.3"}}
    charts = Charts.model_validate({"mirror": mirror, "overrides": overrides})
    assert [fault.setting for fault in preflight_charts.refusals(charts, tmp_path)] == refused


@pytest.mark.parametrize(
    ("mirror", "refused"),
    [
        ("charts", False),
        ("oci://registry.example.com/charts", False),
        ("https://charts.example.com", True),
        ("ftp://charts.example.com", True),
        ("file", True),
        ("nowhere", True),
        ("x" * 300, True),
    ],
)
def test_a_mirror_that_is_a_folder_is_there(tmp_path: Path, mirror: str, refused: bool) -> None:  # noqa: FBT001 - a row's verdict
    (tmp_path / "charts").mkdir()
    (tmp_path / "file").touch()
    faults = list(preflight_charts.refusals(Charts(mirror=mirror), tmp_path))
    assert [fault.setting for fault in faults] == (["charts.mirror"] if refused else [])


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.2.3", True),
        ("v1.2.3", True),
        ("1.2.3-rc.1+build", True),
        ("latest", False),
        ("^1.2.3", False),
        ("1.2", False),
        (">=1.0.0", False),
    ],
)
def test_a_charts_version_is_one(version: str, accepted: bool) -> None:  # noqa: FBT001 - a row's verdict
    try:
        Charts.model_validate({"overrides": {"metrics-server": {**OTHER, "version": version}}})
    except ValueError:
        assert not accepted
    else:
        assert accepted
