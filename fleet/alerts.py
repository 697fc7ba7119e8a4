"""The alerts: what a person is told of, and what the page of docs/runbooks says to do.

Each carries the environment and the serving namespace, by which it finds its receivers, also where it is about
something outside of that namespace. Those about a model name it as `model`. One rule stands for one model, since
promises and load times are the model's own.

Where an alert needs a state that Kubernetes knows, kube-state-metrics tells it; one alert says when that is silent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fleet import alerts_replicas, autoscaling, names, recording, scraping
from fleet.alert_names import Alert
from fleet.alert_rule import DURATION, PERCENTAGE, POD, SKU, VALUE, Of, Told, made, number
from fleet.schema import EksCluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.pods import Manifest
    from fleet.recording import Rule
    from fleet.schema import ModelSettings
    from fleet.settings import Settings

RULES: Final = "triton-alerts"
LATENCY_FOR_S: Final = 120
ERRORS_LIMIT: Final = 0.05
ERRORS_FOR_S: Final = 300

BURN_FAST: Final = ((14.4, "1h", "5m"), (6.0, "6h", "30m"))
"""How many times faster than promised errors may come, over a long and a short window. So 2 % of the errors of 30 days
are spent in an hour, or 5 % in six: https://sre.google/workbook/alerting-on-slos/, table 5-8."""
BURN_SLOW: Final = ((1.0, "3d", "6h"),)
"""10 % of the errors of 30 days are spent in three days: the same table."""
BURN_FAST_FOR_S: Final = 120
BURN_SLOW_FOR_S: Final = 900
BURN_MIN_FAILURES: Final = 5
"""In the longest window. Where hardly anybody asks, one failure would be most of an hour's requests."""

HUNG_FOR_S: Final = 60
HUNG_MIN_S: Final = 300
HUNG_LATENCIES: Final = 3
"""Times the promised latency without an answer. One long request does not count, as it does not wait."""

BLIND_FOR_S: Final = 300
UNKNOWN_FOR_S: Final = 600
GPU_FOR_S: Final = 60
GROUP_FOR_S: Final = 600
VERIFICATION_FOR_S: Final = 3600
"""The first update takes its time until it verifies."""
DAY_S: Final = 86400

APPLICATION_XIDS: Final = (13, 31, 43, 45, 68, 109)
"""Faults of a program, not of its GPU; NVIDIA's device plugin takes them so too:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go"""

METRICS_APIS: Final[Mapping[str, str]] = {
    "prometheus-adapter": "v1beta1.custom.metrics.k8s.io",
    "keda": "v1beta1.external.metrics.k8s.io",
}
"""The API that autoscalers read, by `autoscaling.engine`: https://keda.sh/docs/latest/operate/cluster/ names KEDA's."""
METRICS_ADAPTER: Final = "prometheus-adapter"
API_SERVER_JOB: Final = "apiserver"
"""As kube-prometheus-stack has it scraped; where it is not, nothing is said of it."""


_GPU: Final = "GPU {{ $labels.gpu }} ({{ $labels.modelName }}) of {{ $labels.Hostname }}{{ $labels.hostname }}"
"""Newer exporters write `hostname`, older ones `Hostname`; the other is empty."""


def _promises(of: Of) -> list[Rule]:
    model, slo = of.model.name, of.model.slo
    limit = number(slo.latency_ms / 1000)
    allowed = f"{number(round(100 * (1 - slo.availability), 6))}%"
    return [
        of.rule(
            Alert.LATENCY_HIGH,
            f"{recording.LATENCY}{of.here} > {limit}",
            Told(
                f"{model} is slower than promised on {SKU}",
                f"The mean time of a request is {DURATION}; promised are at most {limit}s.",
            ),
            LATENCY_FOR_S,
        ),
        of.rule(
            Alert.BURN_FAST,
            _burn(of, BURN_FAST, "6h"),
            Told(
                f"{model} fails too often to keep its promise for the month",
                f"{PERCENTAGE} of the requests failed, many times what was promised: at most {allowed}.",
            ),
            BURN_FAST_FOR_S,
        ),
        of.rule(
            Alert.BURN_SLOW,
            _burn(of, BURN_SLOW, "3d"),
            Told(
                f"{model} has failed more often than promised for days",
                f"{PERCENTAGE} of the requests of three days failed; promised are at most {allowed}.",
            ),
            BURN_SLOW_FOR_S,
        ),
        of.rule(
            Alert.ERRORS_HIGH,
            f"{recording.FAILED_RATIO}{of.here} > {number(ERRORS_LIMIT)}",
            Told(f"Requests to {model} fail on {SKU}", f"{PERCENTAGE} of the requests failed."),
            ERRORS_FOR_S,
        ),
        of.rule(
            Alert.HUNG,
            _hung(of),
            Told(
                f"{POD} takes requests and answers none",
                f"{VALUE} requests or more have been waiting for {_hung_s(of.model)}s, and none was answered.",
            ),
            HUNG_FOR_S,
        ),
    ]


def _burn(of: Of, windows: Sequence[tuple[float, str, str]], longest: str) -> str:
    budget = 1 - of.model.slo.availability
    pairs = []
    for times, long, short in windows:
        limit = number(round(times * budget, 10))
        pairs.append(f"{recording.errors(long)}{of.here} > {limit} and {recording.errors(short)}{of.here} > {limit}")
    labels = recording.by((scraping.LABEL_ENVIRONMENT, scraping.LABEL_NAMESPACE, scraping.LABEL_DEPLOYED_MODEL))
    failures = (
        f"sum {labels} (sum_over_time({recording.FAILED}{of.here}[{longest}]))"
        f" * {of.settings.monitoring.evaluation_interval_s}"
    )
    return f"({' or '.join(pairs)}) and {failures} >= {BURN_MIN_FAILURES}"


def _hung_s(model: ModelSettings) -> int:
    return max(HUNG_MIN_S, HUNG_LATENCIES * math.ceil(model.slo.latency_ms / 1000))


def _hung(of: Of) -> str:
    """A queue that was never empty, nothing that finished, and the pod was there when the window began.

    The queue is Triton's, or the one inside TensorRT-LLM, where Triton counts requests as in work.
    """
    window = f"{_hung_s(of.model)}s"
    labels = recording.by((scraping.LABEL_POD, scraping.LABEL_SKU, scraping.LABEL_MODEL))
    finished = f"sum {labels} (increase(nv_inference_request_success{{{of.job}}}[{window}]))"
    queues = (
        f"nv_inference_pending_request_count{{{of.job}}}",
        f'nv_trt_llm_request_metrics{{{of.job}, request_type="waiting"}}',
    )
    return " or ".join(
        f"sum {labels} (min_over_time({queue}[{window}])) > 0 and sum {labels} ({queue} offset {window}) > 0"
        f" unless {finished} > 0"
        for queue in queues
    )


def _observation(settings: Settings) -> list[Rule]:
    """Whether what observes the fleet works itself."""
    namespace = settings.serving.namespace
    group = f'rule_group=~".*/{namespace}-({recording.RULES}|{RULES})-.*"'
    stamp = f'kube_configmap_created{{namespace="{namespace}", configmap="{names.VERIFICATION_STAMP}"}}'
    age_days = settings.verification.max_age_days
    return [
        made(
            settings,
            Alert.METRICS_API_DOWN,
            _blind(settings),
            Told(
                "Autoscaling is blind",
                "The metrics API does not answer, or an autoscaler gets no value from it. Replicas stay as "
                "they are, whatever the load.",
            ),
            BLIND_FOR_S,
        ),
        made(
            settings,
            Alert.STATE_UNKNOWN,
            f'absent(kube_deployment_spec_replicas{{namespace="{namespace}"}})',
            Told(
                f"kube-state-metrics tells nothing of {namespace}", "Alerts on replicas, pods and targets cannot fire."
            ),
            UNKNOWN_FOR_S,
        ),
        made(
            settings,
            Alert.RULES_FAILING,
            f"max by (rule_group) (increase(prometheus_rule_evaluation_failures_total{{{group}}}[5m])) > 0"
            f" or max by (rule_group) (prometheus_rule_group_last_duration_seconds{{{group}}}"
            f" > prometheus_rule_group_interval_seconds{{{group}}})",
            Told(
                "Rules of the fleet fail, or come too late",
                "{{ $labels.rule_group }}: its series are missing or old, or its alerts do not fire.",
            ),
            BLIND_FOR_S,
        ),
        made(
            settings,
            Alert.VERIFICATION_OLD,
            f"time() - max by (configmap) ({stamp}) > {age_days * DAY_S} or absent({stamp})",
            Told(
                f"The fleet in {namespace} was not verified for long",
                f"The last verification that held is older than {age_days} days, or there was none.",
            ),
            VERIFICATION_FOR_S,
        ),
    ]


def _blind(settings: Settings) -> str:
    inactive = f'namespace="{settings.serving.namespace}", condition="ScalingActive", status="false"'
    ways = [
        f"max by (horizontalpodautoscaler) (kube_horizontalpodautoscaler_status_condition{{{inactive}}}) == 1",
        f'max by (name) (aggregator_unavailable_apiservice{{name="{METRICS_APIS[settings.autoscaling.engine]}"}}) == 1',
        f'max by (job) (up{{job="{API_SERVER_JOB}"}}) == 0',
    ]
    if autoscaling.adapter_wanted(settings):
        adapter = f'namespace="{settings.monitoring.namespace}", deployment="{METRICS_ADAPTER}"'
        ways.append(f"max by (deployment) (kube_deployment_status_replicas_available{{{adapter}}}) == 0")
    return " or ".join(ways)


def _gpus(settings: Settings) -> list[Rule]:
    xid = "DCGM_FI_DEV_XID_ERRORS"
    harmless = " ".join(f"unless {xid} == {number}" for number in APPLICATION_XIDS)
    user = "In use by: {{ $labels.exported_pod }}."
    return [
        made(
            settings,
            Alert.GPU_XID_ERRORS,
            f"{xid} > 0 {harmless}",
            Told(f"{_GPU} reports an error", f"XID {VALUE}, a fault of the GPU or of its driver. {user}"),
            GPU_FOR_S,
        ),
        made(
            settings,
            Alert.GPU_ECC_ERRORS,
            "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h]) > 0"
            " or increase(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1h]) > 0"
            " or DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
            Told(
                f"Memory of {_GPU} is failing",
                f"Errors that ECC could not correct, or a row that could not be replaced. {user}",
            ),
            GPU_FOR_S,
        ),
    ]


def _node_groups(settings: Settings) -> list[Rule]:
    """EKS names a group's Auto Scaling group `eks-<name of the group>-<something>`."""
    skus = "|".join(sorted((sku.name for sku in settings.skus), key=len, reverse=True))
    full = (
        "max by (node_group) (cluster_autoscaler_node_group_target_count)"
        " >= max by (node_group) (cluster_autoscaler_node_group_max_count)"
        " and on () sum (cluster_autoscaler_unschedulable_pods_count) > 0"
    )
    return [
        made(
            settings,
            Alert.NODE_GROUP_AT_MAXIMUM,
            f'label_replace({full}, "sku", "$1", "node_group", "eks-{settings.environment}-({skus}).*")',
            Told(
                "Node group {{ $labels.node_group }} is at its maximum, and pods wait for a node",
                f"It has {VALUE} nodes and may have no more.",
            ),
            GROUP_FOR_S,
        )
    ]


def rules(settings: Settings) -> Manifest:
    """All alerts of the stack."""
    models = [Of(settings, model) for model in settings.models]
    groups: dict[str, list[Rule]] = {
        "triton-promises-broken": [rule for of in models for rule in _promises(of)],
        "triton-replicas": [rule for of in models for rule in alerts_replicas.replicas(of)],
        "triton-sight": [rule for of in models for rule in alerts_replicas.sight(of)],
        "triton-observation": _observation(settings),
    }
    if any(sku.gpus_per_node for sku in settings.skus):
        groups["triton-gpu-errors"] = _gpus(settings)
    if isinstance(settings.cluster, EksCluster):
        groups["triton-node-groups"] = _node_groups(settings)
    interval_s = settings.monitoring.evaluation_interval_s
    return recording.rule_object(settings, RULES, {name: (interval_s, found) for name, found in groups.items()})
