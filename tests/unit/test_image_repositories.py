"""The ECR repositories that a stack registers where its settings ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet import own_images
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = "aws:ecr/repository:Repository"
POLICY = "aws:ecr/lifecyclePolicy:LifecyclePolicy"
PROGRAM = """
from components.aws_account import AwsAccount, AwsAccountArgs
from components.image_repositories import ImageRepositories, ImageRepositoriesArgs

account = AwsAccount("aws", AwsAccountArgs("eu-central-1", "{environment}"))
ImageRepositories("images", ImageRepositoriesArgs("{environment}", account))
"""


@pytest.mark.parametrize(("environment", "prod"), [("dev", False), ("prod", True)])
def test_repositories_keep_their_tags_and_scan_what_is_pushed(environment: str, tmp_path: Path, *, prod: bool) -> None:
    (tmp_path / "__main__.py").write_text(PROGRAM.format(environment=environment))
    made = graph.run(tmp_path, {}, stack=environment)
    assert {one.name: one.inputs for one in made.of(REPOSITORY)} == {
        program: {
            "name": f"{environment}/triton-fleet/{program}",
            "imageTagMutability": "IMMUTABLE",
            "imageScanningConfiguration": {"scanOnPush": True},
            "encryptionConfigurations": [{"encryptionType": "KMS"}],
            "forceDelete": not prod,
        }
        for program in ("model-store", "verification", "load")
    }
    assert {one.name: one.inputs for one in made.of(POLICY)} == {
        program: {"repository": f"{environment}/triton-fleet/{program}", "policy": own_images.lifecycle_policy()}
        for program in ("model-store", "verification", "load")
    }
    assert {one.protect for one in made.of(REPOSITORY)} == {prod}
    (provider,) = made.of(graph.AWS_PROVIDER)
    assert {one.provider for one in (*made.of(REPOSITORY), *made.of(POLICY))} == {provider.urn}


@pytest.mark.parametrize("asked", [True, False])
def test_a_stack_has_them_where_its_settings_ask(project: Path, *, asked: bool) -> None:
    config = graph.stack_config(project, "dev")
    config["images"] = {**config["images"], "ecr": asked}
    made = graph.run(project, config, stack="dev")
    names = {one.inputs["name"] for one in made.of(REPOSITORY)}
    assert names == (set(own_images.ecr_repositories("dev").values()) if asked else set())
