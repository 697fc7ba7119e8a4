"""Triton by itself on this machine, as `make tune` measures it; no cluster takes part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet import tuning
from fleet.tuning import Batching, Point
from local import processes, tune
from local.state import State
from tests.e2e.cluster import eventually

if TYPE_CHECKING:
    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

POINT = Point(instances=2, batching=Batching(preferred=8, delay_us=2000))


def test_the_lines_are_what_triton_serves_by_and_nothing_is_left(checkout: Checkout, tmp_path: Path) -> None:
    given = tune.Wish("minilm", cores=1, p95_ms=tuning.P95_LIMIT_MS)
    with tune.arena_of(given, tune.subject("minilm", checkout.folder), State(tmp_path), print) as arena:
        with arena.serving(POINT) as server:  # refuses a server that says another configuration than the point's
            assert arena.wrong(server) == ""
            family = processes.family(server.pid)
            stubs = [pid for pid in family if "triton_python_backend_stub" in Path(f"/proc/{pid}/cmdline").read_text()]
            assert [os.sched_getaffinity(pid) for pid in stubs] == [set(arena.theirs)] * POINT.instances
        # A process that becomes another user's is not ended with its parent: the namespace must end it.
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "the end of all that was started")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["command.lock", "tune"]
