"""Routes and receivers, judged by Alertmanager's own programs (field reports B13, B15, B43, B48)."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fleet import alert_routing
from tests.rules.test_alerts import CASES, GROUPS
from tests.unit.test_alert_routing import CANARY, HOOK, MAIL, PAGER, SLACK, SWITCH, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Raw = dict[str, Any]

DEV_AND_PROD: Raw = {
    "receivers": [SLACK, PAGER, HOOK],
    "routes": [
        {"environment": "dev", "severities": ["critical", "warning", "info"], "receivers": ["chat"]},
        {"environment": "prod", "severities": ["critical"], "receivers": ["pager", "ops-webhook"]},
        {"environment": "prod", "severities": ["warning"], "receivers": ["ops-webhook"]},
    ],
}


def written(path: Path, **alerts: object) -> str:
    file = path / "alertmanager.yaml"
    file.write_text(json.dumps(alert_routing.config(settings(**alerts))))
    return str(file)


@pytest.mark.parametrize(
    "alerts",
    [
        pytest.param({}, id="0 receivers"),
        pytest.param({"receivers": [HOOK]}, id="1 receiver"),
        pytest.param({"receivers": [HOOK, SLACK]}, id="2 receivers"),
        pytest.param({"receivers": [SLACK, PAGER, MAIL, HOOK], "dead_mans_switch": SWITCH}, id="every kind"),
        pytest.param(DEV_AND_PROD, id="two environments"),
    ],
)
def test_alertmanager_takes_the_configuration(tool: Callable[[str], str], tmp_path: Path, alerts: Raw) -> None:
    done = subprocess.run(
        [tool("amtool"), "check-config", written(tmp_path, **alerts)], capture_output=True, text=True, check=False
    )
    receivers = 1 + len(alerts.get("receivers", ())) + ("dead_mans_switch" in alerts)
    assert (done.returncode, f"- {receivers} receivers" in done.stdout) == (0, True), done.stdout + done.stderr


NOBODY = ("null",)
ONE = {"receivers": [HOOK]}
ROUTED = [
    pytest.param({}, "environment=dev namespace=triton-dev severity=critical", NOBODY, id="no receivers"),
    pytest.param(ONE, "environment=dev namespace=triton-dev severity=critical", ("ops-webhook",), id="right"),
    pytest.param(ONE, "environment=dev namespace=triton-dev severity=info", NOBODY, id="info is not asked for"),
    pytest.param(ONE, "environment=dev namespace=triton-dev", NOBODY, id="no severity"),
    pytest.param(ONE, "namespace=triton-dev severity=critical", NOBODY, id="no environment"),
    pytest.param(ONE, "environment=dev severity=critical", NOBODY, id="no namespace"),
    pytest.param(ONE, "environment=prod namespace=triton-dev severity=critical", NOBODY, id="another environment"),
    pytest.param(ONE, "environment=dev2 namespace=triton-dev severity=critical", NOBODY, id="environment dev2"),
    pytest.param(ONE, "environment=dev namespace=triton-dev2 severity=critical", NOBODY, id="namespace with more"),
    pytest.param(ONE, "environment=dev namespace=my-triton-dev severity=critical", NOBODY, id="namespace, more before"),
    pytest.param(ONE, "environment=dev namespace=kube-system severity=critical", NOBODY, id="the system's namespace"),
    pytest.param(ONE, "environment=dev namespace=triton-dev severity=critical-ish", NOBODY, id="severity is anchored"),
    pytest.param(ONE, "alertname=Watchdog severity=none", NOBODY, id="sign of life, unheard"),
    pytest.param(
        ONE, "alertname=InfoInhibitor environment=dev namespace=triton-dev severity=warning", NOBODY, id="inhibitor"
    ),
    pytest.param(
        {**ONE, "dead_mans_switch": SWITCH},
        "alertname=Watchdog severity=none",
        ("dead-mans-switch",),
        id="sign of life",
    ),
    pytest.param(
        {**ONE, "dead_mans_switch": SWITCH},
        "alertname=Watchdog environment=dev namespace=triton-dev severity=critical",
        ("dead-mans-switch",),
        id="the sign of life goes there alone",
    ),
    pytest.param(
        {**ONE, "serving": {"namespace": "a-b"}},
        "environment=dev namespace=a.b severity=critical",
        NOBODY,
        id="a.b is not a-b",
    ),
    pytest.param(
        {**ONE, "serving": {"namespace": "a-b"}},
        "environment=dev namespace=axb severity=critical",
        NOBODY,
        id="axb is not a-b",
    ),
    pytest.param(DEV_AND_PROD, "environment=dev namespace=triton-dev severity=info", ("chat",), id="dev's"),
    pytest.param(
        DEV_AND_PROD,
        "environment=prod namespace=triton-prod severity=critical",
        ("pager", "ops-webhook"),
        id="prod's, each once",
    ),
    pytest.param(
        DEV_AND_PROD, "environment=prod namespace=triton-prod severity=warning", ("ops-webhook",), id="prod's warning"
    ),
    pytest.param(DEV_AND_PROD, "environment=prod namespace=triton-dev severity=critical", NOBODY, id="crossed"),
    pytest.param(DEV_AND_PROD, "environment=dev namespace=triton-prod severity=critical", NOBODY, id="crossed back"),
    pytest.param(DEV_AND_PROD, "environment=prod-eu namespace=triton-prod severity=critical", NOBODY, id="prod-eu"),
]


@pytest.mark.parametrize(("alerts", "labels", "expected"), ROUTED)
def test_routes(
    tool: Callable[[str], str], tmp_path: Path, alerts: Raw, labels: str, expected: tuple[str, ...]
) -> None:
    file = written(tmp_path, **alerts)
    command = [tool("amtool"), "config", "routes", "test", f"--config.file={file}", *labels.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert tuple(done.stdout.strip().split(",")) == expected


class _Ear(BaseHTTPRequestHandler):
    """A stand-in for every receiver: remembers what is posted to which path."""

    heard: ClassVar[list[tuple[str, Raw]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.heard.append((self.path, body))
        answer = b"ok" if self.path != "/pager" else b'{"status": "success"}'
        self.send_response(200 if self.path != "/pager" else 202)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextmanager
def _listening() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Ear)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def _alertmanager(program: str, folder: Path, config: Raw) -> Iterator[str]:
    file = folder / "alertmanager.yaml"
    file.write_text(json.dumps(config))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ear) as free:
        port = free.server_port
    command = [
        program,
        f"--config.file={file}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            url = f"http://127.0.0.1:{port}/api/v2"
            _until(lambda: process.poll() is not None or _answers(f"{url}/status"), 20)
            assert process.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - of this test
            return bool(answer.status == 200)
    except OSError:
        return False


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _tell(url: str, *alerts: Raw) -> None:
    body = [
        {
            "labels": labels,
            "annotations": {
                "summary": f"{labels['alertname']} of {labels.get('model', 'nothing')}",
                "description": "It is so.",
                "runbook_url": f"https://runbooks.example/{labels['alertname']}.md",
            },
        }
        for labels in alerts
    ]
    request = urllib.request.Request(  # noqa: S310 - of this test
        f"{url}/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=5):  # noqa: S310 - of this test
        pass


def alert(name: str, severity: str, environment: str = "dev", **labels: str) -> Raw:
    return {
        "alertname": name,
        "severity": severity,
        "environment": environment,
        "namespace": "triton-dev",
        **labels,
    }


def told(path: str) -> list[tuple[str, ...]]:
    """What was told there: names and models of alerts, in the order of the messages."""
    return [
        (one["labels"]["alertname"], one["labels"].get("model", ""))
        for where, body in _Ear.heard
        if where == path
        for one in body["alerts"]
    ]


def test_who_hears_from_a_running_alertmanager(tool: Callable[[str], str], tmp_path: Path) -> None:
    """Real messages, with the secrets that it reads from files. Mail alone is not sent here."""
    _Ear.heard.clear()
    with _listening() as ear:
        made = settings(
            receivers=[
                {**HOOK, "url": f"{ear}/hook/{CANARY}"},
                {**SLACK, "api_url": f"{ear}/slack"},
                PAGER,
                {**HOOK, "name": "prod", "url": f"{ear}/prod"},
            ],
            routes=[
                {"environment": "dev", "receivers": ["ops-webhook", "chat", "pager"]},
                {"environment": "prod", "receivers": ["prod"]},
            ],
            dead_mans_switch=f"{ear}/alive",
            group_wait_s=1,
        )
        for name, text in alert_routing.secrets(made).items():
            (tmp_path / name).write_text(text.get_secret_value())
        folder = f"{alert_routing.SECRETS_FOLDER}/{alert_routing.SECRET}"
        config = json.loads(json.dumps(alert_routing.config(made)).replace(folder, str(tmp_path)))
        config["global"]["pagerduty_url"] = f"{ear}/pager"
        with _alertmanager(tool("alertmanager"), tmp_path, config) as url:
            _tell(url, {"alertname": "Watchdog", "severity": "none"}, alert("TritonModelDown", "critical", model="a"))
            assert _until(lambda: len(_Ear.heard) == 4, 20), _Ear.heard
            _tell(
                url,
                alert("TritonLatencyHigh", "warning", model="a", sku="t4"),
                alert("TritonLatencyHigh", "warning", model="b", sku="t4"),
                alert("TritonLatencyHigh", "warning", model="c", sku="t4"),
                alert("TritonErrorsHigh", "warning", environment="prod"),
                alert("TritonErrorsHigh", "warning", environment="", model="b"),
                alert("TritonErrorsHigh", "info", model="b"),
                {**alert("TritonHung", "critical"), "namespace": "elsewhere"},
            )
            assert _until(lambda: len(_Ear.heard) == 7, 20), _Ear.heard
            time.sleep(1)
    assert told(f"/hook/{CANARY}") == [("TritonModelDown", "a"), ("TritonLatencyHigh", "b"), ("TritonLatencyHigh", "c")]
    assert told("/alive") == [("Watchdog", "")]
    assert told("/prod") == []
    slack = [body["attachments"][0] for path, body in _Ear.heard if path == "/slack"]
    assert [(one["title"], one["title_link"], one["text"]) for one in slack] == [
        (
            "dev/triton-dev: TritonModelDown is firing (critical)",
            "https://runbooks.example/TritonModelDown.md",
            "TritonModelDown of a (firing)\nIt is so.\nWhat to do: https://runbooks.example/TritonModelDown.md",
        ),
        (
            "dev/triton-dev: TritonLatencyHigh is firing (warning)",
            "https://runbooks.example/TritonLatencyHigh.md",
            "\n\n".join(
                f"TritonLatencyHigh of {model} (firing)\nIt is so.\n"
                "What to do: https://runbooks.example/TritonLatencyHigh.md"
                for model in ("b", "c")
            ),
        ),
    ]
    pager = [body for path, body in _Ear.heard if path == "/pager"]
    assert [(one["routing_key"], one["payload"]["severity"], one["payload"]["class"]) for one in pager] == [
        (CANARY, "critical", "TritonModelDown"),
        (CANARY, "warning", "TritonLatencyHigh"),
    ]
    assert CANARY not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("cause", [pytest.param(cause, id=cause.alert) for cause in alert_routing.CAUSES])
def test_a_cause_and_its_symptoms_have_the_labels_by_which_they_are_one(cause: alert_routing.Cause) -> None:
    """As promtool has seen them fire. Where one of two alone had a label, neither would silence the other."""
    seen: dict[str, list[set[str]]] = {}
    for case in (*CASES, *GROUPS):
        for (_, name), fired in case.alerts.items():
            seen.setdefault(name, []).extend(set(one["exp_labels"]) for one in fired)
    for alert_name in (cause.alert, *cause.symptoms):
        assert any(labels >= set(cause.equal) for labels in seen[alert_name]), alert_name
