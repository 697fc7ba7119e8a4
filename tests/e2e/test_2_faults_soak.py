"""Faults to their end: docs/faults.md. Until alerts have fired and reached Alertmanager, and all is as it was.

Alerts fire after half a minute here instead of minutes; tests/rules has their own times. Some 30 minutes: `make soak`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from fleet import alerts, names, workload
from local.cluster.topology import NODES
from tests.e2e.cluster import condition, eventually, get, nodes, prometheus, running
from tests.e2e.held import IMPATIENT_FOR_S, TIMEOUT_S, Held, held, looks, tritonserver
from tests.e2e.hooks import Hooks
from tests.e2e.test_2_faults import LATE_S, SCRAPED_WITHIN_S, UNREADY_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.checkout import Checkout

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

RULES = ("prometheusrule", alerts.RULES, "--namespace=triton-local")
CONFIGURED_WITHIN_S = 180
"""Until a kubelet has brought a changed ConfigMap to the pod and Prometheus has read it."""
TOLD_WITHIN_S = SCRAPED_WITHIN_S + IMPATIENT_FOR_S + 30
"""A cause is seen, lasts long enough, and is sent."""
RATES_S = 60
"""The window of the rates that autoscaling reads; as long a series of a target that fell silent has values."""

RESTARTED_S = workload.LIVENESS_FAILURES * workload.LIVENESS_PERIOD_S + workload.PROBE_TIMEOUT_S + workload.HUNG_GRACE_S
"""From the hang to the kill: the first probe comes within a period, the last is not answered for its time-out."""
LOADED_S = 45
"""Until the model is loaded and the pod Ready, on a busy machine."""

NODE = "gpu-a100-40gb"
NODE_LOST_S = 50 + 5
"""kube-controller-manager's node-monitor-grace-period and node-monitor-period, by default:
https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/"""

STRAYED = 0.01
"""Part of all requests that may be lost later: one in 1200 was. What no answer came to is tracked for two minutes
(nf_conntrack_tcp_timeout_syn_sent), and who sends from the same port again may go the same way."""

RESEND_S = 60
"""Prometheus, --rules.alert.resend-delay, by default. What it sends holds four times as long: sendAlerts of
https://github.com/prometheus/prometheus/blob/main/rules/alerting.go and group.go."""
SWITCH_EVERY_S = 60
"""alert_routing.SWITCH_REPEAT in steps of its SWITCH_INTERVAL."""
SWITCH = """
  triton-fleet:alerts: {{dead_mans_switch: "{url}/switch"}}
"""


@contextlib.contextmanager
def switched(checkout: Checkout) -> Iterator[Hooks]:
    """The dead man's switch is set: Alertmanager posts there as long as it hears of Prometheus' Watchdog."""
    settings = checkout.folder / "Pulumi.local.yaml"
    with Hooks(checkout, "/switch") as hooks:
        settings.write_text(settings.read_text() + SWITCH.format(url=hooks.url))
        try:
            up = checkout.make("up")
            assert up.status == 0, up.text[-6000:]
            yield hooks
        finally:
            checkout.restore("Pulumi.local.yaml")
    again = checkout.make("up")
    assert again.status == 0, again.text[-6000:]


@pytest.fixture(scope="module")
def impatient(checkout: Checkout) -> Iterator[None]:
    """Every alert fires when its cause has lasted for half a minute."""
    groups = json.loads(checkout.kubectl("get", *RULES, "--output=json"))["spec"]["groups"]

    def use(changed: list[dict[str, Any]]) -> None:
        checkout.kubectl("patch", *RULES, "--type=merge", f"--patch={json.dumps({'spec': {'groups': changed}})}")
        wanted = {rule["alert"]: int(rule["for"].removesuffix("s")) for group in changed for rule in group["rules"]}

        def loaded() -> bool:
            found = get(checkout, prometheus("/api/v1/rules?type=alert"))["data"]["groups"]
            have = {rule["name"]: rule["duration"] for group in found for rule in group["rules"]}
            return have.items() >= wanted.items()

        eventually(loaded, "alerts with other times", CONFIGURED_WITHIN_S)

    def hasty(rule: dict[str, Any]) -> dict[str, Any]:
        return {**rule, "for": f"{min(IMPATIENT_FOR_S, int(rule['for'].removesuffix('s')))}s"}

    try:
        use([{**group, "rules": [hasty(rule) for rule in group["rules"]]} for group in groups])
        yield
    finally:
        use(groups)


@pytest.fixture(scope="module")
def fleet(checkout: Checkout, impatient: None) -> Iterator[Held]:
    assert impatient is None
    with held(checkout) as found:
        yield found


@contextlib.contextmanager
def patched(checkout: Checkout, kind: str, name: str, namespace: str, *patches: dict[str, Any]) -> Iterator[None]:
    """An object with the first patch, and after it with the second."""
    there, back = (
        ("patch", kind, name, f"--namespace={namespace}", "--type=merge", f"--patch={json.dumps(one)}")
        for one in patches
    )
    checkout.kubectl(*there)
    try:
        yield
    finally:
        checkout.kubectl(*back)


def verify(fleet: Held) -> None:
    done = fleet.checkout.make("verify")
    assert done.status == 0, done.text[-3000:]


def test_stale_metrics_take_no_replica_and_alerts_say_what_is_not_seen(fleet: Held) -> None:
    """Prometheus runs and asks at a port that its policy does not let it reach; each scrape fails."""

    def endpoints(port: str) -> dict[str, Any]:
        monitor = get(fleet.checkout, "/apis/monitoring.coreos.com/v1/namespaces/triton-local/podmonitors/triton")
        return {
            "spec": {"podMetricsEndpoints": [one | {"port": port} for one in monitor["spec"]["podMetricsEndpoints"]]}
        }

    patches = (endpoints(names.PORT_HTTP_NAME), endpoints(names.PORT_METRICS_NAME))
    with fleet.fault() as began:
        with patched(fleet.checkout, "podmonitor", "triton", "triton-local", *patches):
            eventually(
                lambda: fleet.are_seeing(are=False), "autoscalers without a value", CONFIGURED_WITHIN_S + RATES_S
            )
            time.sleep(looks(3))
            fleet.hears("TritonTargetDown", TOLD_WITHIN_S, model="minilm", severity="critical")
            # Told of the cause alone: Alertmanager holds the symptom back.
            eventually(
                lambda: all(one["status"]["inhibitedBy"] for one in fleet.told("TritonSeriesAbsent")),
                "TritonSeriesAbsent held back",
            )
            fleet.hears("MetricsApiDown", TOLD_WITHIN_S)
        eventually(lambda: fleet.are_seeing(are=True), "autoscalers with a value", CONFIGURED_WITHIN_S + RATES_S)
        for name in ("TritonTargetDown", "TritonSeriesAbsent", "MetricsApiDown"):
            fleet.ends(name, TOLD_WITHIN_S)
    assert fleet.callers.failed(began) == []
    verify(fleet)


def test_without_the_adapter_the_alert_is_told(fleet: Held) -> None:
    adapter = ("deployment/prometheus-adapter", "--namespace=monitoring")
    with fleet.fault() as began:
        fleet.checkout.kubectl("scale", *adapter, "--replicas=0")
        try:
            fleet.hears("MetricsApiDown", TOLD_WITHIN_S)
            time.sleep(looks(2))
        finally:
            fleet.checkout.kubectl("scale", *adapter, "--replicas=1")
        eventually(lambda: fleet.are_seeing(are=True), "autoscalers with a value")
        fleet.ends("MetricsApiDown", TOLD_WITHIN_S)
    assert fleet.callers.failed(began) == []
    verify(fleet)


def test_a_hung_triton_is_restarted_and_somebody_is_told(fleet: Held) -> None:
    """The server is stopped for good: no signal but the kill ends it."""
    first = fleet.checkout.triton_pods()[0]
    pod, (container,) = first["metadata"], first["status"]["containerStatuses"]
    restarts = container["restartCount"]
    with fleet.fault() as began:
        os.kill(tritonserver(pod["uid"]), signal.SIGSTOP)

        def restarted() -> bool:
            (found,) = [one for one in fleet.checkout.triton_pods() if one["metadata"]["uid"] == pod["uid"]]
            (container,) = found["status"]["containerStatuses"]
            return bool(container["restartCount"] == restarts + 1 and container["ready"])

        eventually(restarted, "a restart", RESTARTED_S + LOADED_S)
        fleet.hears("TritonRestarted", TOLD_WITHIN_S, pod=pod["name"])
    lost = fleet.callers.failed(began)
    assert lost, "nothing was sent to it, so nothing was shown"
    assert [call for call in lost if call.began >= UNREADY_S + LATE_S] == []
    assert fleet.callers.silence_s(began) <= 2 * TIMEOUT_S
    verify(fleet)


def test_a_node_that_is_gone_is_served_without_and_comes_back(fleet: Held) -> None:
    """Its link is cut: it answers nobody, and nobody hears of it. Its pods are given up when Kubernetes gives it up."""
    link = f"node{[node.name for node in NODES].index(NODE)}"
    cluster = running(fleet.checkout)

    def restarts() -> dict[str, int]:
        return {
            pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"]
            for pod in fleet.checkout.triton_pods()
            if pod["spec"]["nodeName"] == NODE
        }

    before = restarts()
    with fleet.fault(idle=True) as began:
        assert cluster.run(["ip", "link", "set", link, "down"]).returncode == 0
        try:
            eventually(
                lambda: condition(nodes(fleet.checkout)[NODE], "Ready") == "Unknown",
                "a lost node",
                NODE_LOST_S + LATE_S,
            )
            fleet.hears("TritonNodeNotReady", TOLD_WITHIN_S, node=NODE, sku="a100-40gb")
            # The SKU has no value to decide by any more, and keeps its replicas.
            eventually(lambda: fleet.seeing() == {"minilm-a100-40gb": "False", "minilm-h100-80gb": "True"}, "one blind")
            fleet.hears("MetricsApiDown", TOLD_WITHIN_S)
            time.sleep(looks(2))
            # Not that they are Ready and not scraped, as their containers still say.
            assert fleet.told("TritonTargetDown") == []
            assert all(one["status"]["inhibitedBy"] for one in fleet.told("TritonPodNotReady"))
            assert fleet.wanted() == fleet.made
        finally:
            assert cluster.run(["ip", "link", "set", link, "up"]).returncode == 0
        fleet.recovered()
        fleet.ends("TritonNodeNotReady", TOLD_WITHIN_S)
        fleet.ends("MetricsApiDown", TOLD_WITHIN_S)
    assert restarts().items() & before.items(), "the node's pods were made anew"
    lost = fleet.callers.failed(began)
    assert lost, "nothing was sent to it, so nothing was shown"
    late = [call for call in lost if call.began >= NODE_LOST_S + LATE_S]
    assert len(late) <= STRAYED * fleet.callers.count(began), late
    assert fleet.callers.silence_s(began) <= 2 * TIMEOUT_S
    verify(fleet)


def test_a_dead_prometheus_is_told_by_silence_alone(fleet: Held) -> None:
    """No alert of its own can say it. Whoever hears the dead man's switch does, when it hears nothing."""
    patches = ({"spec": {"replicas": 0}}, {"spec": {"replicas": 1}})
    with switched(fleet.checkout) as hooks:
        heard = hooks.heard_at["/switch"]
        eventually(lambda: bool(heard), "the dead man's switch", 3 * SWITCH_EVERY_S)
        with fleet.fault() as began:
            with patched(fleet.checkout, "prometheus", "prometheus-kube-prometheus-prometheus", "monitoring", *patches):
                eventually(lambda: fleet.are_seeing(are=False), "autoscalers without a value")
                eventually(
                    lambda: time.monotonic() - heard[-1] > 2 * SWITCH_EVERY_S,
                    "silence",
                    4 * RESEND_S + 4 * SWITCH_EVERY_S,
                )
                assert fleet.told("Watchdog") == []
                last = heard[-1]
                assert last < began + 4 * RESEND_S + SWITCH_EVERY_S
            eventually(lambda: heard[-1] > last, "the dead man's switch again", 120 + SWITCH_EVERY_S)
        assert fleet.callers.failed(began) == []
    verify(fleet)
