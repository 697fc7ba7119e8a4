"""The program that runs in the cluster, on Tritons that answer as a test says. The real ones are tests/e2e's."""

from __future__ import annotations

import io
import json
import math
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from services.verification import program
from services.verification.program import Checks, NotYetError, WrongAnswerError

if TYPE_CHECKING:
    from pathlib import Path

CASE = {"inputs": [], "output": "EMBEDDING", "expected": [0.5, -0.5], "tolerance": 0.001, "source": "by hand"}
WORDS = {**CASE, "expected": ["yes", "no"], "tolerance": 0.0}


@dataclass
class Triton:
    """One replica."""

    answer: list[Any] | Exception = field(default_factory=lambda: [0.5, -0.5])
    is_live: bool = True
    is_ready: bool = True
    version_is_ready: bool = True
    listed: list[dict[str, Any]] = field(
        default_factory=lambda: [{"name": "minilm", "version": "3", "state": "READY", "reason": ""}]
    )
    inferences: int = 0
    connections: int = 0

    def live(self) -> bool:
        return self.is_live

    def ready(self) -> bool:
        return self.is_ready

    def index(self) -> list[dict[str, Any]]:
        return self.listed

    def version_ready(self, model: str, version: int) -> bool:
        return self.version_is_ready and (model, version) == ("minilm", 3)

    def infer(self, model: str, version: int, case: dict[str, Any]) -> list[Any]:
        assert (model, version) == ("minilm", 3)
        assert case["output"] == "EMBEDDING"
        self.inferences += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def count(self, model: str, version: int) -> int:
        assert (model, version) == ("minilm", 3)
        return self.inferences

    def close(self) -> None:
        pass


class Network:
    """Names and addresses; a name leads to its replicas in turn, one for each connection."""

    def __init__(self, **behind: list[Triton]) -> None:
        self.behind = behind
        self.made: list[tuple[str, str]] = []

    def connect(self, protocol: str, host: str) -> Triton:
        self.made.append((protocol, host))
        tritons = self.behind[host]
        chosen = min(tritons, key=lambda triton: triton.connections)
        chosen.connections += 1
        return chosen


def checks(network: Network, case: dict[str, Any] = CASE, names: dict[str, list[str]] | None = None) -> Checks:
    found = Checks({"minilm": [case]}, network.connect, (names or {}).__getitem__)
    found.spread_s = 0.0
    return found


SERVED = {"model": "minilm", "version": 3}


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        pytest.param([0.5, -0.5], "2 values, largest difference 0 (tolerance 0.001)", id="the same"),
        pytest.param([0.5005, -0.5], "2 values, largest difference 0.0005 (tolerance 0.001)", id="close"),
        pytest.param(
            [0.5, -0.6],
            WrongAnswerError("EMBEDDING differs from the known answer by 0.1 (tolerance 0.001): [1] is -0.6, not -0.5"),
            id="another answer",
        ),
        pytest.param([0.5], WrongAnswerError("EMBEDDING has 1 values, not 2"), id="another shape"),
        pytest.param([0.5, math.nan], WrongAnswerError("EMBEDDING[1] is nan, not -0.5"), id="not a number"),
        pytest.param([0.5, math.inf], WrongAnswerError("EMBEDDING[1] is inf, not -0.5"), id="infinite"),
        pytest.param(["0.5", -0.5], WrongAnswerError("EMBEDDING[0] is '0.5', not 0.5"), id="another type"),
    ],
)
def test_an_answer_is_compared_with_the_known_one(got: list[Any], expected: str | WrongAnswerError) -> None:
    if isinstance(expected, str):
        assert program.judge(CASE, got) == expected
    else:
        with pytest.raises(WrongAnswerError) as wrong:
            program.judge(CASE, got)
        assert str(wrong.value) == str(expected)


@pytest.mark.parametrize(("got", "fits"), [(["yes", "no"], True), (["yes", "yes"], False)])
def test_words_are_compared_exactly(got: list[Any], fits: bool) -> None:  # noqa: FBT001 - a column of the table
    if fits:
        program.judge(WORDS, got)
    else:
        with pytest.raises(WrongAnswerError, match=r"EMBEDDING\[1\] is 'yes', not 'no'"):
            program.judge(WORDS, got)


def attempt(made: Checks, kind: str, **arguments: object) -> tuple[bool, str]:
    return program.attempt(getattr(made, kind), arguments, 0.0)


def test_a_ready_server_without_its_model_fails_and_the_model_is_named_b19() -> None:
    network = Network(pod=[Triton(is_ready=True, version_is_ready=False, listed=[])])
    made = checks(network)
    assert attempt(made, "ready", host="pod", protocol="http") == (True, "ready")
    assert attempt(made, "version", host="pod", protocol="http", **SERVED) == (
        False,
        "model minilm version 3 is not READY on this replica (tried for 0 s)",
    )
    assert attempt(made, "index", host="pod", protocol="grpc", **SERVED) == (
        False,
        "it does not list minilm version 3 as READY but: nothing (tried for 0 s)",
    )


def test_the_index_says_why_a_model_is_not_there() -> None:
    listed = [{"name": "minilm", "version": "3", "state": "UNAVAILABLE", "reason": "no weights"}, {"name": "other"}]
    assert attempt(checks(Network(pod=[Triton(listed=listed)])), "index", host="pod", protocol="http", **SERVED) == (
        False,
        "it does not list minilm version 3 as READY but: minilm 3 UNAVAILABLE no weights, other (tried for 0 s)",
    )


@pytest.mark.parametrize(
    ("triton", "expected"),
    [
        (Triton(), (True, "2 values, largest difference 0 (tolerance 0.001)")),
        (Triton(answer=[1.0, 1.0, 1.0]), (False, "EMBEDDING has 3 values, not 2")),
        (Triton(answer=RuntimeError("500 model broke")), (False, "RuntimeError: 500 model broke (tried for 0 s)")),
    ],
)
def test_a_model_that_is_ready_must_answer_and_rightly_b19(triton: Triton, expected: tuple[bool, str]) -> None:
    assert attempt(checks(Network(pod=[triton])), "answer", host="pod", protocol="grpc", **SERVED) == expected


def test_all_known_answers_are_asked_for() -> None:
    triton = Triton()
    made = Checks({"minilm": [CASE, CASE]}, Network(pod=[triton]).connect, {}.__getitem__)
    assert made.answer("pod", "grpc", **SERVED) == "2 known answers: 2 values, largest difference 0 (tolerance 0.001)"
    assert triton.inferences == 2


@pytest.mark.parametrize(("kind", "dead"), [("live", Triton(is_live=False)), ("ready", Triton(is_ready=False))])
def test_a_server_that_says_no_is_asked_again(kind: str, dead: Triton) -> None:
    made = checks(Network(pod=[dead]))
    with pytest.raises(NotYetError):
        getattr(made, kind)("pod", "http")


def test_a_check_waits_for_what_comes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "RETRY_S", 0.01)
    triton = Triton(is_live=False)

    def later(host: str, protocol: str) -> str:
        if triton.connections > 2:
            triton.is_live = True
        return checks(Network(pod=[triton])).live(host, protocol)

    assert program.attempt(later, {"host": "pod", "protocol": "http"}, 5.0) == (True, "live")


@pytest.mark.parametrize(
    ("addresses", "got", "expected"),
    [
        (None, ["10.0.0.1"], (True, "name is 10.0.0.1")),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2"], (True, "name names 2 replicas")),
        (
            ["10.0.0.1", "10.0.0.2"],
            ["10.0.0.1", "10.0.0.9"],
            (
                False,
                "name is 10.0.0.1, 10.0.0.9; missing 10.0.0.2, unexpected 10.0.0.9 (tried for 0 s)",
            ),
        ),
        ([], [], (False, "name is nothing; missing none, unexpected none (tried for 0 s)")),
    ],
)
def test_names_lead_to_exactly_the_replicas(
    addresses: list[str] | None, got: list[str], expected: tuple[bool, str]
) -> None:
    assert attempt(checks(Network(), names={"name": got}), "resolve", host="name", addresses=addresses) == expected


def test_a_name_that_nobody_knows_is_said_to_be_one() -> None:
    with pytest.raises(NotYetError, match="does not resolve"):
        program.addresses_of("nobody.invalid")


def test_traffic_reaches_each_sku_on_connections_of_its_own_b12() -> None:
    a100, h100 = Triton(), Triton()
    network = Network(shared=[a100, h100], one=[a100], two=[h100])
    said = checks(network).spread("shared", "minilm", 3, {"one": "a100", "two": "h100"}, ["a100", "h100"])
    assert said == "8 requests to shared: a100 4, h100 4"
    assert network.made.count(("http", "shared")) == 8


def test_a_sku_that_gets_no_traffic_is_named() -> None:
    a100, h100 = Triton(), Triton()
    network = Network(shared=[a100], one=[a100], two=[h100])
    with pytest.raises(WrongAnswerError, match=r"8 requests to shared, each on a new connection: a100 8, h100 0"):
        checks(network).spread("shared", "minilm", 3, {"one": "a100", "two": "h100"}, ["a100", "h100"])


def test_a_sku_without_replicas_gets_no_traffic() -> None:
    a100 = Triton()
    network = Network(shared=[a100], one=[a100])
    with pytest.raises(WrongAnswerError, match="a100 4, h100 0"):
        checks(network).spread("shared", "minilm", 3, {"one": "a100"}, ["a100", "h100"])


def test_all_checks_run_whatever_the_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    network = Network(pod=[Triton(is_live=False)], good=[Triton()])
    program.run_client(
        [
            {"name": "first", "kind": "live", "arguments": {"host": "pod", "protocol": "http"}},
            {"name": "gone", "kind": "live", "arguments": {"host": "unknown", "protocol": "http"}},
            {"name": "last", "kind": "answer", "arguments": {"host": "good", "protocol": "http", **SERVED}},
        ],
        checks(network),
        0.0,
    )
    lines = capsys.readouterr().out.splitlines()
    records = [json.loads(line.removeprefix("@check ")) for line in lines if line.startswith("@check ")]
    assert {record["name"]: (record["ok"], record["reason"]) for record in records} == {
        "first": (False, "the server says that it is not live (tried for 0 s)"),
        "gone": (False, "KeyError: 'unknown' (tried for 0 s)"),
        "last": (True, "2 values, largest difference 0 (tolerance 0.001)"),
    }
    assert len(lines) == 2 * len(records)


class SlowScreen(io.StringIO):
    """Takes its time over each piece, so that others get their turn in between."""

    def write(self, text: str) -> int:
        time.sleep(0.001)
        return super().write(text)


def test_results_that_come_at_once_stay_on_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = SlowScreen()
    monkeypatch.setattr("sys.stdout", screen)
    names = [f"check-{number}" for number in range(24)]
    asked = [{"name": name, "kind": "live", "arguments": {"host": "pod", "protocol": "http"}} for name in names]
    program.run_client(asked, checks(Network(pod=[Triton()])), 1.0)
    lines = screen.getvalue().splitlines()
    records = [json.loads(line.removeprefix("@check "))["name"] for line in lines if line.startswith("@check ")]
    assert sorted(records) == sorted(names)
    assert len(lines) == 2 * len(names)


def test_what_one_pod_wrote_another_reads(tmp_path: Path) -> None:
    folder = tmp_path / "store" / ".verification"
    with pytest.raises(NotYetError, match="does not see the same store"):
        program.read(folder, "cafe")
    assert program.write(folder, "cafe") == f"wrote {folder / 'cafe'}"
    assert program.read(folder, "cafe") == f"read {folder / 'cafe'}"
    (folder / "cafe").write_text("other")
    with pytest.raises(NotYetError, match="holds 'other', not what was written"):
        program.read(folder, "cafe")


def test_what_earlier_runs_wrote_is_removed_once_they_are_over(tmp_path: Path) -> None:
    old, fresh = tmp_path / "old", tmp_path / "fresh"
    for path in (old, fresh):
        path.write_text("")
    long_ago = time.time() - program.STALE_S - 1
    os.utime(old, (long_ago, long_ago))
    program.write(tmp_path, "cafe")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cafe", "fresh"]
