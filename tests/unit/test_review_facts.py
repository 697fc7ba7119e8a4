"""What a checkout says of a stack, with the project's own stacks and with broken ones."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from fleet import cost, preflight, settings
from fleet.faults import Fault
from review import gather
from review.__main__ import main
from review.facts import Facts, read
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(project: Path, tmp_path: Path) -> Path:
    shutil.copytree(project / "model_repo", tmp_path / "model_repo")
    (tmp_path / "local" / "charts").mkdir(parents=True)
    return tmp_path


def stack(checkout: Path, project: Path, **changes: object) -> None:
    config = {f"triton-fleet:{key}": value for key, value in {**graph.local_config(project), **changes}.items()}
    (checkout / "Pulumi.some.yaml").write_text(yaml.safe_dump({"config": config}))


def test_a_stack_that_is_not_there_has_no_facts(checkout: Path) -> None:
    assert gather.gather("some", checkout) is None


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_the_facts_of_the_projects_stacks_are_those_that_the_program_finds(name: str, project: Path) -> None:
    config = yaml.safe_load((project / f"Pulumi.{name}.yaml").read_text())["config"]
    raw = {key.removeprefix("triton-fleet:"): value for key, value in config.items() if key.startswith("triton-fleet")}
    loaded = settings.load(raw, project)
    verdict = preflight.check(loaded, project)
    found = gather.gather(name, project)
    assert found is not None
    assert (found.stack, found.environment, found.refusals, found.warnings) == (
        name,
        name,
        tuple(verdict.refusals),
        tuple(verdict.warnings),
    )
    told = cost.output(loaded) or {"skus": [], "shared": []}
    assert set(found.parts) == {item["name"] for item in (*told["skus"], *told["shared"])}
    assert found.cost is not None
    for figures, known in [(told, found.cost), *((item, found.parts[item["name"]]) for item in told["skus"])]:
        figure = figures.get("floor_per_month", 0.0)
        assert known.floor_per_month == (None if figure == cost.UNKNOWN else figure)


def test_settings_that_do_not_load_give_their_faults_and_no_cost(checkout: Path, project: Path) -> None:
    stack(checkout, project, skuz=[])
    found = gather.gather("some", checkout)
    assert found is not None
    assert (found.environment, found.cost, found.parts, found.warnings) == ("local", None, {}, ())
    assert [fault.setting for fault in found.refusals] == ["skuz"]


def test_settings_that_preflight_refuses_give_their_faults(checkout: Path, project: Path) -> None:
    models = graph.local_config(project)["models"]
    stack(checkout, project, models=[{**models[0], "shm_mib": 700}])
    found = gather.gather("some", checkout)
    assert found is not None
    assert [fault.setting for fault in found.refusals] == ["models[0].shm_mib"]


def test_an_encrypted_value_needs_no_key(checkout: Path, project: Path) -> None:
    stack(checkout, project, environment={"secure": "v1:ciphertext"})
    found = gather.gather("some", checkout)
    assert found is not None
    (fault,) = found.refusals
    assert (fault.setting, fault.got) == ("environment", "'https://secure.invalid'")
    assert gather._without_secrets({"a": [{"secure": "x"}], "b": {"secure": "x", "more": 1}}) == {
        "a": ["https://secure.invalid"],
        "b": {"secure": "x", "more": 1},
    }


def test_the_program_writes_them(tmp_path: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plans" / "local" / "head" / "facts.json"
    assert main(["facts", "--stack", "local", "--out", str(out)]) == 0
    assert read(out.read_text()) == gather.gather("local", project)
    assert main(["facts", "--stack", "nowhere", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) is None
    assert capsys.readouterr().err == ""


def test_what_is_refused_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = Fault("skuz", "a", "b", "c", "d")
    monkeypatch.setattr(gather, "gather", lambda *_: Facts("x", "prod", None, {}, (fault,), ()))
    assert main(["facts", "--stack", "x", "--out", str(tmp_path / "facts.json")]) == 0
    assert capsys.readouterr().err == f"refused: {fault}\n"
