"""Clients of the model, of several kinds, that go on while its replicas come and go, and say how each request ended.

It runs in a pod, from its own text, in an image that has Python 3, numpy and tritonclient, and imports nothing else.

- `callers.py load <host> <kind>...`: until it is killed. One line for each request.
- `callers.py long <host> <at> <seconds>`: at that time one request over HTTP and one over gRPC, of so many seconds.
"""

# ruff: noqa: T201 - its output is the result

from __future__ import annotations

import http.client
import importlib
import json
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL = "minilm"
PORTS = {"http": 8000, "grpc": 8001}
SHORT_S = 0.05
PAUSE_S = 0.1
EACH = 2
"""Callers of each kind."""
CONNECTION_AGE_S = 10
"""As long as a client that keeps connections, and knows that replicas go, may keep one."""
TIMEOUT_S = 60
RETRIES = 20
RETRY_S = 0.25
PROBE_PORTS = (20000, 30000)
IN_A_ROW = 20
"""Any node's filter may be the last; that none of so many connections meets it has a chance of 1 in a million."""
SPEAKING = threading.Lock()


class WrongAnswerError(Exception):
    """An answer, but not an embedding."""


class HttpCaller:
    """HTTP on connections that live for `age_s`: 0 is one for each request, None one for as long as it works."""

    def __init__(self, host: str, age_s: float | None) -> None:
        self._host, self._age_s = host, age_s
        self._connection: http.client.HTTPConnection | None = None
        self._opened = 0.0

    def __call__(self, takes_s: float) -> None:
        if self._age_s is not None and time.monotonic() - self._opened >= self._age_s:
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, PORTS["http"], timeout=TIMEOUT_S)
            self._opened = time.monotonic()
        text = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [f"sleep {takes_s}"]}
        try:
            self._connection.request("POST", f"/v2/models/{MODEL}/infer", json.dumps({"inputs": [text]}))
            answer = self._connection.getresponse()
            body = answer.read()
        except Exception:
            self.close()
            raise
        if answer.status != http.HTTPStatus.OK or json.loads(body)["outputs"][0]["shape"] != [1, 384]:
            raise WrongAnswerError(f"HTTP {answer.status}: {body[:200]!r}")

    def close(self) -> None:
        """The next request opens a new connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class GrpcCaller:
    """tritonclient over gRPC with a connection of its own, which the callers of one process would share."""

    def __init__(self, host: str) -> None:
        self._library: Any = importlib.import_module("tritonclient.grpc")
        self._numpy: Any = importlib.import_module("numpy")
        self._client = self._library.InferenceServerClient(
            f"{host}:{PORTS['grpc']}", channel_args=[("grpc.use_local_subchannel_pool", 1)]
        )

    def __call__(self, takes_s: float) -> None:
        given = self._library.InferInput("TEXT", [1, 1], "BYTES")
        given.set_data_from_numpy(self._numpy.array([[f"sleep {takes_s}".encode()]], dtype=object))
        answer = self._client.infer(MODEL, [given], client_timeout=TIMEOUT_S)
        if answer.as_numpy("EMBEDDING").shape != (1, 384):
            raise WrongAnswerError(str(answer.get_response()))


def retried(caller: Callable[[float], None]) -> Callable[[float], None]:
    """A client that asks again."""

    def call(takes_s: float) -> None:
        for left in reversed(range(RETRIES)):
            try:
                return caller(takes_s)
            except Exception:
                if not left:
                    raise
                time.sleep(RETRY_S)
        raise AssertionError

    return call


KINDS: dict[str, Callable[[str], Callable[[float], None]]] = {
    "http": lambda host: HttpCaller(host, 0),
    "http-aged": lambda host: HttpCaller(host, CONNECTION_AGE_S),
    "http-kept": lambda host: HttpCaller(host, None),
    "grpc": GrpcCaller,
    "http-retried": lambda host: retried(HttpCaller(host, CONNECTION_AGE_S)),
    "grpc-retried": lambda host: retried(GrpcCaller(host)),
}


def call(kind: str, caller: Callable[[float], None], takes_s: float) -> None:
    """One request, and a line that says how it ended."""
    began, error = time.time(), ""
    try:
        caller(takes_s)
    except Exception as failure:  # noqa: BLE001 - whatever a client is told of, it is counted
        error = f"{type(failure).__name__}: {failure}"[:300]
    line = json.dumps([kind, began, time.time() - began, error])
    with SPEAKING:
        print(line, flush=True)


def reach(host: str) -> None:
    """Waits until the filters of all nodes know this pod, from ports that no caller will use.

    What a filter refuses is remembered by the node as a connection that opens, for two minutes: a caller that happened
    to use such a port again would be sent to the replica of then, which may be gone.
    """
    ports = iter(range(*PROBE_PORTS))
    in_a_row = 0
    while in_a_row < IN_A_ROW:
        try:
            socket.create_connection((host, PORTS["http"]), TIMEOUT_S, ("", next(ports))).close()
        except OSError:
            in_a_row = 0
            time.sleep(RETRY_S)
        else:
            in_a_row += 1


def load(host: str, *kinds: str) -> None:
    """All callers of these kinds, for ever."""
    reach(host)

    def run(kind: str) -> None:
        caller = KINDS[kind](host)
        while True:
            call(kind, caller, SHORT_S)
            time.sleep(PAUSE_S)

    threads = [threading.Thread(target=run, args=(kind,)) for kind in kinds for _ in range(EACH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def long(host: str, at: str, takes_s: str) -> None:
    """Requests that are on their way to one replica from that time on."""
    callers = {kind: KINDS[kind](host) for kind in ("http", "grpc")}
    time.sleep(max(0.0, float(at) - time.time()))
    threads = [
        threading.Thread(target=call, args=(f"{kind}-long", caller, float(takes_s))) for kind, caller in callers.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(*sys.argv[2:])
    else:
        long(*sys.argv[2:])
