"""One client: asks, waits for the answer, asks again where it is told to. Needs Python alone.

Whoever runs it in gevent has patched sockets before; nothing here knows.
"""

from __future__ import annotations

import http.client
import random
import time
from typing import TYPE_CHECKING, Final

from fleet.load.plan import Asked
from services.load.scenarios import NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fleet.load.plan import Plan
    from services.load.scenarios import Scenario

RETRIED: Final = frozenset({0, 502, 503, 504})
"""Status of an answer that another replica may better; 0 is none at all."""
RETRY_S: Final = 0.1
RETRY_MOST_S: Final = 2.0
SAID_CHARS: Final = 160


class Caller:
    """A client with at most one connection, which it keeps if the plan says so."""

    def __init__(self, plan: Plan, scenario: Scenario, now: Callable[[], float], chance: random.Random) -> None:
        self._plan = plan
        self._scenario = scenario
        self._now = now
        self._chance = chance
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, intended_s: float | None = None) -> Asked:
        """One request, with its retries; due at `intended_s`, or now."""
        sent_s = self._now()
        due_s = sent_s if intended_s is None else intended_s
        body = self._scenario.body(self._chance)
        attempts = 0
        while True:
            attempts += 1
            status, error, first_s, tokens = self._once(body, sent_s + self._plan.timeout_s)
            left_s = sent_s + self._plan.timeout_s - self._now()
            if not error or status not in RETRIED or attempts > self._plan.retries or left_s <= 0:
                break
            # Not all at once: those who failed together would come back together.
            pause_s = min(RETRY_S * 2 ** (attempts - 1), RETRY_MOST_S) * self._chance.uniform(0.5, 1)
            time.sleep(min(pause_s, left_s))
        return Asked(
            intended_s=due_s,
            sent_s=sent_s,
            duration_s=self._now() - due_s,
            ok=not error,
            status=status,
            error=error,
            attempts=attempts,
            first_token_s=None if first_s is None else first_s - due_s,
            tokens=tokens,
        )

    def _once(self, body: bytes, until_s: float) -> tuple[int, str, float | None, int]:
        """Status, what was wrong, when the first token came, how many came."""
        status, first_s = 0, None
        headers = {"Content-Type": "application/json"}
        if not self._plan.keep_alive:
            headers["Connection"] = "close"

        def first() -> None:
            nonlocal first_s
            first_s = self._now()

        try:
            connection = self._connected(until_s)
            connection.request("POST", self._scenario.path, body, headers)
            answer = connection.getresponse()
            lines = self._lines(connection, answer, until_s)
            if answer.status != http.HTTPStatus.OK:
                said = b"".join(lines)
                self._done(answer)
                return answer.status, f"HTTP {answer.status}: {said[:SAID_CHARS].decode(errors='replace')}", None, 0
            tokens = self._scenario.read(lines, first)
            status = answer.status
            self._done(answer)
        except NoAnswerError as error:
            self.close()
            return int(http.HTTPStatus.OK), str(error), first_s, 0
        except (OSError, http.client.HTTPException) as error:
            self.close()
            # What could not be read to its end is no answer, whatever its first line said.
            return 0, f"{type(error).__name__}: {error}"[:SAID_CHARS], first_s, 0
        return status, "", first_s, tokens

    def _connected(self, until_s: float) -> http.client.HTTPConnection:
        left_s = max(until_s - self._now(), 0.001)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._plan.host, self._plan.port, timeout=left_s)
            self._connection.connect()
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(left_s)
        return self._connection

    def _lines(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, until_s: float
    ) -> Iterator[bytes]:
        """The lines of an answer; TimeoutError where its end does not come in time, however steadily it drips."""
        while line := answer.readline():
            yield line
            left_s = until_s - self._now()
            if left_s <= 0:
                raise TimeoutError("timed out within the answer")
            if connection.sock is not None:
                connection.sock.settimeout(left_s)

    def _done(self, answer: http.client.HTTPResponse) -> None:
        answer.close()
        if answer.will_close or not self._plan.keep_alive:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def chance_of(plan: Plan, *names: object) -> random.Random:
    """Chance of its own for each part of a load and each user: the same seed gives the same requests."""
    return random.Random("/".join(map(str, (plan.seed, plan.part, *names))))  # noqa: S311 - the same each time
