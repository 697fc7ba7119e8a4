"""What the dashboards ask, evaluated by promtool over a fleet that is busy, failing in part, and on GPUs.

The series of Triton, of kube-state-metrics, of dcgm-exporter, of the node autoscaler and of Alertmanager are written
here; the metric contract proves of each name and label that a real scrape has it. Recorded series and alerts are made
by the real rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fleet import dashboards
from tests.rules.promtool import A100, H100, Case, Samples, Triton, named, run, settings_of, together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SCRAPES = 60
LOOK_S = 590
"""When the dashboards are looked at: at the last scrape but one."""
A = "minilm-a100-40gb-78cbc5696f-2ktf7"
B = "minilm-h100-80gb-6955c79785-wfvx6"
FLEET = {"environment": "local", "namespace": "triton-local", "deployed_model": "minilm"}


def steady(*series: tuple[str, Mapping[str, str], float]) -> dict[str, Samples]:
    return {named(metric, labels): [value] * SCRAPES for metric, labels, value in series}


def rising(*series: tuple[str, Mapping[str, str], float]) -> dict[str, Samples]:
    """Counters that rise by so much at each scrape."""
    return {named(metric, labels): [index * step for index in range(SCRAPES)] for metric, labels, step in series}


def triton() -> dict[str, Samples]:
    """Ten requests a second on one SKU, every tenth of them failing; two a second on the other, slow."""
    one = Triton(A, A100).serves(SCRAPES, 90, queue_s=0.1, compute_s=0.2, pending=3, failed=10, batch=2)
    other = Triton(B, H100).serves(SCRAPES, 20, queue_s=3, compute_s=1)
    parts = [
        (f"nv_inference_compute_{part}_duration_us", {**pod.target, "model": "minilm", "version": "1"}, step)
        for pod, step in ((one, 90 * 0.01 * 1e6), (other, 20 * 0.02 * 1e6))
        for part in ("input", "output")
    ]
    engine = [
        (metric, {**one.target, "model": "minilm", "version": "1", **label}, value)
        for metric, label, value in (
            ("nv_model_load_duration_secs", {}, 41),
            ("nv_trt_llm_request_metrics", {"request_type": "waiting"}, 2),
            ("nv_trt_llm_request_metrics", {"request_type": "active"}, 8),
            ("nv_trt_llm_request_metrics", {"request_type": "max"}, 64),
            ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "used"}, 30),
            ("nv_trt_llm_kv_cache_block_metrics", {"kv_cache_block_type": "max"}, 120),
        )
    ]
    return {**together(one, other), **rising(*parts), **steady(*engine)}


def cluster() -> dict[str, Samples]:
    """As kube-state-metrics says it: of one Deployment a replica is missing, one autoscaler is blind."""
    a100, h100 = ({"namespace": "triton-local", "deployment": f"minilm-{sku}"} for sku in (A100, H100))
    scaler = {"namespace": "triton-local", "horizontalpodautoscaler": f"minilm-{A100}"}
    blind = {"namespace": "triton-local", "horizontalpodautoscaler": f"minilm-{H100}"}
    metric = {"metric_name": "triton:queue_compute:ratio", "metric_target_type": "average"}
    hpa = "kube_horizontalpodautoscaler"
    return steady(
        ("kube_deployment_spec_replicas", a100, 2),
        ("kube_deployment_status_replicas_available", a100, 1),
        ("kube_deployment_spec_replicas", h100, 1),
        ("kube_deployment_status_replicas_available", h100, 1),
        (f"{hpa}_spec_target_metric", {**scaler, **metric}, 1.5),
        (f"{hpa}_status_target_metric", {**scaler, **metric}, 0.5),
        (f"{hpa}_status_desired_replicas", scaler, 2),
        *(
            (f"{hpa}_status_condition", {**which, "condition": condition, "status": "true"}, value)
            for which, condition, value in (
                (scaler, "ScalingActive", 1),
                (blind, "ScalingActive", 0),
                (scaler, "ScalingLimited", 0),
                (blind, "ScalingLimited", 1),
            )
        ),
        ("kube_pod_status_phase", {"namespace": "triton-local", "pod": "waiting", "phase": "Pending"}, 1),
        ("kube_node_status_allocatable", {"node": "gpu-1", "resource": "nvidia_com_gpu", "unit": "integer"}, 1),
        (
            "kube_pod_container_resource_requests",
            {"namespace": "triton-local", "pod": A, "resource": "nvidia_com_gpu", "unit": "integer"},
            1,
        ),
        ("cluster_autoscaler_node_group_target_count", {"node_group": "gpu"}, 4),
        ("cluster_autoscaler_node_group_max_count", {"node_group": "gpu"}, 4),
        ("cluster_autoscaler_unschedulable_pods_count", {"type": "unschedulable"}, 1),
    )


def gpus() -> dict[str, Samples]:
    """A GPU that Triton holds, as exporters up to 4.8.2 name its node, and a free one, as those after it do."""
    held = {
        "gpu": "0",
        "UUID": "GPU-a",
        "modelName": "NVIDIA A100-SXM4-40GB",
        "Hostname": "gpu-1",
        "exported_namespace": "triton-local",
        "exported_pod": A,
        "exported_container": "triton",
    }
    free = {"gpu": "0", "UUID": "GPU-b", "modelName": "NVIDIA L4", "hostname": "gpu-2"}
    fields = {
        "GPU_UTIL": (75, 0),
        "FB_USED": (30000, 0),
        "FB_FREE": (10000, 22563),
        "GPU_TEMP": (61, 31),
        "POWER_USAGE": (409.7, 16.4),
        "XID_ERRORS": (0, 0),
        "UNCORRECTABLE_REMAPPED_ROWS": (0, 0),
        "ROW_REMAP_FAILURE": (0, 0),
    }
    return steady(
        *(
            (f"DCGM_FI_DEV_{name}", labels, value)
            for name, values in fields.items()
            for labels, value in zip((held, free), values, strict=True)
        )
    )


def watchers() -> dict[str, Samples]:
    """Alertmanager, Prometheus, and alerts beside those that the fleet's own rules raise."""
    firing = {"alertstate": "firing"}
    alerts = (
        {"alertname": "Watchdog", "severity": "none"},
        {"alertname": "Labelled", "severity": "critical", "environment": "local", "namespace": "triton-local"},
        {"alertname": "NoEnvironment", "severity": "critical", "namespace": "triton-local"},
        {"alertname": "WrongEnvironment", "severity": "warning", "environment": "prod", "namespace": "triton-local"},
        {"alertname": "OfTheCluster", "severity": "warning", "namespace": "kube-system"},
    )
    return {
        **steady(*(("ALERTS", {**firing, **labels}, 1) for labels in alerts)),
        **steady(
            ("alertmanager_alerts", {"state": "active"}, 3),
            ("alertmanager_alerts", {"state": "suppressed"}, 1),
            ("alertmanager_config_last_reload_successful", {"pod": "alertmanager-0"}, 1),
        ),
        **rising(
            ("alertmanager_notifications_total", {"integration": "webhook"}, 1),
            ("alertmanager_notifications_failed_total", {"integration": "webhook", "reason": "other"}, 0),
            ("prometheus_rule_evaluation_failures_total", {"rule_group": "a"}, 0),
            ("prometheus_notifications_dropped_total", {}, 0),
        ),
    }


def asked(expr: str, chosen: Mapping[str, str]) -> str:
    """As Grafana asks Prometheus: every choice filled in, and a window of four scrapes."""
    filled = expr.replace("$__rate_interval", "1m")
    return re.sub(r"\$([a-z]\w*)", lambda match: chosen.get(match[1], ".*"), filled)


EVERYTHING = [expr for dashboard in dashboards.DASHBOARDS for _, expr in dashboards.expressions(dashboard)]


def panel(uid: str, title: str) -> list[str]:
    (dashboard,) = (one for one in dashboards.DASHBOARDS if one.uid == f"triton-fleet-{uid}")
    return [expr for found, expr in dashboards.expressions(dashboard) if found == title]


def value(
    uid: str, title: str, *samples: Mapping[str, float], **chosen: str
) -> dict[tuple[int, str], dict[str, float]]:
    """What each query of a panel answers."""
    exprs = panel(uid, title)
    return {(LOOK_S, asked(expr, chosen)): dict(found) for expr, found in zip(exprs, samples, strict=True)}


def of(sku: str, name: str = "") -> str:
    return named(name, {**FLEET, "sku": sku})


VALUES = [
    # requests: 9 + 2 a second
    value("overview", "Requests", {"{}": 11}),
    # requests of one SKU
    value("overview", "Requests", {"{}": 2}, sku=H100),
    # failed: 1 of 12 a second
    value("overview", "Failed", {"{}": 1 / 12}),
    # failed, where none does
    value("overview", "Failed", {"{}": 0}, sku=H100),
    # slowest: 4 s where 2 s are promised
    value("overview", "Slowest against its promise", {"{}": 2}),
    # slowest of the other SKU: 0.3 s
    value("overview", "Slowest against its promise", {"{}": 0.15}, sku=A100),
    # replicas missing
    value("overview", "Replicas missing", {"{}": 1}),
    # GPUs held
    value("overview", "GPUs held", {"{}": 1}),
    # batch of two
    {
        (LOOK_S, asked(panel("triton", "Batch size")[0], {"sku": A100})): {
            named("triton_fleet:model_batch_size:average", {**FLEET, "sku": A100, "model": "minilm"}): 2
        }
    },
    # time: each part
    value(
        "triton",
        "Where the time goes",
        *({'{model="minilm"}': seconds} for seconds in (0.1, 0.01, 0.2, 0.01)),
        sku=A100,
    ),
    # KV cache: 30 of 120 blocks
    {(LOOK_S, f"sum({asked(panel('triton', 'KV cache in use')[0], {})})"): {"{}": 0.25}},
    # memory of a GPU: 30000 of 40000 MiB
    {
        (LOOK_S, asked(panel("gpus", "Memory in use")[1], {"product": "NVIDIA A100.*"})): {
            '{Hostname="gpu-1", gpu="0", modelName="NVIDIA A100-SXM4-40GB"}': 0.75
        }
    },
    # metric and target
    value(
        "autoscaling",
        "Metric and target",
        {f'{{deployment="minilm-{A100}", namespace="triton-local"}}': 0.5},
        {f'{{deployment="minilm-{A100}", namespace="triton-local"}}': 1.5},
        deployment=f"minilm-{A100}",
    ),
    # autoscalers that cannot decide
    value(
        "autoscaling",
        "Autoscalers that cannot decide",
        {
            f'{{deployment="minilm-{A100}", namespace="triton-local"}}': 0,
            f'{{deployment="minilm-{H100}", namespace="triton-local"}}': 1,
        },
    ),
    # environment missing or wrong, and one of the cluster
    value("alerts", "Environment missing or wrong", {"{}": 3}),
    # the same in the fleet's namespaces
    value("alerts", "Same, in the fleet's namespaces", {"{}": 2}),
    # sign of life
    value("alerts", "Sign of life", {"{}": 1}),
    # sixty messages an hour at most
    {(LOOK_S, f"{asked(panel('alerts', 'Messages sent')[0], {})} > bool 50"): {'{integration="webhook"}': 1}},
]


def test_what_dashboards_ask_is_answered(project: Path, tool: Callable[[str], str], tmp_path: Path) -> None:
    """In one run, since each case evaluates all rules anew; promtool names the expression that fails."""
    every = {(LOOK_S, f"count({asked(expr, {})}) > bool 0"): {"{}": 1.0} for expr in EVERYTHING}
    known = {at: samples for values in VALUES for at, samples in values.items()}
    case = Case("dashboards", together(triton(), cluster(), gpus(), watchers()), {**every, **known})
    outcome = run(tool("promtool"), tmp_path, settings_of(project), [case])
    assert outcome == {"dashboards": ""}, outcome["dashboards"]
