"""What is asked of a model, and whether what came back is an answer. Needs Python alone.

Triton's HTTP protocol: https://github.com/triton-inference-server/server/tree/main/docs/protocol (KServe v2, and the
generate extension).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from fleet.load.plan import Plan

_WORDS: Final = """
a the river mountain city train winter music garden engine letter window market island doctor bridge forest holiday
kitchen teacher planet storm paper silver travels builds carries answers follows remembers opens under between without
toward quiet early bright heavy ancient gentle narrow because although while whenever slowly often
"""
WORDS: Final = tuple(_WORDS.split())
MEAN_WORDS: Final = 12
"""Most texts are short and some are long, as people's are: lengths are distributed exponentially."""
MOST_WORDS: Final = 60
SAID_CHARS: Final = 120
EVENT: Final = b"data:"
"""What each line of a stream begins with: https://html.spec.whatwg.org/multipage/server-sent-events.html"""


class NoAnswerError(Exception):
    """What came back is no answer; the text says what it lacks."""


class Scenario(Protocol):
    """A way to ask. `read` takes the lines of an answer with status 200 and returns how many tokens they brought; it
    calls `first` when the first one has.
    """

    @property
    def path(self) -> str: ...
    def body(self, chance: random.Random) -> bytes: ...
    def read(self, lines: Iterable[bytes], first: Any) -> int: ...  # noqa: ANN401 - a callback without arguments


def text(chance: random.Random) -> str:
    """Some words."""
    count = min(1 + int(chance.expovariate(1 / MEAN_WORDS)), MOST_WORDS)
    return " ".join(chance.choice(WORDS) for _ in range(count))


class Infer:
    """One inference; the inputs are those of a known request, but texts, which differ each time."""

    def __init__(self, plan: Plan) -> None:
        self.path = f"/v2/models/{plan.model}/infer"
        self._inputs = plan.case["inputs"]
        self._output: str = plan.case["output"]
        self._values: int = plan.case["values"]

    def body(self, chance: random.Random) -> bytes:
        inputs = [
            {**given, "data": [text(chance) for _ in given["data"]]} if given["datatype"] == "BYTES" else given
            for given in self._inputs
        ]
        return json.dumps({"inputs": inputs}).encode()

    def read(self, lines: Iterable[bytes], first: Any) -> int:  # noqa: ANN401, ARG002 - as the protocol says
        answer = _json(b"".join(lines))
        found = next((one for one in answer.get("outputs", ()) if one.get("name") == self._output), None)
        if found is None:
            raise NoAnswerError(f"no output {self._output}")
        values, shape = len(found.get("data", ())), found.get("shape", [])
        if values != self._values or not shape or shape[-1] * shape[0] != values:
            raise NoAnswerError(f"{self._output} has {values} values and shape {shape}, not {self._values} values")
        return 0


class Generate:
    """A text for a text, whole."""

    def __init__(self, plan: Plan) -> None:
        self.path = f"/v2/models/{plan.model}/generate"
        self._max_tokens = plan.max_tokens

    def body(self, chance: random.Random) -> bytes:
        return _prompt(chance, self._max_tokens, stream=False)

    def read(self, lines: Iterable[bytes], first: Any) -> int:  # noqa: ANN401, ARG002 - as the protocol says
        _written(_json(b"".join(lines)))
        return 0


class GenerateStream:
    """A text for a text, as it is written: each event counts as one token."""

    def __init__(self, plan: Plan) -> None:
        self.path = f"/v2/models/{plan.model}/generate_stream"
        self._max_tokens = plan.max_tokens

    def body(self, chance: random.Random) -> bytes:
        return _prompt(chance, self._max_tokens, stream=True)

    def read(self, lines: Iterable[bytes], first: Any) -> int:  # noqa: ANN401 - as the protocol says
        tokens = 0
        for line in lines:
            if not line.startswith(EVENT):
                if line.strip():
                    raise NoAnswerError(f"a line of the stream is no event: {_said(line)}")
                continue
            _written(_json(line.removeprefix(EVENT)))
            tokens += 1
            if tokens == 1:
                first()
        if tokens == 0:
            raise NoAnswerError("the stream ended without an event")
        return tokens


def of(plan: Plan) -> Scenario:
    """The scenario of a plan."""
    kinds: dict[str, Any] = {"infer": Infer, "generate": Generate, "generate_stream": GenerateStream}
    scenario: Scenario = kinds[plan.scenario](plan)
    return scenario


def _prompt(chance: random.Random, max_tokens: int, *, stream: bool) -> bytes:
    return json.dumps({"text_input": text(chance), "max_tokens": max_tokens, "stream": stream}).encode()


def _written(answer: dict[str, Any]) -> None:
    if "error" in answer:
        raise NoAnswerError(f"the model says: {str(answer['error'])[:SAID_CHARS]}")
    if not isinstance(answer.get("text_output"), str):
        raise NoAnswerError(f"no text_output, but {', '.join(sorted(answer)) or 'nothing'}")


def _json(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswerError(f"the answer is no JSON object: {_said(body)}")
    return answer


def _said(body: bytes) -> str:
    return body[:SAID_CHARS].decode(errors="replace").strip() or "nothing"
