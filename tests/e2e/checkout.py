"""A copy of the project as a stranger would clone it, and its commands run as a stranger would run them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".fleet" / "e2e"
"""In the project, so that it lies on the disk that was measured, and always the same, so that a run that was
killed is cleared by the next."""
COMMAND_TIMEOUT_S = 900
REQUEST_TIMEOUT_S = 10

# What a user's shell may hold; none of it may reach the product.
AMBIENT = {
    "KUBECONFIG": "/nowhere/kubeconfig",
    "PULUMI_BACKEND_URL": "https://backend.invalid",
    "PULUMI_STACK": "other",
}


@dataclass
class Done:
    """A finished command: its exit status, and all it printed."""

    status: int
    text: str


@dataclass
class Checkout:
    """A working copy in its own folder; `log` collects what its commands print, for reading after a failure."""

    succeeded: ClassVar[list[tuple[str, ...]]] = []
    """Arguments of every make that ended well, in whichever copy."""

    folder: Path
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder.with_suffix(".log")

    @classmethod
    def make_copy(cls, folder: Path) -> Checkout:
        """Copy every file that git would commit; share the Python environment, which make would make again."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            source = PROJECT / name
            if source.is_file():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        (folder / ".venv").symlink_to(PROJECT / ".venv")
        return cls(folder)

    def make(self, *arguments: str, environment: dict[str, str] | None = None, stdin: str = "") -> Done:
        """Run make in the copy; prints nothing itself, keeps everything in the log."""
        done = self.run(["make", "--no-print-directory", *arguments], environment=environment, stdin=stdin)
        if done.status == 0:
            self.succeeded.append(arguments)
        return done

    def run(self, argv: list[str], environment: dict[str, str] | None = None, stdin: str = "") -> Done:
        began = time.monotonic()
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env={**os.environ, **AMBIENT, **(environment or {})},
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(f"\n$ {' '.join(argv)}\n{done.stdout}\n[status {done.returncode}]\n")
        taken_s = time.monotonic() - began
        sys.stderr.write(f"\n  {' '.join(argv)}: status {done.returncode}, {taken_s:.0f} s")
        return Done(done.returncode, done.stdout)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / ".fleet" / "kubeconfig"

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Output of kubectl on the copy's cluster; fails with what it said."""
        described = json.loads((self.folder / ".fleet" / "cluster" / "described.json").read_text())
        done = subprocess.run(
            [described["binaries"]["kube"], "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def objects(self, kinds: str, namespace: str = "triton-local") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(
            self.kubectl("get", kinds, f"--namespace={namespace}", "--output=json")
        )["items"]
        return items

    def triton_pods(self) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.objects("pods")
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "triton"
        ]

    def service_address(self) -> str:
        return str(
            self.kubectl("get", "service", "minilm", "--namespace=triton-local", "--output=jsonpath={.spec.clusterIP}")
        )

    def replace(self, path: str, old: str, new: str) -> None:
        """Edit one file of the copy; the text to replace must be there exactly once."""
        file = self.folder / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path} holds {old!r} {text.count(old)} times"
        file.write_text(text.replace(old, new))

    def restore(self, path: str) -> None:
        shutil.copy2(PROJECT / path, self.folder / path)


def known_case() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PROJECT / "model_repo" / "minilm" / "verification.json").read_text())
    return dict(document["cases"][0])


def infer(address: str, text: str | None = None, timeout_s: float = REQUEST_TIMEOUT_S) -> list[float]:
    """One embedding over HTTP, on a connection of its own."""
    case = known_case()
    inputs = (
        case["inputs"] if text is None else [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]}]
    )
    connection = http.client.HTTPConnection(address, 8000, timeout=timeout_s)
    try:
        connection.request("POST", "/v2/models/minilm/infer", body=json.dumps({"inputs": inputs}))
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == http.HTTPStatus.OK, f"HTTP {answer.status}: {body[:200]!r}"
    finally:
        connection.close()
    values: list[float] = json.loads(body)["outputs"][0]["data"]
    return values


class Client:
    """A caller in the background that counts what it got; every answer is compared with the known one."""

    PAUSE_S = 0.1

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = 0
        self.wrong = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        expected = known_case()["expected"]
        while not self._stop.wait(self.PAUSE_S):
            try:
                values = infer(self.address)
                differs = max(abs(got - want) for got, want in zip(values, expected, strict=True))
            # What is no embedding of that length is a failure too, not the end of this caller.
            except (OSError, AssertionError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}")
                continue
            self.answered += 1
            if differs > known_case()["tolerance"]:
                self.wrong += 1


def kill_hard(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 9)
