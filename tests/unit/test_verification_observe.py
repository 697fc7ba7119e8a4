"""What is asked of the GPU stack and of monitoring, and how answers in the real programs' forms are judged.

The answers of Prometheus are shortened from those of version 3.14, Alertmanager's from those of 0.34.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from fleet import alert_routing, alerts, recording
from fleet import verification_observe as observe
from fleet.verification import Node, Pod
from fleet.verification_observe import (
    DaemonPod,
    DaemonSetPlan,
    GpuNodes,
    GpuPlan,
    MonitoringPlan,
    Question,
    RuleObject,
)
from tests.unit.graph import local_config, local_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

PRESENT = {"nvidia.com/gpu": "present", "nvidia.com/gpu.present": "true"}
PRODUCT = "nvidia.com/gpu.product"
PLUGIN = DaemonSetPlan(namespace="kube-system", name="nvidia-device-plugin")
GPUS = GpuPlan(
    daemon_sets=(PLUGIN,),
    skus=(
        GpuNodes(sku="a100", labels=PRESENT, product="A100", gpus=8),
        GpuNodes(sku="h100", labels={**PRESENT, "zone": "b"}, product="H100", gpus=4),
    ),
)


def node(name: str, labels: Mapping[str, str], gpus: int = 8, *, ready: bool = True) -> Node:
    return Node(name, labels, ready=ready, gpus=gpus)


A = node("a", {**PRESENT, PRODUCT: "A100"})
H = node("h", {**PRESENT, PRODUCT: "H100", "zone": "b"}, gpus=4)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param([H, A, node("system", {})], ["a", "h"], id="those of any SKU with GPUs"),
        pytest.param([node("new", PRESENT)], ["new"], id="one whose GPUs nobody has found yet"),
        pytest.param([node("b", {**PRESENT, PRODUCT: "L4"})], [], id="another product is another's"),
        pytest.param([node("h", {**PRESENT, PRODUCT: "H100"})], [], id="a label of the SKU is missing"),
        pytest.param([node("a", A.labels, ready=False)], [], id="not Ready: the store's check tells"),
    ],
)
def test_nodes_with_gpus(nodes: list[Node], expected: list[str]) -> None:
    assert [one.name for one in observe.gpu_nodes(GPUS, nodes)] == expected


def daemon(name: str, on: str | None, waiting: str = "") -> DaemonPod:
    return DaemonPod(name, on, ready=not waiting, waiting=waiting)


@pytest.mark.parametrize(
    ("pods", "verdict"),
    [
        pytest.param([daemon("p", "a"), daemon("q", "h")], (True, "ready on a, h"), id="on each"),
        pytest.param(
            [daemon("p", "a"), daemon("q", "h"), daemon("r", "system", "x")], (True, "ready on a, h"), id="elsewhere"
        ),
        pytest.param(None, (False, "there is no such DaemonSet"), id="not there"),
        pytest.param(
            [daemon("p", "a"), daemon("r", None, "Unschedulable")],
            (False, "h has no pod of it: its taints or labels do not fit"),
            id="B27: a node without",
        ),
        pytest.param(
            [daemon("p", "a", "CrashLoopBackOff"), daemon("q", "h")],
            (False, "p on a is not ready: CrashLoopBackOff"),
            id="not ready",
        ),
        pytest.param(
            [daemon("p", "a", "Terminating"), daemon("p2", "a"), daemon("q", "h")],
            (True, "ready on a, h"),
            id="the next is ready while the last ends",
        ),
    ],
)
def test_a_daemon_set_has_a_ready_pod_on_every_node(pods: list[DaemonPod] | None, verdict: tuple[bool, str]) -> None:
    assert observe.daemon_verdict(pods, [A, H]) == verdict


@pytest.mark.parametrize(
    ("nodes", "verdict"),
    [
        pytest.param([A, H], (True, "a offers 8, h offers 4"), id="as planned"),
        pytest.param([A, node("h", H.labels, gpus=3)], (False, "h offers 3 GPUs, not 4 as a node of h100"), id="fewer"),
        pytest.param([node("a", A.labels, gpus=16)], (True, "a offers 16"), id="more, as with time slices"),
        pytest.param(
            [node("a", PRESENT, gpus=8)],
            (False, f"a has no label {PRODUCT}: no GPU was found on it"),
            id="nobody found its GPUs",
        ),
        pytest.param([], (True, ""), id="no node yet"),
    ],
)
def test_each_node_offers_its_gpus(nodes: list[Node], verdict: tuple[bool, str]) -> None:
    assert observe.offer_verdict(GPUS, nodes) == verdict


ALERTING: dict[str, Any] = {
    "global": {"resolve_timeout": "5m"},
    "route": {
        "receiver": "null",
        "group_by": ["alertname", "namespace"],
        "group_wait": "30s",
        "repeat_interval": "240m",
        "routes": [
            {"receiver": "null", "matchers": ['alertname="InfoInhibitor"']},
            {
                "receiver": "hooks",
                "matchers": ['environment="local"', 'namespace="triton-local"', 'severity=~"critical|warning"'],
            },
        ],
    },
    "inhibit_rules": [
        {
            "source_matchers": ['alertname="TritonModelDown"'],
            "target_matchers": ['alertname="TritonPodNotReady"'],
            "equal": ["namespace"],
        }
    ],
    "receivers": [
        {"name": "null"},
        {
            "name": "hooks",
            "webhook_configs": [{"url_file": "/etc/alertmanager/secrets/x/hooks", "send_resolved": True}],
        },
    ],
}
PLAN = MonitoringPlan(
    serving="triton-local",
    namespace="monitoring",
    prometheus="prometheus-kube-prometheus-prometheus:9090",
    alertmanager="prometheus-kube-prometheus-alertmanager:9093",
    alerting=ALERTING,
    rules=(RuleObject(name="triton-recording", groups={"triton": ("triton:queue_compute:ratio", "triton:up:count")}),),
    series=("triton:queue_compute:ratio", "triton:queue_duration:average"),
    pod_metrics=("triton:queue_compute:ratio",),
    autoscalers=("m-a100", "m-h100"),
    node_metrics=True,
    fresh_s=30,
    settle_s=200,
)


def test_the_plan_follows_the_settings(project: Path) -> None:
    settings = local_settings(project)
    plan = observe.monitoring_plan(settings)
    assert plan.model_dump(exclude={"alerting", "rules"}) == {
        "serving": "triton-local",
        "namespace": "monitoring",
        "prometheus": "prometheus-kube-prometheus-prometheus:9090",
        "alertmanager": "prometheus-kube-prometheus-alertmanager:9093",
        "series": (
            "triton:queue_compute:ratio",
            "triton:queue_duration:average",
            "triton:compute_duration:average",
            "triton:request_duration:average",
        ),
        "pod_metrics": ("triton:queue_compute:ratio",),
        "autoscalers": ("minilm-a100-40gb", "minilm-h100-80gb"),
        "node_metrics": True,
        "fresh_s": 30,
        # A mounted file in 120 s, 3 scrapes of 10 s, 2 evaluations of the slowest group, the adapter's listing in 30 s.
        "settle_s": 120 + 3 * 10 + 2 * 60 + 30,
    }
    assert plan.alerting == alert_routing.config(settings)
    # Every rule of ours is looked for, by the object, the group and the name that Prometheus shows.
    ours = [recording.rules(settings), alerts.rules(settings)]
    assert [one.name for one in plan.rules] == ["triton-recording", "triton-alerts"]
    assert [
        [(group["name"], [rule.get("record", rule.get("alert")) for rule in group["rules"]]) for group in groups]
        for groups in (one["spec"]["groups"] for one in ours)
    ] == [[(group, list(rules)) for group, rules in one.groups.items()] for one in plan.rules]
    assert observe.gpu_plan(settings) == GpuPlan(
        daemon_sets=(
            DaemonSetPlan(namespace="kube-system", name="node-feature-discovery-worker"),
            DaemonSetPlan(namespace="kube-system", name="nvidia-device-plugin"),
            DaemonSetPlan(namespace="kube-system", name="nvidia-device-plugin-gpu-feature-discovery"),
            DaemonSetPlan(namespace="monitoring", name="dcgm-exporter"),
        ),
        skus=(
            GpuNodes(sku="a100-40gb", labels=PRESENT, product="NVIDIA-A100-SXM4-40GB", gpus=8),
            GpuNodes(sku="h100-80gb", labels=PRESENT, product="NVIDIA-H100-80GB-HBM3", gpus=8),
        ),
    )


def test_what_the_stack_does_not_bring_is_not_asked_for(project: Path) -> None:
    """The cluster's own Alertmanager has its own configuration; KEDA needs no custom metrics and makes its own HPA."""
    settings = local_settings(
        project,
        monitoring={"kube_prometheus_stack": False, "metrics_server": False, "release": "mon2", "namespace": "obs"},
        autoscaling={"engine": "keda"},
        gpu_stack={"node_feature_discovery": False, "device_plugin": False, "dcgm_exporter": False},
    )
    plan = observe.monitoring_plan(settings)
    assert (plan.namespace, plan.prometheus) == ("obs", "mon2-kube-prometheus-stack-prometheus:9090")
    assert (plan.alertmanager, plan.alerting, plan.pod_metrics, plan.node_metrics) == (None, {}, (), False)
    assert plan.autoscalers == ("keda-hpa-minilm-a100-40gb", "keda-hpa-minilm-h100-80gb")
    gpus = observe.gpu_plan(settings)
    assert gpus is not None
    assert gpus.daemon_sets == ()


def test_a_fleet_without_gpus_is_asked_for_none(project: Path) -> None:
    skus = [{"name": "cpu", "nodes": {"min": 1, "max": 1}}]
    models = local_config(project)["models"]
    models[0] |= {"placements": [{"sku": "cpu", "replicas": {"min": 1, "max": 1}}]}
    assert observe.gpu_plan(local_settings(project, skus=skus, models=models)) is None


PROMETHEUS = "/api/v1/namespaces/monitoring/services/prometheus-kube-prometheus-prometheus:9090/proxy/api/v1"


def test_what_is_asked_and_in_which_order() -> None:
    assert [(one.name, one.paths) for one in observe.questions(PLAN)] == [
        ("monitoring/prometheus", (f"{PROMETHEUS}/status/runtimeinfo", f"{PROMETHEUS}/alertmanagers")),
        (
            "monitoring/targets",
            (f"{PROMETHEUS}/targets?state=active&scrapePool=podMonitor%2Ftriton-local%2Ftriton%2F0",),
        ),
        ("monitoring/rules/triton-recording", (f"{PROMETHEUS}/rules",)),
        *(
            (
                f"monitoring/series/{series}",
                (
                    (
                        f"{PROMETHEUS}/query?query={series.replace(':', '%3A')}"
                        "%7Bnamespace%3D%22triton-local%22%7D%5B30s%5D"
                    ),
                ),
            )
            for series in ("triton:queue_compute:ratio", "triton:queue_duration:average")
        ),
        (
            "monitoring/pod-metrics/triton:queue_compute:ratio",
            (
                (
                    "/apis/custom.metrics.k8s.io/v1beta1/namespaces/triton-local/pods/*/triton:queue_compute:ratio"
                    "?labelSelector=app.kubernetes.io%2Fcomponent%3Dtriton"
                ),
            ),
        ),
        ("monitoring/autoscalers", ("/apis/autoscaling/v2/namespaces/triton-local/horizontalpodautoscalers",)),
        (
            "monitoring/alertmanager",
            (
                (
                    "/api/v1/namespaces/monitoring/services/prometheus-kube-prometheus-alertmanager:9093"
                    "/proxy/api/v2/status"
                ),
            ),
        ),
        ("monitoring/node-metrics", ("/apis/metrics.k8s.io/v1beta1/nodes",)),
    ]


def test_what_the_cluster_has_itself_is_asked_for_no_more_than_our_rules_and_replicas() -> None:
    """An Alertmanager that is the cluster's own has a configuration that is not ours."""
    own = PLAN.model_copy(update={"alertmanager": None, "autoscalers": (), "node_metrics": False})
    assert [(one.name, len(one.paths)) for one in observe.questions(own)] == [
        ("monitoring/prometheus", 1),
        *((one.name, 1) for one in observe.questions(PLAN)[1:-3]),
    ]


def test_the_plan_survives_its_way_through_json() -> None:
    assert MonitoringPlan.model_validate_json(PLAN.model_dump_json()) == PLAN


def test_a_change_is_waited_for_as_long_as_its_last_reader_may_take() -> None:
    """120 s for the mounted file, 3 scrapes of 10 s, 2 evaluations of 10 s, 30 s for the adapter's listing."""
    assert observe.settle_s(scrape_s=10, evaluation_s=10, relist_s=30) == 120 + 30 + 20 + 30


def replica(name: str) -> Pod:
    return Pod(name, "minilm", "a100", "a", "198.18.4.7", ready=True, gpus=1, waiting="")


REPLICAS = (replica("m-0"), replica("m-1"))


def question(name: str) -> Question:
    (found,) = [one for one in observe.questions(PLAN) if one.name == name]
    return found


def prometheus_says(data: object) -> dict[str, Any]:
    return {"status": "success", "data": data}


def target(pod: str, health: str = "up", error: str = "", namespace: str = "triton-local") -> dict[str, Any]:
    return {
        "discoveredLabels": {"__address__": "198.18.4.7:8002"},
        "labels": {"instance": "198.18.4.7:8002", "job": "triton-local/triton", "namespace": namespace, "pod": pod},
        "scrapePool": "podMonitor/triton-local/triton/0",
        "lastError": error,
        "lastScrape": "2026-12-01T01:59:08.345542785Z",
        "health": health,
    }


def rule(name: str, health: str = "ok", **more: str) -> dict[str, Any]:
    return {"name": name, "query": "up", "health": health, "type": "recording", **more}


FILES = "/etc/prometheus/rules/prometheus-prometheus-kube-prometheus-prometheus-rulefiles-0"
UID = "0b3c7a52-4d1e-4f57-9a77-3f2f4f9f4b11"


def group(name: str, *rules: dict[str, Any], file: str = f"triton-local-triton-recording-{UID}") -> dict[str, Any]:
    return {"name": name, "file": f"{FILES}/{file}.yaml", "rules": list(rules), "interval": 10, "limit": 0}


GOOD_RULES = (rule("triton:queue_compute:ratio"), rule("triton:up:count"))


def series(pod: str, *values: str) -> dict[str, Any]:
    metric = {"__name__": "triton:queue_compute:ratio", "namespace": "triton-local", "pod": pod}
    return {"metric": metric, "values": [[1796090343.229 + 10 * at, value] for at, value in enumerate(values)]}


def value(pod: str, quantity: str) -> dict[str, Any]:
    return {
        "describedObject": {"kind": "Pod", "namespace": "triton-local", "name": pod, "apiVersion": "/v1"},
        "metricName": "triton:queue_compute:ratio",
        "timestamp": "2026-12-01T02:00:00Z",
        "value": quantity,
        "selector": None,
    }


@pytest.mark.parametrize(
    ("name", "answers", "verdict"),
    [
        pytest.param(
            "monitoring/prometheus",
            [{"reloadConfigSuccess": True}, {"activeAlertmanagers": [{"url": "http://198.18.4.9:9093/api/v2/alerts"}]}],
            (True, "its newest configuration is loaded"),
            id="Prometheus is up to date",
        ),
        pytest.param(
            "monitoring/prometheus",
            [{"reloadConfigSuccess": False}, {"activeAlertmanagers": []}],
            (
                False,
                (
                    "Prometheus refused its newest configuration and runs on an older one; "
                    "Prometheus knows no Alertmanager: no alert reaches anybody"
                ),
            ),
            id="Prometheus refused its configuration, and is alone",
        ),
        pytest.param(
            "monitoring/targets",
            [{"activeTargets": [target("m-1"), target("m-0"), target("m-9", "down", "refused")]}],
            (True, "2 replicas are scraped"),
            id="each replica is scraped; one that is gone does not count",
        ),
        pytest.param(
            "monitoring/targets",
            [{"activeTargets": [target("m-1", "down", "context deadline exceeded")]}],
            (False, "m-0 is no target of Prometheus; m-1 is down: context deadline exceeded"),
            id="B02: one replica is no target, one does not answer",
        ),
        pytest.param(
            "monitoring/targets",
            [{"activeTargets": [target("m-0", "unknown"), target("m-1", namespace="triton-dev")]}],
            (False, "m-0 is unknown: it was not scraped yet; m-1 is no target of Prometheus"),
            id="one was not scraped yet, one is another namespace's",
        ),
        pytest.param(
            "monitoring/rules/triton-recording",
            [{"groups": [group("other", rule("x", "err"), file="kube-state"), group("triton", *GOOD_RULES)]}],
            (True, "2 rules are loaded and could be evaluated"),
            id="ours are loaded; others' are others'",
        ),
        pytest.param(
            "monitoring/rules/triton-recording",
            [{"groups": [group("triton", *GOOD_RULES, file=f"triton-local-triton-recording-b-{UID}")]}],
            (False, "group triton is not loaded"),
            id="another object's file",
        ),
        pytest.param(
            "monitoring/rules/triton-recording",
            [
                {
                    "groups": [
                        group(
                            "triton",
                            rule("triton:queue_compute:ratio", "err", lastError="many-to-many matching not allowed"),
                            rule("triton:up:count", "unknown"),
                        )
                    ]
                }
            ],
            (
                False,
                (
                    "triton:queue_compute:ratio is err: many-to-many matching not allowed; "
                    "triton:up:count is unknown: it was not evaluated yet"
                ),
            ),
            id="rules that cannot be evaluated",
        ),
        pytest.param(
            "monitoring/rules/triton-recording",
            [{"groups": [group("triton", rule("triton:queue_compute:ratio"), rule("old")), group("gone", rule("x"))]}],
            (
                False,
                (
                    "group triton is loaded with other rules: old, triton:up:count; "
                    "group gone is loaded and is not ours any more"
                ),
            ),
            id="rules of an older update",
        ),
        pytest.param(
            "monitoring/series/triton:queue_compute:ratio",
            [
                {
                    "resultType": "matrix",
                    "result": [series("m-0", "7", "0"), series("m-1", "1.23456"), series("old", "1")],
                }
            ],
            (True, "2 replicas are sampled: 0, 1.23"),
            id="one fresh sample for each",
        ),
        pytest.param(
            "monitoring/series/triton:queue_compute:ratio",
            [{"resultType": "matrix", "result": [series("m-1", "1"), series("m-1", "2")]}],
            (False, "m-0 has no sample of the last 30 s; m-1 has 2 series where one is read"),
            id="none, and one for each of its models",
        ),
        pytest.param(
            "monitoring/series/triton:queue_compute:ratio",
            [{"resultType": "matrix", "result": [series("m-0", "1", "NaN"), series("m-1", "-0.5")]}],
            (False, "m-0 has nan, which is no measure; m-1 has -0.5, which is no measure"),
            id="B06: no number, and a negative one",
        ),
        pytest.param(
            "monitoring/alertmanager",
            [{}],
            (False, "the answer has another form than expected: KeyError('config')"),
            id="an answer of another form",
        ),
    ],
)
def test_answers_of_prometheus(name: str, answers: Sequence[object], verdict: tuple[bool, str]) -> None:
    assert observe.judged(question(name), [prometheus_says(answer) for answer in answers], REPLICAS) == verdict


@pytest.mark.parametrize(
    ("items", "verdict"),
    [
        pytest.param(
            [value("m-0", "0"), value("m-1", "1500m"), value("x", "1")],
            (True, "2 replicas are measured: 0, 1500m"),
            id="one value for each",
        ),
        pytest.param([value("m-1", "1")], (False, "m-0 has 0 values, not 1"), id="B24: none"),
        pytest.param(
            [value("m-0", "1"), value("m-0", "2"), value("m-1", "-9223372036854775808m")],
            (False, "m-0 has 2 values, not 1; m-1 has -9223372036854775808m, which is no measure"),
            id="B06: two, and what was no number",
        ),
    ],
)
def test_answers_of_the_custom_metrics_api(items: list[dict[str, Any]], verdict: tuple[bool, str]) -> None:
    answer = {"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta1", "items": items}
    asked = question("monitoring/pod-metrics/triton:queue_compute:ratio")
    assert observe.judged(asked, [answer], REPLICAS) == verdict


@pytest.mark.parametrize("name", ["monitoring/targets", "monitoring/series/triton:queue_compute:ratio"])
def test_without_a_replica_nothing_is_proved(name: str) -> None:
    nothing = prometheus_says({"activeTargets": [], "result": []})
    assert observe.judged(question(name), [nothing], []) == (False, "there is no ready replica to ask about")


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [(["a", "system"], (True, "measures a, system")), ([], (False, "no node has been measured yet"))],
)
def test_answers_of_the_resource_metrics_api(measured: list[str], verdict: tuple[bool, str]) -> None:
    answer = {"kind": "NodeMetricsList", "items": [{"metadata": {"name": name}, "usage": {}} for name in measured]}
    assert observe.judged(question("monitoring/node-metrics"), [answer], REPLICAS) == verdict


def autoscaler(name: str, **conditions: str) -> dict[str, Any]:
    """An autoscaler whose conditions are `status`, or `status: reason: message`."""
    parts = [(kind, *text.split(": "), "fine", "well")[:4] for kind, text in conditions.items()]
    shown = [dict(zip(("type", "status", "reason", "message"), part, strict=True)) for part in parts]
    return {"metadata": {"name": name}, "spec": {}, "status": {"conditions": shown} if shown else {}}


@pytest.mark.parametrize(
    ("items", "verdict"),
    [
        pytest.param(
            [autoscaler(name, AbleToScale="True", ScalingActive="True") for name in ("m-h100", "m-a100", "other")],
            (True, "2 can scale and have their metrics"),
            id="as it should be",
        ),
        pytest.param(
            [
                autoscaler(
                    "m-a100",
                    AbleToScale="True",
                    ScalingActive="False: FailedGetPodsMetric: no metric triton:queue_compute:ratio",
                )
            ],
            (
                False,
                (
                    "m-a100: ScalingActive is False: FailedGetPodsMetric: no metric triton:queue_compute:ratio"
                    "; m-h100 is not there"
                ),
            ),
            id="B06: one is blind, one is not there",
        ),
        pytest.param(
            [autoscaler("m-a100", AbleToScale="False: FailedGetScale: not found"), autoscaler("m-h100")],
            (
                False,
                (
                    "m-a100: AbleToScale is False: FailedGetScale: not found; "
                    "m-h100 has not been looked at by the autoscaler's controller yet"
                ),
            ),
            id="one has lost its Deployment, one is new",
        ),
    ],
)
def test_autoscalers_can_scale(items: list[dict[str, Any]], verdict: tuple[bool, str]) -> None:
    assert observe.judged(question("monitoring/autoscalers"), [{"items": items}], REPLICAS) == verdict


def running() -> dict[str, Any]:
    """The configuration as Alertmanager shows it: with its defaults, in its own spelling, secrets hidden."""
    config = copy.deepcopy(ALERTING)
    config["global"] |= {"http_config": {"follow_redirects": True}, "smtp_hello": "localhost"}
    config["route"] |= {"continue": False, "repeat_interval": "4h"}
    for one in config["route"]["routes"]:
        one["continue"] = False
        one["matchers"] = sorted(one["matchers"], reverse=True)
    for one in config["receivers"]:
        one["labels"] = {"name": one["name"]}
    config["receivers"][1]["webhook_configs"][0] |= {"http_config": {"follow_redirects": True}, "max_alerts": 0}
    return {**config, "templates": []}


def add_route(config: dict[str, Any], **route: object) -> None:
    config["route"]["routes"].append({"receiver": "hooks", "continue": False, **route})


def change(path: str, new: object) -> Callable[[dict[str, Any]], None]:
    def changed(config: dict[str, Any]) -> None:
        *parts, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        at: Any = config
        for part in parts:
            at = at[part]
        at[last] = new

    return changed


def generated(config: dict[str, Any]) -> None:
    config["receivers"].append({"name": "team/their/hook", "webhook_configs": [{"url": "<secret>"}]})
    config["route"]["routes"].insert(0, {"receiver": "team/their/hook", "matchers": ['namespace="team"']})


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        pytest.param(lambda _: None, (True, "as configured, 2 receivers, the root's is null"), id="as it should be"),
        pytest.param(
            generated,
            (True, "as configured, 2 receivers, the root's is null; AlertmanagerConfig objects add team/their/hook"),
            id="with another team's AlertmanagerConfig",
        ),
        pytest.param(
            change("route/receiver", "hooks"),
            (False, "what no route names goes to 'hooks', not to 'null'"),
            id="B13: the root goes to somebody",
        ),
        pytest.param(
            lambda config: add_route(config, matchers=['severity="info"']),
            (False, "route.routes has 3 entries, not 2"),
            id="a route too many",
        ),
        pytest.param(
            change("route/routes/1/matchers", ['environment="local"', 'namespace=~".*"']),
            (
                False,
                (
                    """route.routes[1].matchers is ['environment="local"', 'namespace=~".*"'], """
                    """not ['environment="local"', 'namespace="triton-local"', 'severity=~"critical|warning"']"""
                ),
            ),
            id="B48: another matcher",
        ),
        pytest.param(
            change("route/routes/1/continue", new=True),
            (False, "route.routes[1].continue is True, not None"),
            id="an alert that goes on to the next route",
        ),
        pytest.param(
            change("route/group_wait", "31s"), (False, "route.group_wait is '31s', not '30s'"), id="another time"
        ),
        pytest.param(
            change("receivers/0/webhook_configs", [{"url": "<secret>"}]),
            (False, "receiver 'null' webhook_configs is [{'url': '<secret>'}], not None"),
            id="the null receiver tells somebody",
        ),
        pytest.param(
            change("receivers/1/webhook_configs/0/url_file", "/elsewhere"),
            (
                False,
                "receiver 'hooks' webhook_configs[0].url_file is '/elsewhere', not '/etc/alertmanager/secrets/x/hooks'",
            ),
            id="another file",
        ),
        pytest.param(
            change("receivers/1/name", "prod"),
            (False, "receiver 'hooks' is missing; receiver 'prod' is not ours"),
            id="another receiver",
        ),
        pytest.param(
            change("inhibit_rules", []),
            (False, f"inhibit_rules lacks {ALERTING['inhibit_rules'][0]}"),
            id="no inhibition",
        ),
    ],
)
def test_what_alertmanager_runs_on(changed: Callable[[dict[str, Any]], None], verdict: tuple[bool, str]) -> None:
    config = running()
    changed(config)
    answer = {"cluster": {"status": "ready"}, "config": {"original": yaml.safe_dump(config)}}
    assert observe.judged(question("monitoring/alertmanager"), [answer], REPLICAS) == verdict


def test_only_the_first_faults_are_told() -> None:
    pods = [replica(f"m-{number}") for number in range(9)]
    verdict = observe.judged(question("monitoring/targets"), [prometheus_says({"activeTargets": []})], pods)
    assert verdict.reason.count("is no target") == 5
    assert verdict.reason.endswith("; and 4 more")


@pytest.mark.parametrize(
    ("name", "look"),
    [
        ("prometheus", "-n monitoring logs -l app.kubernetes.io/name=prometheus -c prometheus --tail 50"),
        ("targets", "-n triton-local describe podmonitors,networkpolicies"),
        ("rules/triton-alerts", "-n triton-local describe prometheusrules"),
        ("series/triton:queue_compute:ratio", "-n triton-local describe prometheusrules"),
        ("pod-metrics/triton:queue_compute:ratio", "describe apiservice v1beta1.custom.metrics.k8s.io"),
        ("autoscalers", "-n triton-local describe hpa"),
        ("alertmanager", "-n monitoring logs -l app.kubernetes.io/name=alertmanager -c alertmanager --tail 50"),
        ("node-metrics", "describe apiservice v1beta1.metrics.k8s.io"),
    ],
)
def test_where_to_look_first(name: str, look: str) -> None:
    assert observe.first_look(PLAN, f"monitoring/{name}") == look


def test_each_question_has_a_place_to_look_at() -> None:
    looks = {one.name: observe.first_look(PLAN, one.name) for one in observe.questions(PLAN)}
    assert all(looks.values())
    json.dumps(looks)
