"""What the workflows may do, and that what they call is there. That GitHub accepts them is tests/engine's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from local import toolchain
from review import __main__ as program
from review.gate import GUARDS
from tests.unit.test_docs import targets

PROJECT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: path.read_text() for path in sorted((PROJECT / ".github" / "workflows").glob("*.yml"))}
PARSED: dict[str, dict[Any, Any]] = {name: yaml.safe_load(text) for name, text in WORKFLOWS.items()}
JOBS: dict[tuple[str, str], dict[str, Any]] = {
    (name, job): body for name, workflow in PARSED.items() for job, body in workflow["jobs"].items()
}
STEPS = [(name, step) for (name, _), job in JOBS.items() for step in job.get("steps", ())]
RUNS = [(name, step["run"]) for name, step in STEPS if "run" in step]
DOCUMENT = (PROJECT / "docs" / "ci.md").read_text()


def test_nothing_is_permitted_but_what_a_job_needs() -> None:
    assert [name for name, workflow in PARSED.items() if workflow["permissions"] != {}] == []
    read, credentials = {"contents": "read"}, {"contents": "read", "id-token": "write"}
    assert {key: job["permissions"] for key, job in JOBS.items()} == {
        ("checks", "checks"): read,
        ("deploy", "checks"): read,
        ("deploy", "dev"): credentials,
        ("deploy", "prod"): credentials,
        ("pull-request", "plan"): credentials,
        ("pull-request", "review"): {**read, "pull-requests": "write"},
        ("up", "up"): credentials,
    }


def test_each_workflow_starts_when_it_should() -> None:
    # YAML reads a key `on` as the truth value.
    assert {name: workflow[True] for name, workflow in PARSED.items() if name != "up"} == {
        "checks": {"pull_request": None, "workflow_call": None},
        "deploy": {"push": {"branches": ["main"], "tags": ["v*"]}},
        "pull-request": {"pull_request": {"types": ["opened", "synchronize", "reopened", "labeled", "unlabeled"]}},
    }
    assert list(PARSED["up"][True]) == ["workflow_call"]


def test_one_update_of_a_stack_at_a_time_and_none_is_broken_off() -> None:
    assert JOBS["up", "up"]["concurrency"] == {"group": "deploy-${{ inputs.stack }}", "cancel-in-progress": False}
    assert JOBS["up", "up"]["environment"] == "${{ inputs.stack }}"
    calls = {job: JOBS["deploy", job] for job in ("dev", "prod")}
    assert {job: (call["uses"], call["with"]["stack"], call["needs"]) for job, call in calls.items()} == {
        job: ("./.github/workflows/up.yml", job, "checks") for job in ("dev", "prod")
    }
    assert {job: call["if"] for job, call in calls.items()} == {
        "dev": "github.ref_type == 'branch' && vars.DEV_DEPLOY_ROLE != ''",
        "prod": "github.ref_type == 'tag' && vars.PROD_DEPLOY_ROLE != ''",
    }


def test_actions_are_pinned_by_commit_each_to_one() -> None:
    used = {line.strip().removeprefix("- ") for text in WORKFLOWS.values() for line in re.findall(r".*uses: .*", text)}
    actions = {line for line in used if not line.startswith("uses: ./")}
    assert [line for line in actions if not re.fullmatch(r"uses: [\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
    assert len({line.partition("@")[0] for line in actions}) == len(actions) == 6


def test_every_job_ends_some_time() -> None:
    assert [
        key for key, job in JOBS.items() if "uses" not in job and not 0 < job.get("timeout-minutes", 0) <= 240
    ] == []


def test_no_checkout_leaves_a_token_behind_and_there_are_no_secrets() -> None:
    checkouts = [step for _, step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert [step["with"]["persist-credentials"] for step in checkouts] == [False] * 4
    assert [name for name, text in WORKFLOWS.items() if "secrets" in text] == []
    tokens = [name for name, text in WORKFLOWS.items() if "github.token" in text]
    assert tokens == ["pull-request"]


@pytest.mark.parametrize(("name", "run"), RUNS)
def test_no_text_from_outside_becomes_part_of_a_command(name: str, run: str) -> None:
    assert "${{" not in run, name


def test_a_fork_gets_no_role_and_no_runner_of_ours() -> None:
    ours = "github.event.pull_request.head.repo.full_name == github.repository"
    for entry in JOBS["pull-request", "plan"]["strategy"]["matrix"]["include"]:
        upper = entry["stack"].upper()
        assert entry == {
            "stack": entry["stack"],
            "role": f"${{{{ {ours} && vars.{upper}_PREVIEW_ROLE || '' }}}}",
            "runner": f"${{{{ {ours} && vars.{upper}_RUNNER || 'ubuntu-24.04' }}}}",
            "region": f"${{{{ vars.{upper}_REGION }}}}",
            "backend": f"${{{{ vars.{upper}_BACKEND_URL }}}}",
        }
    assert JOBS["checks", "checks"]["runs-on"] == (
        f"${{{{ (github.event_name != 'pull_request' || {ours}) && vars.RUNNER || 'ubuntu-24.04' }}}}"
    )


def test_who_may_comment_runs_the_base_branchs_program_alone() -> None:
    steps = JOBS["pull-request", "review"]["steps"]
    assert steps[0]["with"] == {"ref": "${{ github.event.pull_request.base.sha }}", "persist-credentials": False}
    assert [step["run"].split()[:3] for step in steps if "run" in step] == [
        ["python3", "-m", "review"],
        ["cat", "review.md", '>>"$GITHUB_STEP_SUMMARY"'],
    ]


def _calls() -> list[list[str]]:
    """Each call of the program, with what the shell would put in."""
    values = {"STACK": "prod", "PLAN": "plans/prod", "side": "head", "PULL": "octo/fleet#12"}
    calls = []
    for _, run in RUNS:
        for call in re.findall(r"python3? -m review ([^\n)]+)", run):
            filled = re.sub(r"\$(\w+)", lambda match: values[match[1]], call)
            calls.append(shlex.split(filled))
    return calls


def test_the_program_understands_its_callers_and_finds_their_files() -> None:
    told, judged = (program._parser().parse_args(call) for call in _calls())
    assert (told.command, told.stack, judged.command, judged.stack) == ("facts", "prod", "comment", ["dev", "prod"])
    assert told.out == judged.plans / "prod" / program.HEAD / program.FACTS
    assert (judged.pull_request.repository, judged.pull_request.number) == ("octo/fleet", 12)
    text = WORKFLOWS["pull-request"]
    assert f'>"$PLAN/{program.PREVIEW}"' in text
    assert '"$side/rendered/$STACK/resources.json" "$PLAN/$side/render/resources.json"' in text
    assert f"for side in {program.BASE} {program.HEAD}; do" in text


def test_make_knows_what_is_made() -> None:
    made = {word for _, run in RUNS for word in re.findall(r'make (?:-C "\$side" )?([\w.]+)', run)}
    assert made == {".venv", "render"}
    assert made - {".venv"} <= targets((PROJECT / "Makefile").read_text())
    assert re.findall(r"^\.venv:", (PROJECT / "Makefile").read_text(), re.MULTILINE) == [".venv:"]


def test_pulumi_is_the_version_that_is_tested() -> None:
    versions = [step["with"]["pulumi-version"] for _, step in STEPS if step.get("uses", "").startswith("pulumi/")]
    assert versions == [toolchain.PULUMI.removeprefix("v")] * 2


def test_the_document_names_every_variable_and_every_label() -> None:
    used = {name for text in WORKFLOWS.values() for name in re.findall(r"\bvars\.(\w+)", text)}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", DOCUMENT))
    expanded = {
        name
        for one in named
        for name in ({one} if not one.startswith("X_") else {f"{s}{one[1:]}" for s in ("DEV", "PROD")})
    }
    assert used <= expanded
    assert set(re.findall(r"`(allow-[\w-]+)`", DOCUMENT)) == {guard.label for guard in GUARDS}
