"""actionlint, built when this test runs, on the workflows."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from local import toolchain

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine


@dataclass(frozen=True)
class Lint:
    program: Path
    folder: Path

    def __call__(self, *files: Path) -> tuple[int, str]:
        """Without the programs that it calls where they happen to be on PATH."""
        done = subprocess.run(
            [self.program, "-no-color", "-oneline", "-shellcheck=", "-pyflakes=", *files],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def lint(tmp_path: Path) -> Lint:
    return Lint(toolchain.ensure(["actionlint"], print)["actionlint"], tmp_path)


@pytest.fixture
def workflow(project: Path) -> str:
    return (project / ".github" / "workflows" / "pull-request.yml").read_text()


def test_github_would_accept_the_workflows(lint: Lint, project: Path) -> None:
    files = sorted((project / ".github" / "workflows").glob("*.yml"))
    assert len(files) == 4
    assert lint(*files) == (0, "")


@pytest.mark.parametrize(
    ("was", "becomes", "found"),
    [
        ("vars.DEV_RUNNER", "var.DEV_RUNNER", 'undefined variable "var"'),
        ("needs: plan", "needs: plans", "which does not exist"),
        ("pull-requests: write", "pull-request: write", 'unknown permission scope "pull-request"'),
        ("matrix.role == ''", "matrix.rule == ''", 'property "rule" is not defined'),
    ],
)
def test_a_slip_in_a_workflow_is_found(workflow: str, lint: Lint, was: str, becomes: str, found: str) -> None:
    slipped = lint.folder / "pull-request.yml"
    slipped.write_text(workflow.replace(was, becomes))
    status, said = lint(slipped)
    assert (was in workflow, status, found in said) == (True, 1, True), said
