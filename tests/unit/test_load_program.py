"""A load is made as it was planned, against a small server on loopback that plays Triton. No model that writes text is
served here, so only this server knows `generate` and `generate_stream`.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from fleet.load import latency
from fleet.load.plan import Asked, NotOursError, Plan, require_ours
from services.load import run, scenarios
from services.load.caller import Caller, chance_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CASE = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}], "output": "E", "values": 3}
ANSWER = {"outputs": [{"name": "E", "shape": [1, 3], "data": [0.1, 0.2, 0.3]}]}
TOKENS = ("A", " small", " world")
TOKEN_S = 0.05


class Server(ThreadingHTTPServer):
    """Plays Triton; what it does next stands in `faults`, what it was asked in `bodies`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.connections: set[Any] = set()
        self.bodies: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.pause_s = 0.0

    def handle_error(self, *_: object) -> None: ...


class _Answers(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.server.connections.add(self.client_address)
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        time.sleep(self.server.pause_s)
        if fault == "hang up":
            self.close_connection = True
            self.connection.close()
        elif fault.isdigit():
            self._say(int(fault), b"no")
        elif fault == "wrong":
            self._say(200, json.dumps({"outputs": [{"name": "E", "shape": [1, 2], "data": [0, 0]}]}).encode())
        elif fault == "short":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"{")
            self.close_connection = True
        elif self.path.endswith("/infer"):
            self._say(200, json.dumps(ANSWER).encode())
        elif self.path.endswith("/generate"):
            self._say(200, json.dumps({"text_output": "".join(TOKENS)}).encode())
        else:
            self._write(fault)

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _write(self, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, token in enumerate(TOKENS):
            event = {"error": "out of memory"} if fault == "error" and number else {"text_output": token}
            self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
            time.sleep(TOKEN_S)
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as playing:
        thread = threading.Thread(target=playing.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield playing
        playing.shutdown()
        thread.join()


def a_plan(server: Server, **changes: Any) -> Plan:  # noqa: ANN401 - a plan's own
    plan = Plan(
        host="127.0.0.1",
        port=server.server_port,
        model="m",
        scenario="infer",
        arrivals="closed",
        points=((0, 2),),
        duration_s=1,
        case=CASE,
        timeout_s=5,
    )
    return replace(plan, **changes)


def caller(plan: Plan) -> Caller:
    began = time.monotonic()
    return Caller(plan, scenarios.of(plan), lambda: time.monotonic() - began, chance_of(plan))


# One client


def test_texts_differ_in_length_and_are_the_same_with_the_same_seed(server: Server) -> None:
    for _ in range(2):
        asking = caller(a_plan(server))
        assert all(asking.ask().ok for _ in range(20))
    texts = [body["inputs"][0]["data"][0] for body in server.bodies]
    assert texts[:20] == texts[20:]
    assert len({len(text.split()) for text in texts}) > 5
    assert {json.dumps({**body["inputs"][0], "data": 0}) for body in server.bodies} == {
        json.dumps({**CASE["inputs"][0], "data": 0})  # type: ignore[index]
    }


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [
        ("hang up", 0, "RemoteDisconnected"),
        ("503", 503, "HTTP 503: no"),
        ("404", 404, "HTTP 404: no"),
        ("wrong", 200, "E has 2 values and shape [1, 2], not 3 values"),
        ("short", 200, "the answer is no JSON object: {"),
    ],
)
def test_what_is_no_answer_fails(server: Server, fault: str, status: int, error: str) -> None:
    server.faults = [fault]
    asked = caller(a_plan(server)).ask()
    assert (asked.ok, asked.status, asked.attempts) == (False, status, 1)
    assert asked.error.startswith(error)


@pytest.mark.parametrize(
    ("faults", "retries", "ok", "attempts"),
    [
        (["hang up", "503"], 2, True, 3),
        (["hang up", "503"], 1, False, 2),
        (["404"], 5, False, 1),
        (["wrong"], 5, False, 1),
    ],
    ids=["two faults", "too few retries", "no other replica knows it", "a wrong answer is one"],
)
def test_a_client_that_retries(server: Server, faults: list[str], retries: int, ok: bool, attempts: int) -> None:  # noqa: FBT001
    server.faults = faults
    asked = caller(a_plan(server, retries=retries)).ask()
    assert (asked.ok, asked.attempts) == (ok, attempts)


@pytest.mark.parametrize(("keep_alive", "connections"), [(False, 6), (True, 1)])
def test_a_connection_is_kept_or_each_request_has_its_own(server: Server, keep_alive: bool, connections: int) -> None:  # noqa: FBT001
    asking = caller(a_plan(server, keep_alive=keep_alive))
    assert all(asking.ask().ok for _ in range(6))
    asking.close()
    assert len(server.connections) == connections


def test_a_server_that_never_answers_is_given_up_in_time(server: Server) -> None:
    server.pause_s = 2
    asked = caller(a_plan(server, timeout_s=0.3, retries=3)).ask()
    assert not asked.ok
    assert asked.error == "TimeoutError: timed out"
    assert asked.duration_s == pytest.approx(0.3, abs=0.2)


def test_a_text_is_written_whole(server: Server) -> None:
    asked = caller(a_plan(server, scenario="generate")).ask()
    assert (asked.ok, asked.tokens, asked.first_token_s) == (True, 0, None)
    assert server.bodies[0].keys() == {"text_input", "max_tokens", "stream"}


def test_a_stream_tells_its_first_token_and_how_many_came(server: Server) -> None:
    asked = caller(a_plan(server, scenario="generate_stream")).ask()
    assert (asked.ok, asked.tokens) == (True, len(TOKENS))
    assert asked.first_token_s is not None
    assert asked.duration_s - asked.first_token_s >= (len(TOKENS) - 1) * TOKEN_S


def test_an_error_within_a_stream_is_a_failure_though_its_status_is_200(server: Server) -> None:
    server.faults = ["error"]
    asked = caller(a_plan(server, scenario="generate_stream")).ask()
    assert (asked.ok, asked.error) == (False, "the model says: out of memory")


def test_parts_of_a_load_ask_other_things(server: Server) -> None:
    first, second = (a_plan(server, part=part, parts=2) for part in (0, 1))
    assert chance_of(first, "a").random() == chance_of(first, "a").random() != chance_of(second, "a").random()


# Whose servers


@pytest.mark.parametrize("host", ["127.0.0.1", "198.18.8.12", "198.19.0.1", "minilm.triton-prod.svc"])
def test_ours(host: str) -> None:
    require_ours(host)


@pytest.mark.parametrize(
    "host", ["198.20.0.1", "10.0.0.1", "example.org", "localhost", "minilm.svc.example.org", "::1"]
)
def test_not_ours(host: str) -> None:
    with pytest.raises(NotOursError, match="a Service of ours alone"):
        require_ours(host)


# The whole program


def counted(made: run.Made) -> dict[str, int]:
    return {name: sum(getattr(one, name) for one in made.intervals) for name in ("offered", "served", "failed")}


def test_users_come_and_go_and_each_has_one_request_at_a_time(server: Server) -> None:
    server.pause_s = 0.1
    made = run.run(a_plan(server, points=((0, 4), (1.5, 4), (1.5, 1)), duration_s=3))
    assert [one.users for one in made.intervals[:3]] == [4, pytest.approx(4, abs=3), 1]
    assert counted(made) == {"offered": len(made.requests), "served": len(made.requests), "failed": 0}
    edges = sorted(
        [(one.sent_s, 1) for one in made.requests] + [(one.sent_s + one.duration_s, -1) for one in made.requests]
    )
    most, now = 0, 0
    for _, change in edges:
        now += change
        most = max(most, now)
    assert most <= 4
    assert sum(one.sent_s > 2.5 for one in made.requests) <= 6


def test_an_open_load_does_not_wait_and_counts_from_when_a_request_was_due(server: Server) -> None:
    """Each answer takes 0.5 s and 20 a second are due: a client that waited would send 2 a second."""
    server.pause_s = 0.5
    made = run.run(a_plan(server, arrivals="open", even=True, points=((0, 20),), duration_s=2))
    assert len(made.requests) == pytest.approx(40, abs=1)
    assert all(one.ok for one in made.requests)
    due = sorted(one.intended_s for one in made.requests)
    assert due == pytest.approx([(number + 1) / 20 for number in range(len(due))])
    assert all(one.duration_s >= 0.5 + (one.sent_s - one.intended_s) for one in made.requests)


def test_what_a_load_is_told_to_stop_is_answered_all_the_same(server: Server) -> None:
    server.pause_s = 0.3
    with run.Running(a_plan(server, points=((0, 3),), duration_s=60)) as running:
        running.started()
        time.sleep(0.5)
        running.stop()
        made = running.made()
    assert counted(made)["failed"] == 0
    assert counted(made)["served"] == counted(made)["offered"] > 0
    assert made.intervals[-1].time_s < 10


def test_a_load_that_is_interrupted_waits_for_no_answer(server: Server) -> None:
    server.pause_s = 20
    with (  # noqa: PT012 - what is raised is raised within a load
        pytest.raises(KeyboardInterrupt),
        run.Running(a_plan(server, duration_s=60, timeout_s=60)) as running,
    ):
        running.started()
        time.sleep(0.5)
        began = time.monotonic()
        raise KeyboardInterrupt
    assert running.over
    assert time.monotonic() - began < 10


def test_a_part_of_a_load_that_has_no_user_asks_nothing(server: Server) -> None:
    made = run.run(a_plan(server, points=((0, 1),), part=1, parts=2))
    assert counted(made) == {"offered": 0, "served": 0, "failed": 0}


def test_a_load_says_what_failed(server: Server) -> None:
    server.faults = ["503"] * 3
    made = run.run(a_plan(server, points=((0, 1),), think_s=0.05))
    assert counted(made)["failed"] == 3
    assert [one.error for one in made.failures] == ["HTTP 503: no"] * 3
    assert sum((one.errors.get("HTTP 503: no", 0) for one in made.intervals), 0) == 3
    buckets = latency.merged([one.latency for one in made.intervals])
    assert sum(buckets.values()) == counted(made)["served"]


def test_a_load_on_somebody_elses_server_is_not_made(server: Server) -> None:
    with pytest.raises(run.LoadError, match=r"a Service of ours alone: got 192\.0\.2\.1"):
        run.run(a_plan(server, host="192.0.2.1"))


def test_a_program_that_says_nothing_more_is_heard_as_ended() -> None:
    told = run.Told()
    assert [
        told.hear(line) for line in ("", "no json", "[1]", '{"kind": "other"}', '{"kind": "start", "monotonic_s": 3}')
    ] == [None] * 5
    assert (told.began_s, told.ended, told.intervals) == (3, False, [])


def test_a_request_travels_whole() -> None:
    asked = Asked(1, 1, 2, ok=True, status=200, first_token_s=0.5, tokens=3)
    assert asked == Asked(1, 1, 2, ok=True, status=200, error="", attempts=1, first_token_s=0.5, tokens=3)
