"""Each alert, evaluated by promtool: it fires, it does not one step below, it resolves.

Labels and texts are compared whole. `minilm` promises 2 s and 99.9 %, may take 120 s to load, and may have four
replicas on each SKU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet import alert_rule, recording
from fleet.alert_names import Alert
from tests.rules.promtool import A100, H100, Case, Samples, Series, Triton, named, run, settings_of, together
from tests.unit.graph import stack_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fleet.settings import Settings

A = "minilm-a100-40gb-78cbc5696f-2ktf7"
B = "minilm-h100-80gb-6955c79785-wfvx6"
STATE = {"job": "kube-state-metrics", "namespace": "triton-local", "instance": "198.18.4.9:8080"}
MODEL = {"environment": "local", "namespace": "triton-local", "model": "minilm"}

Fired = dict[str, Any]
QUIET: list[Fired] = []


def fired(alert: Alert, summary: str, description: str, **labels: str) -> Fired:
    """An alert that fires: its labels beside name and severity, and its texts."""
    return {
        "exp_labels": {"severity": alert_rule.SEVERITIES[alert], "environment": "local", "namespace": "triton-local"}
        | labels,
        "exp_annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"https://github.com/triton-fleet/triton-fleet/blob/main/docs/runbooks/{alert.value}.md",
        },
    }


def case(name: str, series: Mapping[str, Samples], alert: Alert, **at: list[Fired]) -> Case:
    """At which second (`s200`) what of one alert fires."""
    return Case(name, series, {}, {(int(second[1:]), alert.value): found for second, found in at.items()})


def steps(*stretches: tuple[int, float | None]) -> Samples:
    """Each value for so many scrapes."""
    return [value for count, value in stretches for _ in range(count)]


def state(metric: str, samples: Samples, **labels: str) -> Series:
    return {named(metric, {**STATE, **labels}): samples}


def container(samples: Samples, pod: str = A, metric: str = "kube_pod_container_status_ready") -> Series:
    return state(metric, samples, pod=pod, container="triton", uid="1")


def readiness(samples: Samples, pod: str = A, pod_samples: Samples | None = None) -> Series:
    """Of the container, as its node last told, and of the pod, which is another's where the node is gone."""
    whole = samples if pod_samples is None else pod_samples
    return container(samples, pod) | state("kube_pod_status_ready", whole, pod=pod, uid="1", condition="true")


def deployment(sku: str, wanted: Samples, available: Samples) -> Series:
    name = f"minilm-{sku}"
    return state("kube_deployment_spec_replicas", wanted, deployment=name) | state(
        "kube_deployment_status_replicas_available", available, deployment=name
    )


def latency() -> list[Case]:
    loud = fired(
        Alert.LATENCY_HIGH,
        "minilm is slower than promised on a100-40gb",
        "The mean time of a request is 2.1s; promised are at most 2s.",
        **MODEL,
        deployed_model="minilm",
        sku=A100,
    )
    hung = {
        **loud,
        "exp_annotations": {
            **loud["exp_annotations"],
            "description": "The mean time of a request is 50s; promised are at most 2s.",
        },
    }
    return [
        case(
            "latency: one SKU is slower than promised, after two minutes it is told, and mended a minute later",
            together(
                Triton().serves(30, 10, compute_s=2.1).serves(20, 10, compute_s=1.9),
                Triton(B, H100).serves(50, 10, compute_s=0.1),
            ),
            Alert.LATENCY_HIGH,
            s120=QUIET,
            s150=[loud],
            s290=[loud],
            s360=QUIET,
        ),
        case("latency: just as promised", Triton().serves(50, 10, compute_s=2).series, Alert.LATENCY_HIGH, s400=QUIET),
        case("latency: idle (B06)", Triton().serves(50).series, Alert.LATENCY_HIGH, s400=QUIET),
        case(
            "latency: nothing is answered any more",
            Triton().serves(20, 10, compute_s=1).serves(30, pending=3).series,
            Alert.LATENCY_HIGH,
            s480=[hung],
        ),
    ]


def errors() -> list[Case]:
    loud = fired(
        Alert.ERRORS_HIGH,
        "Requests to minilm fail on a100-40gb",
        "6% of the requests failed.",
        **MODEL,
        deployed_model="minilm",
        sku=A100,
    )
    return [
        case(
            "errors: 6 of 100 for five minutes, then none",
            Triton().serves(40, 94, failed=6).serves(20, 100).series,
            Alert.ERRORS_HIGH,
            s300=QUIET,
            s330=[loud],
            s460=QUIET,
        ),
        case("errors: 5 of 100", Triton().serves(60, 95, failed=5).series, Alert.ERRORS_HIGH, s500=QUIET),
        case("errors: what clients gave up", Triton().serves(60, 9, cancelled=5).series, Alert.ERRORS_HIGH, s500=QUIET),
    ]


def hangs() -> list[Case]:
    """From 300 s on three requests wait. Nothing was finished for 300 s at 590 s, which is told a minute later."""
    inside = {**Triton().target, "model": "minilm", "version": "1", "request_type": "waiting"}
    loud = fired(
        Alert.HUNG,
        f"{A} takes requests and answers none",
        "3 requests or more have been waiting for 300s, and none was answered.",
        **MODEL,
        pod=A,
        sku=A100,
    )
    return [
        case(
            "hung: and answers again at 700 s",
            Triton().serves(30, 10, compute_s=0.1).serves(40, pending=3).serves(10, 10, compute_s=0.1).series,
            Alert.HUNG,
            s590=QUIET,
            s680=[loud],
            s720=QUIET,
        ),
        case(
            "hung: one answer in five minutes is an answer",
            Triton()
            .serves(30, 10, compute_s=0.1, pending=3)
            .serves(28, pending=3)
            .serves(1, 1, compute_s=280, pending=3)
            .serves(28, pending=3)
            .series,
            Alert.HUNG,
            s860=QUIET,
        ),
        case(
            "hung: inside TensorRT-LLM, and answers again at 700 s",
            together(
                Triton().serves(30, 10, compute_s=0.1).serves(40).serves(10, 10, compute_s=0.1),
                {named("nv_trt_llm_request_metrics", inside): [0] * 30 + [3] * 40 + [0] * 11},
            ),
            Alert.HUNG,
            s590=QUIET,
            s680=[loud],
            s720=QUIET,
        ),
        case("hung: nobody waits", Triton().serves(90).series, Alert.HUNG, s800=QUIET),
        case(
            "hung: a pod that is as old as its queue",
            Triton().awaits(60).serves(20, pending=3).series,
            Alert.HUNG,
            s780=QUIET,
        ),
    ]


def queue() -> list[Case]:
    """Ten wait all the time. From 300 s on something is known of the window before, and it takes five minutes more."""
    loud = fired(
        Alert.QUEUE_GROWING,
        "minilm has all its replicas on a100-40gb, and its queue does not shrink",
        "At least 10 requests have been waiting all the time, and no replica may be added.",
        **MODEL,
        deployed_model="minilm",
        sku=A100,
    )
    busy = Triton().serves(90, 10, queue_s=1, compute_s=1, pending=10).serves(10, 10, compute_s=1).series
    shrinking = Triton()
    for step in range(100):
        shrinking.serves(1, 10, queue_s=1, compute_s=1, pending=200 - 2 * step)
    return [
        case(
            "queue: at the maximum of 4, until it is empty",
            together(busy, deployment(A100, [4] * 100, [4] * 100)),
            Alert.QUEUE_GROWING,
            s590=QUIET,
            s610=[loud],
            s890=[loud],
            s920=QUIET,
        ),
        case(
            "queue: one replica below the maximum",
            together(busy, deployment(A100, [3] * 100, [3] * 100)),
            Alert.QUEUE_GROWING,
            s890=QUIET,
        ),
        case(
            "queue: it is worked off",
            together(shrinking, deployment(A100, [4] * 100, [4] * 100)),
            Alert.QUEUE_GROWING,
            s890=QUIET,
        ),
    ]


def replicas() -> list[Case]:
    down = fired(
        Alert.MODEL_DOWN,
        "No replica of minilm is available",
        "Nobody is answered: no SKU has a replica that is Ready.",
        **MODEL,
    )
    lacking = fired(
        Alert.REPLICAS_UNAVAILABLE,
        "minilm lacks replicas on a100-40gb",
        "1 are available, fewer than are wanted, for longer than a node and a load take.",
        **MODEL,
        deployed_model="minilm",
        sku=A100,
        deployment="minilm-a100-40gb",
    )
    unready = fired(
        Alert.POD_NOT_READY, f"{A} is not Ready", "For longer than minilm may take to load.", **MODEL, pod=A, sku=A100
    )
    old = state("kube_deployment_created", [-86400] * 100, deployment="minilm-a100-40gb")
    new = state("kube_deployment_created", [0] * 100, deployment="minilm-a100-40gb")
    none = steps((10, 1), (60, 0), (30, 1))
    return [
        case(
            "down: no replica on any SKU, from 100 s to 700 s",
            together(deployment(A100, [1] * 100, none), deployment(H100, [1] * 100, none), old),
            Alert.MODEL_DOWN,
            s210=QUIET,
            s230=[down],
            s690=[down],
            s710=QUIET,
        ),
        case(
            "down: one SKU has a replica",
            together(deployment(A100, [1] * 100, none), deployment(H100, [1] * 100, [1] * 100), old),
            Alert.MODEL_DOWN,
            s690=QUIET,
        ),
        case(
            "down: the first load is not over",
            together(deployment(A100, [1] * 100, [0] * 100), deployment(H100, [1] * 100, [0] * 100), new),
            Alert.MODEL_DOWN,
            s710=QUIET,
            s850=[down],
        ),
        case(
            "replicas: one of two, for longer than 120 s of loading and 600 s for a node",
            deployment(A100, [2] * 100, steps((90, 1), (10, 2))),
            Alert.REPLICAS_UNAVAILABLE,
            s710=QUIET,
            s730=[lacking],
            s920=QUIET,
        ),
        case(
            "replicas: all that are wanted",
            deployment(A100, [2] * 100, [2] * 100),
            Alert.REPLICAS_UNAVAILABLE,
            s900=QUIET,
        ),
        case(
            "not ready: for five minutes, then ready; others' pods are theirs",
            together(
                readiness(steps((40, 0), (20, 1))),
                readiness([0] * 60, "web-7c5ddbdf54-x2x2x"),
                readiness([0] * 60, "minilm-a100-40gb-big-78cbc5696f-2ktf7"),
            ),
            Alert.POD_NOT_READY,
            s290=QUIET,
            s310=[unready],
            s420=QUIET,
        ),
        case("not ready: ready", readiness([1] * 60), Alert.POD_NOT_READY, s500=QUIET),
        case(
            "not ready: its node is gone, and the container stays as it was told last",
            readiness([1] * 60, pod_samples=[0] * 60),
            Alert.POD_NOT_READY,
            s310=[unready],
        ),
    ]


def nodes() -> list[Case]:
    """Two pods on one node and one on the other. Nodes that serve nothing are not the fleet's."""

    def placed(pod: str, node: str) -> Series:
        return state("kube_pod_info", [1] * 60, pod=pod, node=node, uid="1")

    def condition(node: str, true: Samples) -> Series:
        return state(
            "kube_node_status_condition", true, namespace="monitoring", node=node, condition="Ready", status="true"
        )

    fleet = together(
        placed(A, "gpu-1"),
        placed(A.replace("2ktf7", "9zzz9"), "gpu-1"),
        placed(B, "gpu-2"),
        placed("web-7c5ddbdf54-x2x2x", "system"),
    )
    lost = fired(
        Alert.NODE_NOT_READY,
        "Node gpu-1, which serves minilm on a100-40gb, is not Ready",
        "Its pods (2) get no requests. If it does not come back, Kubernetes makes them anew where there is room.",
        **MODEL,
        node="gpu-1",
        sku=A100,
    )
    away = steps((20, 1), (20, 0), (20, 1))
    return [
        case(
            "node: one of two is gone from 200 s to 400 s",
            together(fleet, condition("gpu-1", away), condition("gpu-2", [1] * 60)),
            Alert.NODE_NOT_READY,
            s250=QUIET,
            s270=[lost],
            s390=[lost],
            s410=QUIET,
        ),
        case(
            "node: one that serves nothing is gone",
            together(fleet, condition("gpu-1", [1] * 60), condition("system", away)),
            Alert.NODE_NOT_READY,
            s390=QUIET,
        ),
    ]


def restarts() -> list[Case]:
    def counted(samples: Samples, pod: str = A) -> Series:
        return container(samples, pod, "kube_pod_container_status_restarts_total")

    again = fired(
        Alert.RESTARTED,
        f"Triton was restarted in {A}",
        "Restarts in 15 minutes: 2. It crashed, was killed, or did not answer its probe. "
        "What it was answering is lost.",
        **MODEL,
        pod=A,
        sku=A100,
    )
    return [
        case(
            "restarts: a second and a third one at 200 s, told for a quarter of an hour",
            counted(steps((20, 1), (130, 3))),
            Alert.RESTARTED,
            s190=QUIET,
            s210=[again],
            s1080=[again],
            s1100=QUIET,
        ),
        case("restarts: long ago", counted([7] * 100), Alert.RESTARTED, s900=QUIET),
        case("restarts: a new pod", counted([*([None] * 20), *([0] * 20)]), Alert.RESTARTED, s300=QUIET),
    ]


def loads() -> list[Case]:
    """Started at 100 s; four fifths of 120 s are over at 196 s."""

    def loud(took: str) -> Fired:
        return fired(
            Alert.LOAD_SLOW,
            f"{A} takes long to load minilm",
            f"{took} until it was loaded, or so far; after 120s it is restarted.",
            **MODEL,
            pod=A,
            sku=A100,
        )

    started = container([100] * 200, metric="kube_pod_container_state_started")
    pod = Triton().serves(200)
    took = named("nv_model_load_duration_secs", {**pod.target, "model": "minilm", "version": "1"})
    return [
        case(
            "load: not ready after 100 s, ready at 210 s; it is told for 15 minutes",
            together(readiness(steps((21, 0), (179, 1))), started),
            Alert.LOAD_SLOW,
            s190=QUIET,
            s200=[loud("1m 40s")],
            s900=[loud("1m 40s")],
            s1200=QUIET,
        ),
        case(
            "load: ready in time, and not ready again later",
            together(readiness(steps((19, 0), (20, 1), (161, 0))), started),
            Alert.LOAD_SLOW,
            s200=QUIET,
            s400=QUIET,
        ),
        case(
            "load: Triton says that it took 97 s",
            together(pod, {took: [97] * 200}, readiness([1] * 200), started),
            Alert.LOAD_SLOW,
            s200=[loud("1m 37s")],
        ),
        case(
            "load: Triton says that it took 96 s",
            together(pod, {took: [96] * 200}, readiness([1] * 200), started),
            Alert.LOAD_SLOW,
            s200=QUIET,
        ),
    ]


def sight() -> list[Case]:
    unscraped = fired(
        Alert.TARGET_DOWN,
        f"{A} is Ready and not scraped",
        "Prometheus gets no answer from its metrics port, or does not know it as a target.",
        **MODEL,
        pod=A,
        sku=A100,
    )
    unseen = fired(
        Alert.SERIES_ABSENT,
        f"{A} is Ready and has no queue ratio",
        "Autoscaling of minilm on a100-40gb does not see this replica.",
        **MODEL,
        pod=A,
        sku=A100,
    )
    unobserved = fired(
        Alert.GPU_UNOBSERVED,
        f"The GPUs of {A} are not observed",
        "The exporter of GPU metrics on its node is down, or does not know the pod.",
        **MODEL,
        pod=A,
        sku=A100,
    )
    ready = together(readiness([1] * 100), readiness([1] * 100, B))
    fine = Triton(B, H100).serves(100)
    silent = together(ready, fine, Triton().serves(20).unanswered(40).serves(40))
    gone = together(ready, fine, Triton().serves(20).vanishes(40))
    loading = together(readiness([0] * 100), Triton().serves(1).unanswered(99))
    lost = together(readiness([1] * 100, pod_samples=[0] * 100), Triton().serves(1).unanswered(99))
    empty = together(ready, fine, {named("up", Triton().target): [1] * 100})

    def gpu(pod: str, samples: Samples) -> Series:
        labels = {"job": "dcgm-exporter", "pod": "dcgm-exporter-x", "exported_namespace": "triton-local"}
        return {named("DCGM_FI_DEV_FB_USED", {**labels, "exported_pod": pod, "gpu": "0"}): samples}

    return [
        case(
            "target: no answer from 200 s to 600 s",
            silent,
            Alert.TARGET_DOWN,
            s490=QUIET,
            s510=[unscraped],
            s610=QUIET,
        ),
        case("target: not known any more", gone, Alert.TARGET_DOWN, s520=[unscraped]),
        case("target: it does not answer while it loads", loading, Alert.TARGET_DOWN, s900=QUIET),
        case("target: its node is gone, which another alert tells", lost, Alert.TARGET_DOWN, s900=QUIET),
        case(
            "series: none while there is no answer", silent, Alert.SERIES_ABSENT, s500=QUIET, s570=[unseen], s650=QUIET
        ),
        case("series: an answer without them", empty, Alert.SERIES_ABSENT, s290=QUIET, s310=[unseen]),
        case("series: idle", together(ready, fine, Triton().serves(100)), Alert.SERIES_ABSENT, s900=QUIET),
        case(
            "GPUs: the exporter on one node falls silent at 200 s, until 900 s",
            together(ready, gpu(A, [*([0] * 20), "stale", *([None] * 69), *([0] * 10)]), gpu(B, [0] * 100)),
            Alert.GPU_UNOBSERVED,
            s790=QUIET,
            s810=[unobserved],
            s920=QUIET,
        ),
    ]


def observation() -> list[Case]:
    def blind(**labels: str) -> Fired:
        return fired(
            Alert.METRICS_API_DOWN,
            "Autoscaling is blind",
            "The metrics API does not answer, or an autoscaler gets no value from it. Replicas stay as they "
            "are, whatever the load.",
            **labels,
        )

    def scaler(status: str, samples: Samples) -> Series:
        return state(
            "kube_horizontalpodautoscaler_status_condition",
            samples,
            horizontalpodautoscaler="minilm-a100-40gb",
            condition="ScalingActive",
            status=status,
        )

    def api(name: str, samples: Samples) -> Series:
        return {named("aggregator_unavailable_apiservice", {"job": "apiserver", "name": name}): samples}

    def server(instance: str, samples: Samples) -> Series:
        return {named("up", {"job": "apiserver", "instance": instance}): samples}

    def adapter(samples: Samples) -> Series:
        return state(
            "kube_deployment_status_replicas_available",
            samples,
            namespace="monitoring",
            deployment="prometheus-adapter",
        )

    away = steps((10, 0), (40, 1), (20, 0))
    unknown = fired(
        Alert.STATE_UNKNOWN,
        "kube-state-metrics tells nothing of triton-local",
        "Alerts on replicas, pods and targets cannot fire.",
    )
    group = "/etc/prometheus/rules/prometheus-x-rulefiles-0/triton-local-triton-recording-0a1b.yaml;triton-load"
    failing = fired(
        Alert.RULES_FAILING,
        "Rules of the fleet fail, or come too late",
        f"{group}: its series are missing or old, or its alerts do not fire.",
        rule_group=group,
    )

    def of_group(metric: str, samples: Samples, name: str = group) -> Series:
        return {named(metric, {"job": "prometheus", "rule_group": name}): samples}

    others = group.replace("triton-local", "triton-dev")
    slow = of_group("prometheus_rule_group_interval_seconds", [10] * 100)
    old = fired(
        Alert.VERIFICATION_OLD,
        "The fleet in triton-local was not verified for long",
        "The last verification that held is older than 30 days, or there was none.",
        configmap="triton-fleet-verification",
    )
    never = {**old, "exp_labels": {**old["exp_labels"]}}

    def stamp(created: float) -> Series:
        return state("kube_configmap_created", [created] * 500, configmap="triton-fleet-verification")

    days = 86400.0
    return [
        case(
            "blind: an autoscaler has no value from 100 s to 500 s",
            together(scaler("false", away), scaler("true", steps((10, 1), (40, 0), (20, 1)))),
            Alert.METRICS_API_DOWN,
            s390=QUIET,
            s410=[blind(horizontalpodautoscaler="minilm-a100-40gb")],
            s510=QUIET,
        ),
        case(
            "blind: the API server cannot reach the adapter",
            together(api("v1beta1.custom.metrics.k8s.io", away), api("v1beta1.metrics.k8s.io", [1] * 70)),
            Alert.METRICS_API_DOWN,
            s410=[blind(name="v1beta1.custom.metrics.k8s.io")],
            s510=QUIET,
        ),
        case(
            "blind: the adapter has no pod",
            adapter(steps((10, 1), (40, 0), (20, 1))),
            Alert.METRICS_API_DOWN,
            s410=[blind(deployment="prometheus-adapter")],
            s510=QUIET,
        ),
        case(
            "blind: the API server itself is away, all three of it",
            together(*(server(str(number), steps((10, 1), (40, 0), (20, 1))) for number in range(3))),
            Alert.METRICS_API_DOWN,
            s390=QUIET,
            s410=[blind(job="apiserver")],
            s510=QUIET,
        ),
        case(
            "blind: one API server of two answers",
            together(server("1", [0] * 70), server("2", [1] * 70)),
            Alert.METRICS_API_DOWN,
            s600=QUIET,
        ),
        case(
            "blind: all answer",
            together(
                scaler("false", [0] * 70),
                api("v1beta1.custom.metrics.k8s.io", [0] * 70),
                adapter([1] * 70),
                server("1", [1] * 70),
            ),
            Alert.METRICS_API_DOWN,
            s600=QUIET,
        ),
        case(
            "state: nothing from kube-state-metrics from 100 s to 900 s",
            deployment(A100, [*([1] * 10), "stale", *([None] * 79), *([1] * 10)], [1] * 100),
            Alert.STATE_UNKNOWN,
            s690=QUIET,
            s710=[unknown],
            s910=QUIET,
        ),
        case(
            "rules: one failure every half minute, until 400 s",
            of_group("prometheus_rule_evaluation_failures_total", [float(min(at, 40) // 3) for at in range(100)]),
            Alert.RULES_FAILING,
            s310=QUIET,
            s350=[failing],
            s720=QUIET,
        ),
        case(
            "rules: they take longer than their interval",
            together(of_group("prometheus_rule_group_last_duration_seconds", steps((50, 11), (50, 9))), slow),
            Alert.RULES_FAILING,
            s310=[failing],
            s510=QUIET,
        ),
        case(
            "rules: another stack's fail",
            of_group("prometheus_rule_evaluation_failures_total", [float(at) for at in range(100)], others),
            Alert.RULES_FAILING,
            s900=QUIET,
        ),
        case(
            "verification: 30 days ago and an hour",
            stamp(-30 * days),
            Alert.VERIFICATION_OLD,
            s3590=QUIET,
            s3620=[old],
        ),
        case("verification: 29 days ago", stamp(-29 * days), Alert.VERIFICATION_OLD, s4900=QUIET),
        case("verification: never", {named("up", {"job": "x"}): [1] * 500}, Alert.VERIFICATION_OLD, s3610=[never]),
    ]


def gpus() -> list[Case]:
    labels = {
        "job": "dcgm-exporter",
        "instance": "198.18.5.9:9400",
        "pod": "dcgm-exporter-x",
        "namespace": "monitoring",
        "gpu": "3",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "gpu-1",
        "exported_namespace": "triton-local",
        "exported_pod": B,
    }

    def gpu(metric: str, samples: Samples) -> Series:
        return {named(metric, labels): samples}

    def broken(alert: Alert, summary: str, description: str) -> Fired:
        return fired(alert, summary, f"{description} In use by: {B}.", **{**labels, "namespace": "triton-local"})

    xid = broken(
        Alert.GPU_XID_ERRORS,
        "GPU 3 (NVIDIA H100 80GB HBM3) of gpu-1 reports an error",
        "XID 79, a fault of the GPU or of its driver.",
    )
    ecc = broken(
        Alert.GPU_ECC_ERRORS,
        "Memory of GPU 3 (NVIDIA H100 80GB HBM3) of gpu-1 is failing",
        "Errors that ECC could not correct, or a row that could not be replaced.",
    )
    return [
        case(
            "XID: 79, the GPU has fallen off the bus",
            gpu("DCGM_FI_DEV_XID_ERRORS", steps((10, 0), (20, 79), (10, 0))),
            Alert.GPU_XID_ERRORS,
            s150=QUIET,
            s170=[xid],
            s310=QUIET,
        ),
        case(
            "XID: 31, a program's fault",
            gpu("DCGM_FI_DEV_XID_ERRORS", steps((40, 31))),
            Alert.GPU_XID_ERRORS,
            s390=QUIET,
        ),
        *(
            case(
                f"ECC: {metric}",
                gpu(metric, steps((10, 0), (400, 1))),
                Alert.GPU_ECC_ERRORS,
                s90=QUIET,
                s170=[ecc],
                s3800=QUIET,
            )
            for metric in ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")
        ),
        case(
            "ECC: errors of last week",
            gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", [5] * 100),
            Alert.GPU_ECC_ERRORS,
            s900=QUIET,
        ),
        case(
            "ECC: a row cannot be replaced",
            gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE", steps((20, 1), (20, 0))),
            Alert.GPU_ECC_ERRORS,
            s170=[ecc],
            s210=QUIET,
        ),
    ]


def burn_rates() -> list[Case]:
    """A promise of 99.9 % leaves 0.1 %: 14.4 times of it is 1.44 %, 6 times 0.6 %.

    The windows' series stand here as recorded, and failures as their rate a second.
    """
    of = {"environment": "local", "namespace": "triton-local", "deployed_model": "minilm"}

    def recorded(failures: float = 1, **windows: Samples) -> Series:
        found = {named(recording.errors(window[1:]), of): samples for window, samples in windows.items()}
        return {**found, named(recording.FAILED, {**of, "sku": A100}): [failures] * 200}

    def loud(alert: Alert, summary: str, description: str) -> list[Fired]:
        return [fired(alert, summary, description, **MODEL, deployed_model="minilm")]

    def fast(percent: str) -> list[Fired]:
        return loud(
            Alert.BURN_FAST,
            "minilm fails too often to keep its promise for the month",
            f"{percent} of the requests failed, many times what was promised: at most 0.1%.",
        )

    slow = loud(
        Alert.BURN_SLOW,
        "minilm has failed more often than promised for days",
        "0.11% of the requests of three days failed; promised are at most 0.1%.",
    )
    return [
        case(
            "burn: 1.45 % of an hour's and of five minutes' requests; when those are fine again it is over",
            recorded(w1h=[0.0145] * 200, w5m=steps((50, 0.0145), (150, 0))),
            Alert.BURN_FAST,
            s110=QUIET,
            s130=fast("1.45%"),
            s510=QUIET,
        ),
        case("burn: 1.44 %", recorded(w1h=[0.0144] * 200, w5m=[0.5] * 200), Alert.BURN_FAST, s900=QUIET),
        case(
            "burn: 0.61 % of six hours' requests and of half an hour's",
            recorded(w6h=[0.0061] * 200, w30m=steps((50, 0.0061), (150, 0.006))),
            Alert.BURN_FAST,
            s130=fast("0.61%"),
            s510=QUIET,
        ),
        case(
            "burn: four failures are too few to tell",
            {
                **recorded(0, w1h=[1] * 200, w5m=[1] * 200),
                named(recording.FAILED, {**of, "sku": A100}): steps((4, 0.1), (196, 0)),
            },
            Alert.BURN_FAST,
            s900=QUIET,
        ),
        case(
            "burn: 0.11 % for three days",
            recorded(w3d=[0.0011] * 200, w6h=steps((150, 0.0011), (50, 0.001))),
            Alert.BURN_SLOW,
            s890=QUIET,
            s910=slow,
            s1510=QUIET,
        ),
        case(
            "burn: 0.1 % for three days", recorded(w3d=[0.001] * 200, w6h=[0.002] * 200), Alert.BURN_SLOW, s1500=QUIET
        ),
    ]


def node_groups() -> list[Case]:
    """Only on clusters whose autoscaler the stack installs: here stack `dev`."""
    group = "eks-dev-a10g-20261201020304050600000001-1ac2"

    def autoscaler(nodes: float, waiting: Samples) -> Series:
        labels = {"job": "cluster-autoscaler", "namespace": "kube-system", "node_group": group}
        return {
            named("cluster_autoscaler_node_group_target_count", labels): [nodes] * 100,
            named("cluster_autoscaler_node_group_max_count", labels): [2] * 100,
            named("cluster_autoscaler_unschedulable_pods_count", {"type": "unschedulable"}): waiting,
        }

    full = fired(
        Alert.NODE_GROUP_AT_MAXIMUM,
        f"Node group {group} is at its maximum, and pods wait for a node",
        "It has 2 nodes and may have no more.",
        environment="dev",
        namespace="triton-dev",
        node_group=group,
        sku="a10g",
    )
    return [
        case(
            "nodes: at the maximum of 2 while pods wait",
            autoscaler(2, steps((80, 3), (20, 0))),
            Alert.NODE_GROUP_AT_MAXIMUM,
            s590=QUIET,
            s610=[full],
            s810=QUIET,
        ),
        case("nodes: one below", autoscaler(1, [3] * 100), Alert.NODE_GROUP_AT_MAXIMUM, s900=QUIET),
        case("nodes: nobody waits", autoscaler(2, [0] * 100), Alert.NODE_GROUP_AT_MAXIMUM, s900=QUIET),
    ]


def healthy() -> list[Case]:
    """Field report B06: a fleet that nobody asks anything has nothing to tell."""
    nobody = together(
        Triton().serves(100),
        Triton(B, H100).serves(100),
        *(readiness([1] * 100, pod) for pod in (A, B)),
        *(
            container([value] * 100, pod, metric)
            for pod in (A, B)
            for metric, value in (
                ("kube_pod_container_state_started", -3600),
                ("kube_pod_container_status_restarts_total", 0),
            )
        ),
        *(state("kube_pod_info", [1] * 100, pod=pod, node="gpu-1", uid="1") for pod in (A, B)),
        state("kube_node_status_condition", [1] * 100, namespace="x", node="gpu-1", condition="Ready", status="true"),
        *(deployment(sku, [1] * 100, [1] * 100) for sku in (A100, H100)),
        *(state("kube_deployment_created", [-3600] * 100, deployment=f"minilm-{sku}") for sku in (A100, H100)),
        *(
            {named("DCGM_FI_DEV_FB_USED", {"exported_namespace": "triton-local", "exported_pod": pod}): [1] * 100}
            for pod in (A, B)
        ),
        state("kube_configmap_created", [-60] * 100, configmap="triton-fleet-verification"),
    )
    return [Case("an idle fleet, and all alerts", nobody, {(900, "ALERTS"): {}}, whole=True)]


CASES = [
    *healthy(),
    *latency(),
    *errors(),
    *hangs(),
    *queue(),
    *replicas(),
    *nodes(),
    *restarts(),
    *loads(),
    *sight(),
    *observation(),
    *gpus(),
    *burn_rates(),
]
GROUPS = node_groups()


def dev(project: Path) -> Settings:
    from fleet import settings  # noqa: PLC0415 - beside a function's argument of that name

    return settings.load(stack_config(project, "dev"), project)


@pytest.fixture(scope="module")
def outcomes(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory, project: Path) -> Mapping[str, str]:
    promtool = tool("promtool")
    return {
        **run(promtool, tmp_path_factory.mktemp("alerts"), settings_of(project), CASES),
        **run(promtool, tmp_path_factory.mktemp("groups"), dev(project), GROUPS),
    }


@pytest.mark.parametrize("name", [one.name for one in (*CASES, *GROUPS)])
def test_who_is_told(name: str, outcomes: Mapping[str, str]) -> None:
    assert outcomes[name] == ""


def test_each_alert_fires_in_a_case_and_is_quiet_in_another() -> None:
    told, quiet = set(), set()
    for one in (*CASES, *GROUPS):
        for (_, name), found in one.alerts.items():
            (told if found else quiet).add(name)
    assert told == {alert.value for alert in Alert}
    assert quiet == {alert.value for alert in Alert}
