"""What `make tune` tries, what it makes of what it measured, and what it refuses."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet import model_repository, protobuf_text, tuning
from fleet.load.plan import Asked
from fleet.tuning import Batching, Measured, Point, Step
from local import triton, tune
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).resolve().parents[2]
CONFIG = (PROJECT / "model_repo" / "minilm" / "config.pbtxt").read_text()
BATCHED = Point(batching=Batching())


@pytest.mark.parametrize("most", [0, 1, 2, 7, 8, 9, 13, 31, 100, 511, 512, 5000])
def test_the_search_for_users_ends_close_to_the_most_that_are_answered_in_time(most: int) -> None:
    within: dict[int, bool] = {}
    while (users := tuning.next_users(within, tuning.USERS_START)) is not None:
        assert users not in within
        within[users] = users <= most
    found = max((users for users, held in within.items() if held), default=0)
    most = min(most, tuning.USERS_MAX)
    assert found <= most
    assert found == most or most / found < tuning.CLOSE
    assert len(within) <= 10


def test_a_step_that_fails_below_one_that_holds_was_the_machines() -> None:
    assert tuning.next_users({8: True, 16: False, 32: True}, 8) == 64


def test_first_one_instance_with_each_batching_that_the_model_can_do() -> None:
    # Each preferred size is below the largest batch: a batch of that size waits for no more anyway.
    assert tuning.first_points(16) == (
        tuning.UNTUNED,
        *(Point(batching=Batching(size, delay)) for size in (0, 8) for delay in (0, 2000)),
    )
    assert tuning.first_points(1) == tuning.first_points(0) == (tuning.UNTUNED,)


@pytest.mark.parametrize(
    ("cores", "pairs"),
    [
        (1, {(2, 1)}),
        (2, {(1, 2), (2, 1)}),
        (8, {(1, 8), (2, 1), (2, 4), (4, 1), (4, 2), (8, 1)}),
    ],
)
def test_then_more_instances_with_the_batching_that_was_best(cores: int, pairs: set[tuple[int, int]]) -> None:
    points = tuning.second_points(BATCHED, cores)
    assert {(point.instances, point.threads) for point in points} == pairs
    assert len(points) == len(pairs)
    assert {point.batching for point in points} == {BATCHED.batching}


def _asked(intended_s: float, duration_s: float, *, ok: bool = True) -> Asked:
    return Asked(intended_s, intended_s, duration_s, ok=ok, status=200 if ok else 0)


def test_a_step_counts_what_ended_after_the_warm_up_and_before_its_end() -> None:
    # 20 that ended in time, of 10 ms to 200 ms: the 19th of 20 is the smallest that 95 % do not exceed.
    counted = [_asked(2.0, 0.010 * number) for number in range(1, 21)]
    early = _asked(0.0, tuning.WARM_S / 2)
    late = _asked(tuning.STEP_S - 0.1, 0.2)
    made = tuning.step(4, [early, *counted, late], 0.9, 0.25)
    assert made == Step(4, 20 / (tuning.STEP_S - tuning.WARM_S), pytest.approx(190), 0, 0.9, 0.25)
    assert tuning.step(4, [early, *counted, late, _asked(0.0, 0.1, ok=False)], 0.9, 0.25).failed == 1
    assert tuning.step(4, [early, late], 0, 0).p95_ms == math.inf


def _measured(point: Point, *steps: tuple[float, float], failed: int = 0, wrong: str = "") -> Measured:
    return Measured(point, tuple(Step(8, per_s, p95_ms, failed, 0.9, 0.1) for per_s, p95_ms in steps), 1, 300, wrong)


TWO = Point(2, Batching())
SLOW = Point(1, Batching(delay_us=2000))


@pytest.mark.parametrize(
    ("measured", "point"),
    [
        ([], None),
        ([_measured(tuning.UNTUNED, (100, 101))], None),
        # What is beyond the limit does not count, however much it is.
        ([_measured(tuning.UNTUNED, (100, 50), (200, 101)), _measured(BATCHED, (110, 100))], BATCHED),
        ([_measured(tuning.UNTUNED, (100, 50)), _measured(BATCHED, (900, 50), failed=1)], tuning.UNTUNED),
        ([_measured(tuning.UNTUNED, (100, 50)), _measured(BATCHED, (900, 50), wrong="another")], tuning.UNTUNED),
        # Within 5 % of the most, the fewest instances; beyond, the most.
        ([_measured(BATCHED, (96, 50)), _measured(TWO, (100, 50))], BATCHED),
        ([_measured(BATCHED, (94, 50)), _measured(TWO, (100, 50))], TWO),
        # Of equal instances the shortest delay.
        ([_measured(SLOW, (100, 50)), _measured(BATCHED, (99, 50))], BATCHED),
    ],
)
def test_what_is_chosen(measured: list[Measured], point: Point | None) -> None:
    best = tuning.chosen(measured, 100)
    assert (best and best.point) == point


POINTS = (tuning.UNTUNED, BATCHED, SLOW, TWO, Point(4, Batching(16, 2000)))


@pytest.mark.parametrize("point", POINTS)
def test_the_lines_of_a_point_are_a_configuration_and_say_the_point(point: Point) -> None:
    text = tuning.configured(CONFIG, point)
    served = protobuf_text.parse(text)
    assert [group.number("count", 0) for group in served.many("instance_group")] == [point.instances]
    batching = served.one("dynamic_batching")
    wanted = point.batching or Batching()
    assert len(served.many("dynamic_batching")) == (point.batching is not None)
    assert batching.numbers("preferred_batch_size") == ((wanted.preferred,) if wanted.preferred else ())
    assert batching.number("max_queue_delay_microseconds", 0) == wanted.delay_us
    # Nothing else of the model changes.
    assert model_repository.parse_config(text) == model_repository.parse_config(CONFIG)
    assert tuning.configured(text, point) == text


@pytest.mark.parametrize("point", POINTS)
def test_what_triton_says_it_serves_by_is_compared_with_the_point(point: Point) -> None:
    # As /v2/models/<model>/config answers: the preferred size that was not named is the largest.
    said: dict[str, object] = {
        "max_batch_size": 32,
        "instance_group": [{"name": "minilm_0", "kind": "KIND_CPU", "count": point.instances}],
    }
    if point.batching is not None:
        said["dynamic_batching"] = {
            "preferred_batch_size": [point.batching.preferred or 32],
            "max_queue_delay_microseconds": point.batching.delay_us,
        }
    assert [one for one in POINTS if not tuning.differs(said, one)] == [point]


def test_the_table_says_where_the_load_itself_may_be_the_limit() -> None:
    fast = Measured(BATCHED, (Step(64, 900.0, 80.0, 0, 0.7, 0.95),), 12.3, 400.4)
    assert tuning.row(fast, 100).split() == [
        *("1", "x", "1,", "any", "size,", "delay", "0", "ms", "64", "900.0", "80.0", "12.3"),
        *("400", "70%", "95%", "the", "load", "may", "be", "the", "limit"),
    ]
    assert tuning.row(fast, 50).endswith("no step within 50 ms")
    assert tuning.row(_measured(BATCHED, (1, 1), wrong="EMBEDDING differs"), 50).endswith("EMBEDDING differs")


@pytest.mark.parametrize(
    ("cores", "p95_ms", "machine", "error"),
    [
        ("", "", 1, "this machine has 1 core: the load would take the time of the server that it measures"),
        ("2", "", 2, "CORES='2' is no whole number from 1 to 1: one core is left for the load"),
        ("0", "", 4, "CORES='0' is no whole number from 1 to 3: one core is left for the load"),
        ("x", "", 4, "CORES='x' is no whole number from 1 to 3: one core is left for the load"),
        ("", "-5", 4, "P95_MS='-5' is no whole number from 1 to 3000: answers are counted for so long"),
        ("", "3001", 4, "P95_MS='3001' is no whole number from 1 to 3000: answers are counted for so long"),
    ],
)
def test_what_cannot_be_tuned_so_is_refused(cores: str, p95_ms: str, machine: int, error: str) -> None:
    with pytest.raises(LocalError) as refused:
        tune.wish("", cores, p95_ms, machine)
    assert refused.value.what == error


def test_what_is_not_said_is_the_machines_own() -> None:
    assert tune.wish("", "", "", 4) == tune.Wish("minilm", 3, tuning.P95_LIMIT_MS)
    assert tune.wish("other", "1", "50", 4) == tune.Wish("other", 1, 50)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(PROJECT / "model_repo", tmp_path / "model_repo")
    return tmp_path


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("../fleet", "MODEL='../fleet' is no folder of model_repo"),
        (
            "llama-3-8b",
            "MODEL=llama-3-8b has no kind of instance and backend not named: the image here has the Python ",
        ),
        ("mute", "how mute is asked is not known"),
        ("torn", "MODEL=torn is unfit"),
    ],
)
def test_a_model_that_cannot_be_tuned_here_is_refused(project: Path, model: str, error: str) -> None:
    repository = project / "model_repo"
    for name in ("mute", "torn"):
        shutil.copytree(repository / "minilm", repository / name)
    (repository / "mute" / "verification.json").unlink()
    (repository / "torn" / "config.pbtxt").write_text("name: ")
    with pytest.raises(LocalError) as refused:
        tune.subject(model, project)
    assert refused.value.what.startswith(error)


def test_a_step_that_nobody_answered_is_told_in_json(tmp_path: Path) -> None:
    measured = [Measured(BATCHED, (tuning.step(8, [], 0.5, 0.5),), 0.0, 100.0)]
    tune._write(tune.Wish("minilm", 1, 100), measured, None, 5.0, tmp_path)
    text = (tmp_path / "reports" / "tune.json").read_text()
    report = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert report["points"][0]["steps"][0]["p95_ms"] is None


def test_a_triton_that_ends_while_it_is_measured_is_told_with_what_it_said(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def serving(_root: Path, _models: Path, log: Path, *_: object) -> Iterator[triton.Server]:
        log.write_text("Signal (11) received.")
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            yield triton.Server(nobody.getsockname()[1], os.getpid())

    monkeypatch.setattr(triton, "serving", serving)
    monkeypatch.setattr(triton.Server, "load", lambda *_: None)
    monkeypatch.setattr(tune.Arena, "wrong", lambda *_: "")
    arena = tune.Arena(tune.wish("", "1", "", 2), tune.subject("minilm", project), tmp_path, print, [0, 1])
    with pytest.raises(LocalError) as error:
        arena.measure(tuning.UNTUNED, arena.tuned.config)
    said = f"minilm with {tuning.UNTUNED} could not be measured: GET /v2/models/minilm/stats: no answer: "
    assert error.value.what.startswith(said)
    assert error.value.details == "Signal (11) received."


def test_the_served_model_can_be_tuned(project: Path) -> None:
    assert len(tune.subject("minilm", project).cases) == 3
