"""Makes a load: `python -m services.load.program < plan.json`, or with the file's path as an argument.

Locust runs the users; one JSON object a line tells.

The first line is `{"kind": "start", "monotonic_s"}`, then each second an `interval`, and an `end` at last. What was
asked for at SIGINT or SIGTERM is still waited for. Its exit status says only whether it got to its end.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import gevent
from gevent.event import Event
from gevent.pool import Group
from locust import LoadTestShape, User, constant, task
from locust.env import Environment
from locust.log import setup_logging
from locust.user.task import LOCUST_STATE_STOPPING

from fleet import arrivals
from fleet.load import latency
from fleet.load.plan import Asked, Interval, NotOursError, Plan
from services.load import scenarios
from services.load.caller import Caller, chance_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.load.scenarios import Scenario

INTERVAL_S: Final = 1.0
IN_FLIGHT_MOST: Final = 5000
"""Requests of an open load at a time; those due beyond fail, and are told as not sent."""
MARGIN_S: Final = 5.0
"""Beyond a request's own time-out, after which it is given up."""
REACH_S: Final = 30.0
"""A Service that nobody can connect to for so long has no replica, or is not let out to."""
INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
"""Of an indexed Job's pod: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode"""


class UnreachedError(Exception):
    """Nobody listens where the load is to go."""


class Load:
    """One load while it is made: what its users share."""

    def __init__(self, plan: Plan, file: TextIO | None) -> None:
        self.plan = plan
        self.scenario: Scenario = scenarios.of(plan)
        self.began = time.monotonic()
        self.stopping = Event()
        self.users: Callable[[], int] = lambda: 0
        self.in_flight = 0
        self.numbers = itertools.count()
        self.broken = ""
        """What a user of this program died of, which is a fault of the program's."""
        self._interval = Interval(0.0)
        self._file = file

    def now(self) -> float:
        """Seconds since the load began."""
        return time.monotonic() - self.began

    def caller(self, *names: object) -> Caller:
        return Caller(self.plan, self.scenario, self.now, chance_of(self.plan, *names))

    def due(self) -> None:
        """A request is due."""
        self._interval.offered += 1
        self.in_flight += 1

    def ended(self, asked: Asked) -> None:
        """A request that was due has ended, one way or the other."""
        self.in_flight -= 1
        one = self._interval
        if asked.ok:
            one.served += 1
            one.tokens += asked.tokens
            _count(one.latency, latency.bucket(asked.duration_s))
            if asked.first_token_s is not None:
                _count(one.first_token, latency.bucket(asked.first_token_s))
        else:
            one.failed += 1
            one.errors[asked.error] = one.errors.get(asked.error, 0) + 1
        one.retried += asked.attempts - 1
        if self._file is not None:
            self._file.write(json.dumps(asdict(asked)) + "\n")

    def died(self, exception: BaseException) -> None:
        """A user of this program died of that."""
        self.broken = f"{type(exception).__name__}: {exception}"
        self.stopping.set()

    def give_up(self) -> None:
        """What has not ended will not any more."""
        for _ in range(self.in_flight):
            now = self.now()
            self.ended(Asked(now, now, 0.0, ok=False, status=0, error="given up: the load ended before its answer"))

    def tell(self) -> None:
        """What happened since it was told last."""
        now = self.now()
        done, self._interval = self._interval, Interval(0.0)
        done.time_s, done.in_flight, done.users = now, self.in_flight, self.users()
        say({"kind": "interval", **asdict(done)})


def _count(counts: dict[int, int], key: int) -> None:
    counts[key] = counts.get(key, 0) + 1


def say(line: dict[str, Any]) -> None:
    """One line for whoever listens; where nobody does any more, the load ends."""
    try:
        print(json.dumps(line), flush=True)
    except BrokenPipeError:
        os._exit(1)


class _Asking(User):
    """What users of both kinds have in common: the load, which Locust's environment carries."""

    abstract = True
    _state: str | None

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.load: Load = environment.load

    def stop(self, force: bool = False) -> bool:  # noqa: FBT001, FBT002 - as in Locust's own
        """Locust kills a user that thinks at once, and may hit the request that it has just begun to make."""
        if force or self._state is None:
            return bool(super().stop(force))
        self._state = LOCUST_STATE_STOPPING
        return False

    def report(self, asked: Asked) -> None:
        """Locust's own event: whatever listens to it hears of each request."""
        self.environment.events.request.fire(
            request_type=self.load.plan.scenario,
            name=self.load.plan.model,
            response_time=asked.duration_s * 1000,
            response_length=asked.tokens,
            exception=None if asked.ok else RuntimeError(asked.error),
            context={"asked": asked},
        )


class Waiting(_Asking):
    """A user of the closed model: asks, waits for the answer, thinks, asks again."""

    def on_start(self) -> None:
        self.caller = self.load.caller("user", next(self.load.numbers))

    def on_stop(self) -> None:
        self.caller.close()

    @task
    def ask(self) -> None:
        self.load.due()
        self.report(self.caller.ask())


class Sending(_Asking):
    """The open model: requests come when they are due, whether those before them were answered or not."""

    @task
    def send(self) -> None:
        plan = self.load.plan
        points = [(time_s, rate / plan.parts) for time_s, rate in plan.points]
        chance = None if plan.even else chance_of(plan, "arrivals")
        idle: list[Caller] = []
        asking = Group()
        for number, due_s in enumerate(arrivals.arrivals(points, plan.duration_s, chance)):
            if self.load.stopping.wait(max(due_s - self.load.now(), 0)):
                break
            self.load.due()
            if len(asking) >= IN_FLIGHT_MOST:
                error = f"not sent: {IN_FLIGHT_MOST} are not answered yet"
                self.report(Asked(due_s, due_s, 0.0, ok=False, status=0, error=error))
                continue
            asking.add(gevent.spawn(self._ask, idle.pop() if idle else self.load.caller("sent", number), due_s, idle))
        if not self.load.stopping.is_set():
            self.load.stopping.wait(max(plan.duration_s - self.load.now(), 0))
        asking.join(timeout=plan.timeout_s + MARGIN_S)
        asking.kill()
        self.environment.runner.quit()

    def _ask(self, caller: Caller, due_s: float, idle: list[Caller]) -> None:
        self.report(caller.ask(due_s))
        idle.append(caller)


def _shape(load: Load) -> LoadTestShape:
    class Shape(LoadTestShape):
        """As many users as the plan's line says, and none after its end."""

        def tick(self) -> tuple[int, float] | None:
            now = load.now()
            if now >= load.plan.duration_s or load.stopping.is_set():
                return None
            users = load.plan.users(now)
            return users, max(users, 100)

    return Shape()


def make(plan: Plan) -> str:
    """Makes the load to its end; returns what was wrong with this program, if anything was."""
    with Path(plan.requests_file or os.devnull).open("w", encoding="utf-8") as file:
        load = Load(plan, file if plan.requests_file else None)
        closed = plan.arrivals == "closed"
        environment = Environment(
            user_classes=[Waiting if closed else Sending],
            shape_class=_shape(load) if closed else None,
            stop_timeout=plan.timeout_s + MARGIN_S,
            reset_stats=False,
        )
        environment.load = load
        Waiting.wait_time = constant(plan.think_s)
        environment.events.request.add_listener(lambda context, **_: load.ended(context["asked"]))
        environment.events.user_error.add_listener(lambda exception, **_: load.died(exception))
        for number in (signal.SIGINT, signal.SIGTERM):
            gevent.signal_handler(number, load.stopping.set)
        runner = environment.create_local_runner()
        load.users = (lambda: int(runner.user_count)) if closed else (lambda: 0)
        _reach(plan)
        load.began = time.monotonic()
        say({"kind": "start", "monotonic_s": load.began})
        telling = gevent.spawn(_telling, load)
        if closed:
            runner.start_shape()
            while runner.shape_greenlet is not None and runner.shape_greenlet:
                gevent.sleep(0.1)
            runner.quit()
        else:
            runner.start(1, spawn_rate=1)
            runner.greenlet.join()
        telling.kill()
        load.give_up()
        load.tell()
        say({"kind": "end", "time_s": load.now()})
        return load.broken


def _reach(plan: Plan) -> None:
    """Waits until the Service takes a connection: the policies of a pod that is new take a moment to let it out."""
    until = time.monotonic() + REACH_S
    while True:
        try:
            socket.create_connection((plan.host, plan.port), timeout=REACH_S).close()
        except OSError as error:
            if time.monotonic() > until:
                raise UnreachedError(f"{plan.host}:{plan.port} takes no connection: {error}") from error
            gevent.sleep(0.5)
        else:
            return


def _telling(load: Load) -> None:
    due_s = INTERVAL_S
    while True:
        gevent.sleep(max(due_s - load.now(), 0))
        due_s += INTERVAL_S
        load.tell()


def main() -> int:
    setup_logging("WARNING", None)
    if "--help" in sys.argv:
        print(__doc__)
        return 0
    source = Path(sys.argv[1]).read_text(encoding="utf-8") if len(sys.argv) > 1 else sys.stdin.read()
    try:
        plan = Plan.of(source)
    except (NotOursError, ValueError, TypeError, KeyError) as error:
        print(f"error: this is no plan of a load: {error}", file=sys.stderr)
        return 2
    index = os.environ.get(INDEX_VARIABLE)
    try:
        broken = make(plan if index is None else replace(plan, part=int(index)))
    except UnreachedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    if broken:
        print(f"error: a user of the load died of {broken}", file=sys.stderr)
    return 3 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
