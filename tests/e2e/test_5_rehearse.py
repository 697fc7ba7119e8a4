"""`make rehearse STACK=prod`: the whole program, AWS played, on a cluster of its own that it stops again.

After the other clusters are down: two at once need twice the memory.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e import machine
from tests.e2e.checkout import FOLDER
from tests.e2e.conftest import fresh_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout, Done

pytestmark = pytest.mark.e2e

KEYS = ["phase", "ok", "seconds", "created", "updated", "replaced", "deleted", "left"]
POLICY = "fileSystemPolicy:FileSystemPolicy"
PHASES = ["up", "verify", "second preview", "destroy is refused", "unprotect", "destroy", "what is left"]


@pytest.fixture(scope="module")
def rehearsed(before: dict[str, list[str]]) -> Iterator[tuple[Checkout, Done]]:
    """A copy of the project in which prod was rehearsed."""
    assert before
    copy = fresh_copy(FOLDER / "rehearsal")
    done = copy.make("rehearse", "STACK=prod")
    yield copy, done
    copy.make("down", "STATE=.fleet/rehearsal")


@pytest.fixture(scope="module")
def phases(rehearsed: tuple[Checkout, Done]) -> dict[str, dict[str, Any]]:
    copy, done = rehearsed
    assert done.status == 0, done.text[-8000:]
    rows = json.loads((copy.folder / "reports" / "rehearsal.json").read_text())
    assert [list(row) for row in rows] == [KEYS] * len(rows)
    return {row["phase"]: row for row in rows}


def test_every_phase_holds_in_its_order(phases: dict[str, dict[str, Any]]) -> None:
    assert list(phases) == PHASES
    assert all(row["ok"] for row in phases.values())


def test_what_is_created_is_destroyed_but_what_is_retained(phases: dict[str, dict[str, Any]]) -> None:
    made, gone = phases["up"], phases["destroy"]
    assert (made["updated"], made["replaced"], made["deleted"]) == (0, 0, 0)
    assert made["created"] == gone["deleted"] > 0
    left = phases["what is left"]["left"]
    assert {one.partition("|")[0] for one in left} == {
        f"aws:efs/{kind}" for kind in ("fileSystem:FileSystem", "backupPolicy:BackupPolicy", POLICY)
    }


def test_a_second_preview_finds_no_change(phases: dict[str, dict[str, Any]]) -> None:
    row = phases["second preview"]
    assert (row["created"], row["updated"], row["replaced"], row["deleted"], row["left"]) == (0, 0, 0, 0, [])


def test_a_destroy_is_refused_and_names_the_cluster_and_the_file_system(phases: dict[str, dict[str, Any]]) -> None:
    row = phases["destroy is refused"]
    assert row["deleted"] == 0
    protected = {urn.rpartition("::")[0].rpartition("$")[2] for urn in row["left"]}
    assert {"eks:index:Cluster", "aws:efs/fileSystem:FileSystem"} <= protected


def test_what_was_substituted_is_said(rehearsed: tuple[Checkout, Done]) -> None:
    _, done = rehearsed
    for said in ("minilm (python) in place of", "image triton:", "charts: light ones", "no network, TLS or IAM"):
        assert said in done.text


def test_the_verification_saw_the_models_answers_on_both_skus(rehearsed: tuple[Checkout, Done]) -> None:
    copy, _ = rehearsed
    rows = json.loads((copy.folder / "reports" / "verification.json").read_text())
    assert all(row["ok"] for row in rows)
    assert len([row for row in rows if row["name"].startswith("placement/minilm/")]) == 2


def test_nothing_is_left_on_the_machine(rehearsed: tuple[Checkout, Done], before: dict[str, list[str]]) -> None:
    copy, _ = rehearsed
    assert machine.difference(before, machine.snapshot()) == {}
    assert not (copy.folder / ".fleet" / "rehearsal" / "cluster").exists()
