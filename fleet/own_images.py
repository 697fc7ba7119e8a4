"""Images of our own programs: what they are called, where they lie, and that production names them by digest.

A fleet needs none of them: its programs are mounted into stock images. One of ours is small where a stock one is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fleet import names
from fleet.faults import Fault, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fleet.schema import Images

MODEL_STORE: Final = "model-store"
VERIFICATION: Final = "verification"
LOAD: Final = "load"
SETTINGS: Final = {MODEL_STORE: "model_store", VERIFICATION: "verification", LOAD: "load"}
"""By program, the setting below `images` that names its image. Each has services/<setting>/Containerfile."""

DIGEST_MARK: Final = "@sha256:"
UNTAGGED_KEPT_DAYS: Final = 14
"""A push that broke off leaves an image without a tag; settings never name one, since tags here do not move."""


def repository(place: str, program: str) -> str:
    """Where a program's image lies in a registry, or in a folder of one: `<place>/triton-fleet/<program>`."""
    return f"{place}/{names.PART_OF}/{program}"


def is_ours(image: str) -> bool:
    """Whether an image is one that `repository` names, in whatever registry."""
    path = image.partition("@")[0].split("/")
    return len(path) > 2 and path[-2] == names.PART_OF and path[-1].partition(":")[0] in SETTINGS  # noqa: PLR2004


def image(images: Images, program: str) -> str:
    """The image that a program runs in."""
    ours: str | None = getattr(images, SETTINGS[program])
    return ours or images.tools


def refusals(environment: str, images: Images, cluster_source: str) -> Iterator[Fault]:
    """What is wrong with how the settings name images of ours."""
    named = {setting: getattr(images, setting) for setting in ("triton", "tools", *SETTINGS.values())}
    for setting, ref in named.items():
        if ref is None or DIGEST_MARK in ref or environment != "prod":
            continue
        if setting in SETTINGS.values() or is_ours(ref):
            yield Fault(
                f"images.{setting}",
                shown(ref),
                "name@sha256:… for an image of ours in prod",
                "a tag says which image was meant, a digest which one runs: what was tested is what prod gets",
                "push it with `make images PUSH=<registry>`, and put the line that it prints into the stack file",
            )
    if images.ecr and cluster_source == "kubeconfig":
        yield Fault(
            "images.ecr",
            "True",
            "false where cluster.source is kubeconfig",
            "the repositories lie in the account and region of the cluster, and a kubeconfig names neither",
            "set it to false and push to a registry that you have, or use an EKS cluster",
        )


def ecr_repositories(environment: str) -> dict[str, str]:
    """The name of each program's ECR repository. Each environment has its own, and pushes to its own."""
    return {program: repository(environment, program) for program in SETTINGS}


def ecr_repository(environment: str) -> dict[str, Any]:
    """What each ECR repository is like.

    https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html
    """
    return {
        "image_tag_mutability": "IMMUTABLE",
        "image_scanning_configuration": {"scan_on_push": True},
        "encryption_configurations": [{"encryption_type": "KMS"}],
        "force_delete": environment != "prod",
    }


def lifecycle_policy() -> str:
    """Removes what no settings can name, and nothing else: an image that runs must never expire.

    https://docs.aws.amazon.com/AmazonECR/latest/userguide/lifecycle_policy_parameters.html
    """
    rule: Mapping[str, object] = {
        "rulePriority": 1,
        "description": "images without a tag",
        "selection": {
            "tagStatus": "untagged",
            "countType": "sinceImagePushed",
            "countUnit": "days",
            "countNumber": UNTAGGED_KEPT_DAYS,
        },
        "action": {"type": "expire"},
    }
    return json.dumps({"rules": [rule]})
