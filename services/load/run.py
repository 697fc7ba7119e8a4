"""Runs a load in a process of its own, since Locust changes how sockets wait; for `make load`, tests and benchmarks."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from fleet.load.plan import Asked, Interval, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PROJECT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 60
"""A busy machine may take so long to start the program."""
MARGIN_S: Final = 60
"""Beyond a load's own end and time-out, after which its program is stuck."""


class LoadError(Exception):
    """The program that makes the load did not; the text says what it said."""


@dataclass(slots=True)
class Told:
    """What a program has told so far. `began_s` is of this machine's monotonic clock."""

    began_s: float | None = None
    intervals: list[Interval] = field(default_factory=list)
    ended: bool = False

    def hear(self, line: str) -> Interval | None:
        """Takes a line; the interval that it tells of, if it is one."""
        try:
            said = json.loads(line)
            kind = said.pop("kind")
        except (ValueError, KeyError, AttributeError, TypeError):
            return None
        if kind == "start":
            self.began_s = said["monotonic_s"]
        elif kind == "end":
            self.ended = True
        elif kind == "interval":
            interval = Interval.of(said)
            self.intervals.append(interval)
            return interval
        return None


@dataclass(frozen=True, slots=True)
class Made:
    """A load that was made. `requests` is empty unless they were asked for."""

    plan: Plan
    began_s: float
    intervals: tuple[Interval, ...]
    requests: tuple[Asked, ...]

    @property
    def failures(self) -> list[Asked]:
        return [one for one in self.requests if not one.ok]


class Running:
    """A load that is being made. On leaving, a load that still runs is ended, and waited for but after an interrupt."""

    def __init__(self, plan: Plan, heard: Callable[[Interval], None] | None = None, *, requests: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="triton-fleet-load-")
        self.plan = replace(plan, requests_file=str(Path(self._folder.name, "requests.jsonl")) if requests else "")
        self.told = Told()
        self._heard = heard
        self._started = threading.Event()
        self._log = Path(self._folder.name, "log")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "services.load.program"],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # An interrupt of the terminal reaches whoever started this, who decides.
                start_new_session=True,
            )
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        self._process.stdin.write(self.plan.text())
        self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._process.poll() is None:
            if kind is KeyboardInterrupt:
                self._process.kill()
            else:
                self.stop()
            try:
                self._process.wait(timeout=self.plan.timeout_s + MARGIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(timeout=MARGIN_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def started(self) -> float:
        """When the load began, of the monotonic clock; waits for it."""
        if not self._started.wait(timeout=START_S) or self.told.began_s is None:
            raise LoadError(f"the load did not begin: {self._said()}")
        return self.told.began_s

    def stop(self) -> None:
        """Nothing more is asked; what was asked is still waited for."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def made(self) -> Made:
        """Waits for the load's end."""
        began_s = self.started()
        longest_s = self.plan.duration_s + self.plan.timeout_s + MARGIN_S
        try:
            status = self._process.wait(timeout=longest_s)
        except subprocess.TimeoutExpired as error:
            raise LoadError(f"the load did not end within {longest_s:.0f} s: {self._said()}") from error
        self._reader.join(timeout=MARGIN_S)
        if status != 0 or not self.told.ended:
            raise LoadError(f"the load ended with status {status}: {self._said()}")
        return Made(self.plan, began_s, tuple(self.told.intervals), tuple(self._requests()))

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        for line in self._process.stdout:
            interval = self.told.hear(line)
            if self.told.began_s is not None:
                self._started.set()
            if interval is not None and self._heard is not None:
                self._heard(interval)
        self._started.set()

    def _requests(self) -> Iterable[Asked]:
        if not self.plan.requests_file:
            return
        with Path(self.plan.requests_file).open(encoding="utf-8") as lines:
            for line in lines:
                yield Asked(**json.loads(line))

    def _said(self) -> str:
        return self._log.read_text(errors="replace").strip()[-1000:] or "it said nothing"


def run(plan: Plan) -> Made:
    """Makes a load from its beginning to its end, with each request."""
    with Running(plan) as running:
        return running.made()
