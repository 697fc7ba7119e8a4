"""The program that the workflows call, from files to exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from review.__main__ import main
from review.facts import Cost, Facts, dumped
from tests.unit.test_review_github import BOT, GitHub, github

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["github"]

CLUSTER = "urn:pulumi:prod::triton-fleet::aws:eks/cluster:Cluster::cluster"
COST = Cost(1.0, 2.0, 730.0, 1460.0)
REFUSED = (
    "refused: stack prod: deletes the cluster cluster (aws:eks/cluster:Cluster): everything in it goes with it; "
    "to allow it, add the label 'allow-prod-cluster'\n"
)


class Plans:
    """The folder that the jobs of the workflow leave behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "plans"

    def facts(self, stack: str, side: str, environment: str | None, *, there: bool = True) -> None:
        found = Facts(stack, environment, COST, {}, (), ()) if there else None
        self.write(f"{stack}/{side}/facts.json", dumped(found))

    def preview(self, stack: str, *ops: tuple[str, str]) -> None:
        steps = [{"op": op, "urn": urn} for op, urn in ops]
        self.write(f"{stack}/preview.json", json.dumps({"steps": steps, "changeSummary": {"same": 1}}))

    def render(self, stack: str, side: str, *urns: str) -> None:
        self.write(f"{stack}/{side}/render/resources.json", json.dumps([{"urn": urn, "inputs": {}} for urn in urns]))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def judged(self, *arguments: str, stacks: tuple[str, ...] = ("prod",)) -> int:
        named = [word for stack in stacks for word in ("--stack", stack)]
        return main(["comment", "--plans", str(self.folder), *named, *arguments])


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(tmp_path)


def whole(plans: Plans, stack: str = "prod", before: str | None = "prod", after: str | None = "prod") -> None:
    plans.facts(stack, "base", before)
    plans.facts(stack, "head", after)


@pytest.mark.parametrize("how", ["preview", "renders"])
def test_the_deletion_of_prods_cluster_is_refused_until_its_label_is_there(
    plans: Plans, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    whole(plans)
    if how == "preview":
        plans.preview("prod", ("delete", CLUSTER))
    else:
        plans.render("prod", "base", CLUSTER)
        plans.render("prod", "head")
    assert (plans.judged(), capsys.readouterr().err) == (1, REFUSED)
    assert plans.judged("--label", "allow-prod-file-system") == 1
    capsys.readouterr()
    assert (plans.judged("--label", "allow-prod-cluster"), capsys.readouterr().err) == (0, "")


@pytest.mark.parametrize(
    ("stack", "before", "after", "status"),
    [
        pytest.param("dev", "dev", "dev", 0, id="dev"),
        pytest.param("prod-eu", "prod", "prod", 1, id="prod under another name"),
        pytest.param("prod", "prod", "dev", 1, id="prod that says it is dev from now on"),
        pytest.param("prod", "dev", "prod", 1, id="what becomes prod"),
        pytest.param("prod", None, None, 1, id="settings that do not say"),
    ],
)
def test_the_gate_is_for_prod(plans: Plans, stack: str, before: str | None, after: str | None, status: int) -> None:
    whole(plans, stack, before, after)
    plans.preview(stack, ("delete", CLUSTER.replace("prod", stack)))
    assert plans.judged(stacks=(stack,)) == status


def test_a_stack_that_goes_takes_all_it_had_with_it(plans: Plans, capsys: pytest.CaptureFixture[str]) -> None:
    plans.facts("prod", "base", "prod")
    plans.facts("prod", "head", None, there=False)
    plans.render("prod", "base", CLUSTER)
    assert (plans.judged(), capsys.readouterr().err) == (1, REFUSED)


def test_a_new_stack_loses_nothing(plans: Plans) -> None:
    plans.facts("prod", "base", None, there=False)
    plans.facts("prod", "head", "prod")
    plans.render("prod", "head", CLUSTER)
    assert plans.judged() == 0


def _nothing(_: Plans) -> None:
    pass


def _no_plan(plans: Plans) -> None:
    whole(plans)


def _half_a_render(plans: Plans) -> None:
    whole(plans)
    plans.render("prod", "head", CLUSTER)


def _broken_preview(plans: Plans) -> None:
    whole(plans)
    plans.write("prod/preview.json", "error: no credentials")


def _broken_facts(plans: Plans) -> None:
    whole(plans)
    plans.preview("prod")
    plans.write("prod/base/facts.json", "{}")


@pytest.mark.parametrize(
    ("left", "why"),
    [
        pytest.param(
            _nothing,
            "the facts of the base (FileNotFoundError); the facts of the head (FileNotFoundError)",
            id="the job never came so far",
        ),
        pytest.param(
            _no_plan, "neither a preview nor a render of the base: the job that makes them says why", id="no plan"
        ),
        pytest.param(
            _half_a_render,
            "neither a preview nor a render of the base: the job that makes them says why",
            id="the base was not rendered",
        ),
        pytest.param(_broken_preview, "the preview printed no JSON; its log says why", id="no credentials"),
        pytest.param(
            _broken_facts,
            "the facts of the base (the facts of a checkout cannot be read (KeyError))",
            id="facts of another form",
        ),
    ],
)
def test_what_is_missing_keeps_the_gate_closed_and_is_told(
    plans: Plans, left: Callable[[Plans], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left(plans)
    assert plans.judged() == 1
    said = capsys.readouterr()
    assert said.err == f"refused: stack prod: no plan to judge: {why}\n"
    assert "| `prod` | ? | ? | ? | ? | ? | ? |" in said.out


def test_what_a_preview_says_becomes_no_command_of_the_runner(plans: Plans, capsys: pytest.CaptureFixture[str]) -> None:
    whole(plans)
    diagnostics = [{"severity": "error", "message": "broken\n::add-path::/tmp\n"}]
    plans.write("prod/preview.json", json.dumps({"diagnostics": diagnostics}))
    assert plans.judged("--out", str(plans.folder / "review.md")) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "refused: stack prod: the plan is not whole: broken ::add-path::/tmp\n"


def test_labels_come_from_github_and_the_comment_goes_there(
    plans: Plans, github: GitHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_API_URL", github.pull.api)
    monkeypatch.setenv("GITHUB_TOKEN", "a-token-of-the-test")
    whole(plans)
    plans.preview("prod", ("delete", CLUSTER))
    out = tmp_path / "review.md"
    arguments = ("--pull-request", "octo/fleet#12", "--out", str(out))
    assert (plans.judged(*arguments), capsys.readouterr().err) == (1, f"comment: created\n{REFUSED}")
    assert github.written == [("POST", "/repos/octo/fleet/issues/12/comments", {"body": out.read_text()})]
    github.comments = [{"id": 3, "user": BOT, "body": out.read_text()}]
    github.labels = ["allow-prod-cluster"]
    assert (plans.judged(*arguments), capsys.readouterr().err) == (0, "comment: updated\n")
    assert github.written[1:] == [("PATCH", "/repos/octo/fleet/issues/comments/3", {"body": out.read_text()})]


@pytest.mark.parametrize("losing", [True, False])
def test_a_comment_that_may_not_be_written_changes_no_verdict(
    plans: Plans, github: GitHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, losing: bool
) -> None:
    """As for a pull request from a fork. Labels that cannot be read allow nothing."""
    monkeypatch.setenv("GITHUB_API_URL", github.pull.api)
    github.refuses = (403, "no")
    whole(plans)
    plans.preview("prod", *[("delete", CLUSTER)] * losing)
    assert plans.judged("--pull-request", "octo/fleet#12") == int(losing)
    assert capsys.readouterr().err == (
        "comment: not published: GET issues/12/labels?per_page=100&page=1: status 403: no\n" + REFUSED * losing
    )


@pytest.mark.parametrize("text", ["", "octo/fleet", "octo#1", "octo/fleet#x", "octo/fleet#1/../2", "a/b/c#1"])
def test_a_pull_request_that_is_none_is_refused(plans: Plans, text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        plans.judged("--pull-request", text)
    assert ended.value.code == 2


def test_the_gate_needs_no_more_than_python(plans: Plans, project: Path) -> None:
    """It runs from the base branch's checkout on a machine where nothing was installed."""
    whole(plans)
    plans.preview("prod")
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-m", "review", "comment", "--plans", str(plans.folder), "--stack", "prod"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<!-- triton-fleet-review -->\n")
