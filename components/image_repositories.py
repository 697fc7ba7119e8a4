"""Where images of our own programs lie, in the account of the cluster that runs them.

Registers:
- an ECR repository per program: tags that do not move, scanned on push, encrypted; protected in prod
- what each repository forgets
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pulumi
import pulumi_aws as aws

from fleet import own_images

if TYPE_CHECKING:
    from components.aws_account import AwsAccount


@dataclass(frozen=True, slots=True)
class ImageRepositoriesArgs:
    """Whose they are, and in which account."""

    environment: str
    account: AwsAccount


class ImageRepositories(pulumi.ComponentResource):
    """An ECR repository for each program of ours."""

    urls: dict[str, pulumi.Output[str]]
    """By program, what its image is called, without tag and digest."""

    def __init__(self, name: str, args: ImageRepositoriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("triton-fleet:images:ImageRepositories", name, None, opts)
        child = pulumi.ResourceOptions(parent=self, provider=args.account.provider)
        kept = pulumi.ResourceOptions.merge(child, pulumi.ResourceOptions(protect=args.environment == "prod" or None))
        self.urls = {}
        for program, repository_name in own_images.ecr_repositories(args.environment).items():
            repository = aws.ecr.Repository(
                program, name=repository_name, **own_images.ecr_repository(args.environment), opts=kept
            )
            aws.ecr.LifecyclePolicy(
                program, repository=repository.name, policy=own_images.lifecycle_policy(), opts=child
            )
            self.urls[program] = repository.repository_url
        self.register_outputs({})
