"""What verification runs inside the cluster, as a client of the fleet or of its store.

It runs from a ConfigMap in any image that has Python 3, numpy and tritonclient, NVIDIA's SDK image among them, and
imports nothing else. It knows no model: what to check, and what to expect, it is told. Each result is one line of JSON
behind `@check `; all other lines are for people. Its exit status says only whether it got to its end.
"""

# ruff: noqa: ANN401, PLC0415 - no type here outlives a call, and a Job imports only what its task needs

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, Protocol

RECORD_PREFIX = "@check "
PORTS = {"http": 8000, "grpc": 8001}
RETRY_S = 1.0
CALL_TIMEOUT_S = 10.0
PARALLEL = 8
SPEAKING = threading.Lock()
"""Held while a result is printed: several checks end at once, and a line must stay a line."""
STALE_S = 3600
"""Age in seconds at which a file that an earlier run left in the store is removed."""


class WrongAnswerError(Exception):
    """The check got an answer, and it is wrong: asking again would not help."""


class NotYetError(Exception):
    """Not true so far; asked again until the deadline."""


class Client(Protocol):
    """What a check needs of Triton, whatever the protocol."""

    def live(self) -> bool: ...
    def ready(self) -> bool: ...
    def index(self) -> list[dict[str, Any]]: ...
    def version_ready(self, model: str, version: int) -> bool: ...
    def infer(self, model: str, version: int, case: dict[str, Any]) -> list[Any]: ...
    def count(self, model: str, version: int) -> int: ...
    def close(self) -> None: ...


def array(given: dict[str, Any]) -> Any:
    """An input's values as tritonclient takes them."""
    numpy: Any = importlib.import_module("numpy")
    kinds = {"BOOL": "bool", "BYTES": "object", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
    kind = kinds.get(given["datatype"], given["datatype"].lower())
    values = [value.encode() if isinstance(value, str) else value for value in given["data"]]
    return numpy.array(values, dtype=numpy.dtype(kind)).reshape(given["shape"])


def flat(output: Any, name: str) -> list[Any]:
    """An output's values as JSON would have them."""
    if output is None:
        raise WrongAnswerError(f"the answer has no output {name!r}")
    values = output.reshape(-1).tolist()
    return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]


class HttpClient:
    """Triton over HTTP; each object is one connection."""

    def __init__(self, host: str) -> None:
        import tritonclient.http as library

        self._triton = library
        self._client = library.InferenceServerClient(
            f"{host}:{PORTS['http']}", connection_timeout=CALL_TIMEOUT_S, network_timeout=CALL_TIMEOUT_S
        )

    def live(self) -> bool:
        return bool(self._client.is_server_live())

    def ready(self) -> bool:
        return bool(self._client.is_server_ready())

    def index(self) -> list[dict[str, Any]]:
        return list(self._client.get_model_repository_index())

    def version_ready(self, model: str, version: int) -> bool:
        return bool(self._client.is_model_ready(model, str(version)))

    def infer(self, model: str, version: int, case: dict[str, Any]) -> list[Any]:
        inputs = []
        for given in case["inputs"]:
            tensor = self._triton.InferInput(given["name"], list(given["shape"]), given["datatype"])
            tensor.set_data_from_numpy(array(given))
            inputs.append(tensor)
        answer = self._client.infer(model, inputs, model_version=str(version))
        return flat(answer.as_numpy(case["output"]), case["output"])

    def count(self, model: str, version: int) -> int:
        found = self._client.get_inference_statistics(model, str(version))
        return sum(int(one.get("inference_count", 0)) for one in found["model_stats"])

    def close(self) -> None:
        self._client.close()


class GrpcClient:
    """Triton over gRPC; each object is one connection."""

    def __init__(self, host: str) -> None:
        import tritonclient.grpc as library

        self._triton = library
        self._client = library.InferenceServerClient(f"{host}:{PORTS['grpc']}")

    def live(self) -> bool:
        return bool(self._client.is_server_live(client_timeout=CALL_TIMEOUT_S))

    def ready(self) -> bool:
        return bool(self._client.is_server_ready(client_timeout=CALL_TIMEOUT_S))

    def index(self) -> list[dict[str, Any]]:
        found = self._client.get_model_repository_index(as_json=True, client_timeout=CALL_TIMEOUT_S)
        return list(found.get("models", []))

    def version_ready(self, model: str, version: int) -> bool:
        return bool(self._client.is_model_ready(model, str(version), client_timeout=CALL_TIMEOUT_S))

    def infer(self, model: str, version: int, case: dict[str, Any]) -> list[Any]:
        inputs = []
        for given in case["inputs"]:
            tensor = self._triton.InferInput(given["name"], list(given["shape"]), given["datatype"])
            tensor.set_data_from_numpy(array(given))
            inputs.append(tensor)
        answer = self._client.infer(model, inputs, model_version=str(version), client_timeout=CALL_TIMEOUT_S)
        return flat(answer.as_numpy(case["output"]), case["output"])

    def count(self, model: str, version: int) -> int:
        found = self._client.get_inference_statistics(model, str(version), as_json=True, client_timeout=CALL_TIMEOUT_S)
        return sum(int(one.get("inference_count", 0)) for one in found.get("model_stats", []))

    def close(self) -> None:
        self._client.close()


def triton(protocol: str, host: str) -> Client:
    """A new connection."""
    return HttpClient(host) if protocol == "http" else GrpcClient(host)


def judge(case: dict[str, Any], got: list[Any]) -> str:
    """Compares an answer with the known one; says how close it is. Raises WrongAnswerError where it is another."""
    expected, tolerance, output = case["expected"], case["tolerance"], case["output"]
    if len(got) != len(expected):
        raise WrongAnswerError(f"{output} has {len(got)} values, not {len(expected)}")
    worst, at = 0.0, 0
    for index, (mine, known) in enumerate(zip(got, expected, strict=True)):
        if isinstance(known, str) or isinstance(mine, str):
            if mine != known:
                raise WrongAnswerError(f"{output}[{index}] is {mine!r}, not {known!r}")
            continue
        if not math.isfinite(mine):
            raise WrongAnswerError(f"{output}[{index}] is {mine}, not {known}")
        if abs(mine - known) > worst:
            worst, at = abs(mine - known), index
    if worst > tolerance:
        raise WrongAnswerError(
            f"{output} differs from the known answer by {worst:.3g} (tolerance {tolerance:g}): "
            f"[{at}] is {got[at]:.6g}, not {expected[at]:.6g}"
        )
    return f"{len(got)} values, largest difference {worst:.2g} (tolerance {tolerance:g})"


class Checks:
    """The kinds of check. Each says what it saw, or raises NotYetError if waiting may help, else WrongAnswerError."""

    def __init__(self, cases: dict[str, list[dict[str, Any]]], connect: Any = None, resolve: Any = None) -> None:
        self._cases = cases
        self._connect = connect or triton
        self._resolve = resolve or addresses_of

    def resolve(self, host: str, addresses: list[str] | None) -> str:
        got = self._resolve(host)
        if addresses is None:
            return f"{host} is {', '.join(got)}"
        missing = sorted(set(addresses) - set(got))
        extra = sorted(set(got) - set(addresses))
        if missing or extra or not got:
            raise NotYetError(
                f"{host} is {', '.join(got) or 'nothing'}; "
                f"missing {', '.join(missing) or 'none'}, unexpected {', '.join(extra) or 'none'}"
            )
        return f"{host} names {len(got)} replicas"

    def live(self, host: str, protocol: str) -> str:
        if not self._ask(protocol, host, lambda client: client.live()):
            raise NotYetError("the server says that it is not live")
        return "live"

    def ready(self, host: str, protocol: str) -> str:
        if not self._ask(protocol, host, lambda client: client.ready()):
            raise NotYetError("the server says that it is not ready")
        return "ready"

    def index(self, host: str, protocol: str, model: str, version: int) -> str:
        found = self._ask(protocol, host, lambda client: client.index())
        wanted = (model, str(version), "READY")
        if not any((one.get("name"), str(one.get("version")), one.get("state")) == wanted for one in found):
            parts = [[one.get(key) for key in ("name", "version", "state", "reason")] for one in found]
            shown = ", ".join(" ".join(str(part) for part in each if part) for each in parts)
            raise NotYetError(f"it does not list {model} version {version} as READY but: {shown or 'nothing'}")
        return f"{model} version {version} is READY"

    def version(self, host: str, protocol: str, model: str, version: int) -> str:
        if not self._ask(protocol, host, lambda client: client.version_ready(model, version)):
            raise NotYetError(f"model {model} version {version} is not READY on this replica")
        return f"model {model} version {version} is READY"

    def answer(self, host: str, protocol: str, model: str, version: int) -> str:
        said = [
            judge(case, self._ask(protocol, host, lambda client, case=case: client.infer(model, version, case)))
            for case in self._cases[model]
        ]
        return f"{len(said)} known answers: {said[0]}" if len(said) > 1 else said[0]

    def spread(self, host: str, model: str, version: int, replicas: dict[str, str], skus: list[str]) -> str:
        """Sends requests, each on a connection of its own, until replicas of each SKU have answered."""
        before = self._counts(model, version, replicas)
        case = self._cases[model][0]
        sent, until = 0, time.monotonic() + self.spread_s
        while True:
            for _ in range(max(4, 4 * len(replicas))):
                self._ask("http", host, lambda client: client.infer(model, version, case))
                sent += 1
            after = self._counts(model, version, replicas)
            answered = dict.fromkeys(skus, 0)
            for address, sku in replicas.items():
                answered[sku] = answered.get(sku, 0) + after[address] - before[address]
            shown = ", ".join(f"{sku} {count}" for sku, count in sorted(answered.items()))
            if all(answered[sku] > 0 for sku in skus):
                return f"{sent} requests to {host}: {shown}"
            if time.monotonic() > until:
                raise WrongAnswerError(f"{sent} requests to {host}, each on a new connection: {shown}")

    spread_s = 20.0

    def _counts(self, model: str, version: int, replicas: dict[str, str]) -> dict[str, int]:
        return {
            address: self._ask("http", address, lambda client: client.count(model, version)) for address in replicas
        }

    def _ask(self, protocol: str, host: str, question: Any) -> Any:
        client = self._connect(protocol, host)
        try:
            return question(client)
        finally:
            client.close()


def addresses_of(host: str) -> list[str]:
    """The addresses of a name, asked of the resolver as any client would."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except socket.gaierror as error:
        raise NotYetError(f"{host} does not resolve: {error.strerror}") from error


def attempt(check: Any, arguments: dict[str, Any], deadline_s: float) -> tuple[bool, str]:
    """Makes a check until it holds, cannot hold any more, or the deadline has passed."""
    until = time.monotonic() + deadline_s
    while True:
        try:
            return True, check(**arguments)
        except WrongAnswerError as error:
            return False, str(error)
        except Exception as error:  # noqa: BLE001 - whatever the client libraries raise is the check's result
            reason = str(error) if isinstance(error, NotYetError) else f"{type(error).__name__}: {error}"
        if time.monotonic() + RETRY_S > until:
            return False, f"{reason} (tried for {deadline_s:g} s)"
        time.sleep(RETRY_S)


def record(name: str, seconds: float, reason: str, *, ok: bool) -> None:
    """Prints one result: for people, and for the runner."""
    text = " ".join(reason.split())
    result = json.dumps({"name": name, "ok": ok, "seconds": round(seconds, 3), "reason": text})
    with SPEAKING:
        print(f"{'ok  ' if ok else 'FAIL'}  {name}  {seconds:.2f} s  {text}")
        print(RECORD_PREFIX + result, flush=True)


def run_client(checks: list[dict[str, Any]], doer: Checks, deadline_s: float) -> None:
    """Makes all checks, several at a time; those that count requests come last and alone."""

    def timed(check: dict[str, Any]) -> None:
        started = time.monotonic()
        ok, reason = attempt(getattr(doer, check["kind"]), check["arguments"], deadline_s)
        record(check["name"], time.monotonic() - started, reason, ok=ok)

    pool = ThreadPoolExecutor(max_workers=PARALLEL)
    together = [check for check in checks if check["kind"] != "spread"]
    started = {check["name"]: pool.submit(timed, check) for check in together}
    for name, future in started.items():
        try:
            future.result(timeout=deadline_s + CALL_TIMEOUT_S * PARALLEL)
        except FutureTimeout:
            record(name, deadline_s, f"no answer within {deadline_s:g} s", ok=False)
    for check in checks:
        if check["kind"] == "spread":
            timed(check)
    pool.shutdown(wait=False)


def write(folder: Path, token: str) -> str:
    """Writes the token into the store under its own name, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.iterdir():
        if time.time() - left.stat().st_mtime > STALE_S:
            left.unlink(missing_ok=True)
    part = folder / f".{token}.part"
    with part.open("w") as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / token)
    return f"wrote {folder / token}"


def read(folder: Path, token: str) -> str:
    """Reads what another pod wrote; a shared file system may show it a little later."""
    try:
        got = (folder / token).read_text()
    except FileNotFoundError as error:
        raise NotYetError(f"{folder / token} is not there: this node does not see the same store") from error
    if got != token:
        raise NotYetError(f"{folder / token} holds {got[:80]!r}, not what was written")
    return f"read {folder / token}"


def main() -> int:
    """The command line of verification's Jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["client", "write", "read"])
    parser.add_argument("--deadline-s", type=float, required=True)
    parser.add_argument("--name", help="name of the check (write, read)")
    parser.add_argument("--folder", type=Path, help="folder in the store (write, read)")
    parser.add_argument("--token", help="what is written and read (write, read)")
    parser.add_argument("--cases", type=Path, help="the known answers, by model (client)")
    parser.add_argument("--checks", action="append", help="the checks as JSON, in as many pieces as it takes (client)")
    args = parser.parse_args()
    if args.what == "client":
        cases = json.loads(args.cases.read_text())
        run_client(json.loads("".join(args.checks)), Checks(cases), args.deadline_s)
    else:
        started = time.monotonic()
        does = write if args.what == "write" else read
        ok, reason = attempt(does, {"folder": args.folder, "token": args.token}, args.deadline_s)
        record(args.name, time.monotonic() - started, reason, ok=ok)
    sys.stdout.flush()
    # A client library that hangs in a thread must not keep the Job alive.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
