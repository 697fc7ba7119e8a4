"""The fleet observed: a real Triton's values in the metrics API, and an alert that reaches who must hear it.

After the main job, on its cluster. One update makes the model slow and names two receivers; a last one takes both back.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from fleet.dashboards import DASHBOARDS, expressions
from tests import scrapes
from tests.e2e.checkout import PROJECT, Client
from tests.e2e.cluster import get, prometheus
from tests.e2e.hooks import Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.checkout import Checkout

pytestmark = pytest.mark.e2e

RATIO = "triton:queue_compute:ratio"
WINDOW_S = 60
"""Of the rates, as Pulumi.local.yaml leaves it."""
SLOW_S = 0.3
CALLERS = 3
"""More than one for each of the two replicas, so that some wait; fewer than autoscaling would answer with replicas."""
FIRES_WITHIN_S = 240
"""The alert's two minutes, the window of its mean, and a scrape, an evaluation and a message."""
SILENT = {
    "Alerts that reach nobody": "there is none",
    "KV cache in use": "TensorRT-LLM's",
    "Requests inside the engine": "TensorRT-LLM's",
    "Node groups": "the cloud's node autoscaler's",
    "Pods that no node group can help": "the cloud's node autoscaler's",
    "Time to load": "a newer Triton's: tests/data/scrapes/triton-newer.txt",
}
"""Panels without data on this cluster, and why; those of GPUs have the stand-in exporter's."""
HOOKS = """
  triton-fleet:verification: {{check_deadline_s: 20}}
  triton-fleet:alerts:
    group_wait_s: 1
    receivers:
      - {{name: local-hook, kind: webhook, url: "{url}/local"}}
      - {{name: prod-hook, kind: webhook, url: "{url}/prod"}}
    routes:
      - {{environment: local, receivers: [local-hook]}}
      - {{environment: prod, receivers: [prod-hook]}}
"""


def ratios(checkout: Checkout) -> dict[str, float]:
    """By pod, what an autoscaler reads of the metrics API."""
    items = get(checkout, f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/triton-local/pods/*/{RATIO}")["items"]
    return {item["describedObject"]["name"]: quantity(item["value"]) for item in items}


def quantity(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def scraped(checkout: Checkout, pod: str) -> str:
    """What Triton in a pod says of itself, asked of the server and not of Prometheus."""
    program = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8002/metrics').read().decode())"
    return checkout.kubectl("exec", pod, "--namespace=triton-local", "--", "python3", "-c", program)


def counted(checkout: Checkout, pod: str) -> dict[str, float]:
    """The time that a pod's requests have waited and been computed, in microseconds."""
    text = scraped(checkout, pod)
    return {
        part: sum(map(float, re.findall(rf"^nv_inference_{part}_duration_us{{.*}} (\S+)$", text, re.MULTILINE)))
        for part in ("queue", "compute_infer")
    }


def tell_alertmanager(checkout: Checkout, alerts: list[dict[str, Any]]) -> None:
    """As Prometheus would; no policy of monitoring's namespace keeps the machine out."""
    name = "prometheus-kube-prometheus-alertmanager"
    address = checkout.kubectl("get", "service", name, "--namespace=monitoring", "--output=jsonpath={.spec.clusterIP}")
    connection = http.client.HTTPConnection(address, 9093, timeout=10)
    try:
        connection.request("POST", "/api/v2/alerts", json.dumps(alerts), {"Content-Type": "application/json"})
        assert connection.getresponse().status == http.HTTPStatus.OK
    finally:
        connection.close()


def wait_for(what: Callable[[], bool], within_s: float) -> bool:
    until = time.monotonic() + within_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(1)
    return True


@pytest.fixture(scope="module")
def hooks(checkout: Checkout) -> Iterator[Hooks]:
    with Hooks(checkout, "/local", "/prod") as server:
        yield server


@pytest.fixture(scope="module")
def slow(checkout: Checkout, hooks: Hooks) -> Iterator[list[Client]]:
    """Version 2 of the model answers rightly and late, and callers ask all the time."""
    settings = checkout.folder / "Pulumi.local.yaml"
    new = checkout.folder / "model_repo" / "minilm" / "2"
    shutil.copytree(checkout.folder / "model_repo" / "minilm" / "1", new)
    model = (new / "model.py").read_text()
    embed = "        embeddings = self.embedder.embed(texts)\n"
    assert model.count(embed) == 1
    late = f"        __import__('time').sleep({SLOW_S})\n"
    (new / "model.py").write_text(model.replace(embed, late + embed))
    checkout.replace("Pulumi.local.yaml", "      version: 1\n", "      version: 2\n      slo: {latency_ms: 100}\n")
    settings.write_text(settings.read_text() + HOOKS.format(url=hooks.url))
    try:
        up = checkout.make("up")
        assert up.status == 0, up.text[-6000:]
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Client(checkout.service_address())) for _ in range(CALLERS)]
    finally:
        shutil.rmtree(new)
        checkout.restore("Pulumi.local.yaml")
    again = checkout.make("up")
    assert again.status == 0, again.text[-6000:]


def test_the_metrics_api_has_what_a_real_triton_counted(checkout: Checkout, slow: list[Client]) -> None:
    """The ratio of a pod is the time that its requests waited by the time that they were computed, by its counters."""
    pods = [pod["metadata"]["name"] for pod in checkout.triton_pods()]
    # Until the window holds nothing from before the callers came.
    time.sleep(WINDOW_S / 3)
    before = {pod: counted(checkout, pod) for pod in pods}
    time.sleep(WINDOW_S)
    after = {pod: counted(checkout, pod) for pod in pods}
    # The adapter answers with the newest recorded sample, an evaluation after the scrape that it stands for.
    time.sleep(10)
    found = ratios(checkout)
    expected = {
        pod: (after[pod]["queue"] - before[pod]["queue"]) / (after[pod]["compute_infer"] - before[pod]["compute_infer"])
        for pod in pods
    }
    assert found.keys() == set(pods)
    assert max(expected.values()) > 0.1, "nobody waited, so nothing was measured"
    assert found == pytest.approx(expected, rel=0.3, abs=0.1)
    assert [client.failures for client in slow] == [[]] * CALLERS
    assert [client.wrong for client in slow] == [0] * CALLERS


def test_a_slow_version_raises_the_alert_and_the_right_receiver_hears(
    checkout: Checkout, slow: list[Client], hooks: Hooks
) -> None:
    began = time.monotonic()
    told = wait_for(lambda: bool(hooks.got("/local", alertname="TritonLatencyHigh")), FIRES_WITHIN_S)
    alerts = get(checkout, prometheus("/api/v1/alerts"))["data"]["alerts"]
    assert told, [(alert["labels"], alert["state"], alert["value"]) for alert in alerts]
    assert time.monotonic() - began < FIRES_WITHIN_S
    heard = hooks.got("/local", alertname="TritonLatencyHigh")[0]
    assert heard["status"] == "firing"
    assert {key: heard["labels"].get(key) for key in ("environment", "namespace", "model", "severity")} == {
        "environment": "local",
        "namespace": "triton-local",
        "model": "minilm",
        "severity": "warning",
    }
    assert "minilm" in heard["annotations"]["summary"]
    assert heard["annotations"]["runbook_url"].endswith("/TritonLatencyHigh.md")
    assert hooks.alerts["/prod"] == []
    assert sum(client.answered for client in slow) > 0


def test_the_same_alert_of_another_environment_goes_to_that_ones_receiver_or_to_nobody(
    checkout: Checkout, hooks: Hooks
) -> None:
    """Field report B48. Alertmanager is told what Prometheus would tell it, so that only its routes decide.

    Each belongs to a group of its own, so it would be told at once: the group of the alert that came is not among them.
    """
    same = {"alertname": "TritonLatencyHigh", "severity": "warning", "model": "minilm"}
    sent = {
        "prod's": {"environment": "prod", "namespace": "triton-prod"},
        "prod's, in our namespace": {"environment": "prod", "namespace": "triton-local"},
        "ours, in prod's namespace": {"environment": "local", "namespace": "triton-prod"},
        "of a namespace that begins as ours": {"environment": "local", "namespace": "triton-local2"},
        "of no environment": {"namespace": "triton-local"},
        "of nobody": {},
    }
    tell_alertmanager(checkout, [{"labels": {**same, **labels, "canary": name}} for name, labels in sent.items()])
    wait_for(lambda: bool(hooks.got("/prod", canary="prod's")), 30)
    time.sleep(3)
    heard = {
        receiver: sorted(alert["labels"]["canary"] for alert in alerts if "canary" in alert["labels"])
        for receiver, alerts in hooks.alerts.items()
    }
    assert heard == {"/local": [], "/prod": ["prod's"]}


def test_each_expression_of_the_dashboards_has_data(checkout: Checkout, slow: list[Client]) -> None:
    """While callers ask, some of whom wait, and an alert fires."""
    assert slow
    silent = set()
    for dashboard in DASHBOARDS:
        for title, expression in expressions(dashboard):
            query = re.sub(r"\$__rate_interval", f"{WINDOW_S}s", expression)
            # Every variable at its first choice, all, which Grafana writes as `.*`.
            query = re.sub(r'"\$\w+"', '".*"', query)
            assert "$" not in query, query
            answer = get(checkout, prometheus(f"/api/v1/query?{urlencode({'query': query})}"))
            if not answer["data"]["result"]:
                silent.add(title)
    assert silent == SILENT.keys()


def test_a_live_triton_has_the_series_of_the_recorded_one(checkout: Checkout) -> None:
    """Design section 5, item 2: rules and dashboards are tested against the recorded scrape, so it must be true."""
    live = scrapes.parse(scraped(checkout, checkout.triton_pods()[0]["metadata"]["name"]))
    recorded = scrapes.parse((PROJECT / "tests" / "data" / "scrapes" / "triton.txt").read_text())
    assert {name: set(family.labels) for name, family in live.items()} == {
        name: set(family.labels) for name, family in recorded.items()
    }


def test_verification_says_what_of_monitoring_does_not_work(checkout: Checkout, slow: list[Client]) -> None:
    assert slow
    adapter = ("deployment/prometheus-adapter", "--namespace=monitoring")
    checkout.kubectl("scale", *adapter, "--replicas=0")
    try:
        done = checkout.make("verify")
        assert done.status != 0
        rows = json.loads((checkout.folder / "reports" / "verification.json").read_text())
        failed = {row["name"]: row["reason"] for row in rows if not row["ok"]}
        assert set(failed) <= {f"monitoring/pod-metrics/{RATIO}", "monitoring/autoscalers"}
        assert "503" in failed[f"monitoring/pod-metrics/{RATIO}"]
        assert " describe apiservice v1beta1.custom.metrics.k8s.io" in done.text
    finally:
        checkout.kubectl("scale", *adapter, "--replicas=1")
        checkout.kubectl("rollout", "status", *adapter, "--timeout=60s")
