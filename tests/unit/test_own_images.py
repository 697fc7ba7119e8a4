"""Images of our own programs: their names, the rule that prod names them by digest, and their ECR repositories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fleet import model_repository, own_images, preflight, settings, store, verification
from fleet.faults import Fault
from fleet.settings import Images
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
STOCK = {"triton": "registry.example.com/nvidia/tritonserver:24.08-py3", "tools": "registry.example.com/sdk:24.08"}
BY_TAG = "registry.example.com/team/triton-fleet/verification:0123456789ab"
BY_DIGEST = f"registry.example.com/team/triton-fleet/verification@{DIGEST}"
WHY = "a tag says which image was meant, a digest which one runs: what was tested is what prod gets"
FIX = "push it with `make images PUSH=<registry>`, and put the line that it prints into the stack file"


def by_tag(setting: str, got: str) -> Fault:
    return Fault(f"images.{setting}", repr(got), "name@sha256:… for an image of ours in prod", WHY, FIX)


def images(**more: object) -> Images:
    return Images.model_validate({**STOCK, **more})


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        pytest.param(BY_TAG, True, id="tag"),
        pytest.param(BY_DIGEST, True, id="digest"),
        pytest.param("127.0.0.1:5000/triton-fleet/model-store:1", True, id="port, no folder"),
        pytest.param("registry.example.com/prod/triton-fleet/model-store", True, id="neither tag nor digest"),
        pytest.param("registry.example.com/triton-fleet/tritonserver:1", False, id="no program of ours"),
        pytest.param("registry.example.com/other/verification:1", False, id="somebody else's"),
        pytest.param("triton-fleet.local/tools:1", False, id="the embedded cluster's"),
        pytest.param("verification:1", False, id="no registry"),
    ],
)
def test_an_image_of_ours_is_known_by_its_name(image: str, *, ours: bool) -> None:
    assert own_images.is_ours(image) is ours


def test_what_is_pushed_is_known_as_ours() -> None:
    for program in own_images.SETTINGS:
        for place in ("localhost:5000", "registry.example.com/a/b"):
            assert own_images.is_ours(f"{own_images.repository(place, program)}:1")


def test_each_program_has_its_containerfile_and_its_setting(project: Path) -> None:
    folders = {path.parent.name for path in project.glob("services/*/Containerfile")}
    assert folders == set(own_images.SETTINGS.values())
    assert folders == {path.name for path in (project / "services").iterdir() if (path / "__init__.py").exists()}
    assert folders < set(Images.model_fields)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, (STOCK["tools"], STOCK["tools"]), id="none of ours"),
        pytest.param({"verification": BY_DIGEST}, (STOCK["tools"], BY_DIGEST), id="one of ours"),
        pytest.param({"model_store": BY_DIGEST}, (BY_DIGEST, STOCK["tools"]), id="the other"),
    ],
)
def test_a_program_runs_in_its_own_image_or_in_the_stock_one(given: dict[str, str], expected: tuple[str, str]) -> None:
    named = images(**given)
    programs = (own_images.MODEL_STORE, own_images.VERIFICATION)
    assert tuple(own_images.image(named, program) for program in programs) == expected


def test_jobs_run_in_the_image_that_is_theirs(project: Path) -> None:
    config = graph.local_config(project)
    store_image = BY_DIGEST.replace("verification", "model-store")
    config["images"] = {**config["images"], "verification": BY_DIGEST, "model_store": store_image}
    told = settings.load(config, project)
    (folder,) = (model_repository.read(project, model.repository) for model in told.models)
    order = verification.order(verification.config_map(told, "program", {}))
    jobs = (
        store.fill_job(told, folder, "program"),
        verification.job(order, "run", "client", [], None, writable=False),
    )
    containers = [one for job in jobs for one in job["spec"]["template"]["spec"]["containers"]]
    assert [one["image"] for one in containers] == [store_image, BY_DIGEST]


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        pytest.param("prod", {}, [], id="stock images keep their tags"),
        pytest.param("prod", {"verification": BY_TAG}, [by_tag("verification", BY_TAG)], id="tag"),
        pytest.param("prod", {"verification": BY_DIGEST}, [], id="digest"),
        pytest.param("prod", {"tools": BY_TAG}, [by_tag("tools", BY_TAG)], id="ours in a stock image's place"),
        pytest.param("prod", {"tools": BY_DIGEST}, [], id="the same by digest"),
        pytest.param("prod", {"model_store": "a.example/b:1"}, [by_tag("model_store", "a.example/b:1")], id="renamed"),
        pytest.param(
            "prod",
            {"verification": BY_TAG, "model_store": "a.example/b:1"},
            [by_tag("model_store", "a.example/b:1"), by_tag("verification", BY_TAG)],
            id="all at once",
        ),
        pytest.param("dev", {"verification": BY_TAG}, [], id="dev may use a tag"),
    ],
)
def test_prod_names_images_of_ours_by_digest(environment: str, given: dict[str, str], expected: list[Fault]) -> None:
    assert list(own_images.refusals(environment, images(**given), "eks")) == expected


def test_ecr_needs_an_account() -> None:
    assert [fault.setting for fault in own_images.refusals("dev", images(ecr=True), "kubeconfig")] == ["images.ecr"]
    assert [list(own_images.refusals("dev", images(ecr=True), source)) for source in ("eks", "eks_existing")] == [
        [],
        [],
    ]


def test_preflight_refuses_prod_with_a_tag(project: Path) -> None:
    config = graph.stack_config(project, "prod")
    before = preflight.check(settings.load(config, project), project).refusals
    config["images"] = {**config["images"], "verification": BY_TAG}
    after = preflight.check(settings.load(config, project), project).refusals
    assert set(after) - set(before) == {by_tag("verification", BY_TAG)}


def test_environments_share_no_repository() -> None:
    dev, prod = (set(own_images.ecr_repositories(name).values()) for name in ("dev", "prod"))
    assert dev == {f"dev/triton-fleet/{program}" for program in ("model-store", "verification", "load")}
    assert not dev & prod


def test_only_what_no_setting_can_name_expires() -> None:
    (rule,) = json.loads(own_images.lifecycle_policy())["rules"]
    assert rule["selection"] == {
        "tagStatus": "untagged",
        "countType": "sinceImagePushed",
        "countUnit": "days",
        "countNumber": own_images.UNTAGGED_KEPT_DAYS,
    }
