"""The alerts: what a person is told of, and what the page of docs/runbooks says to do.

Each carries the environment and the serving namespace, by which it finds its receivers, also where it is about
something outside of that namespace. Those about a model name it as `model`. One rule stands for one model, since
promises and load times are the model's own.

Where an alert needs a state that Kubernetes knows, kube-state-metrics tells it; one alert says when that is silent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from fleet import autoscaling, names, recording, scraping, workload
from fleet.alert_names import Alert
from fleet.schema import EksCluster, gpus_per_replica
from fleet.schema_observe import Severity  # noqa: TC001 - the table of severities is a constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.pods import Manifest
    from fleet.recording import Rule
    from fleet.schema import ModelSettings
    from fleet.settings import Settings

RULES: Final = "triton-alerts"
RUNBOOKS: Final = "https://github.com/triton-fleet/triton-fleet/blob/main/docs/runbooks"

SEVERITIES: Final[Mapping[Alert, Severity]] = {
    Alert.LATENCY_HIGH: "warning",
    Alert.BURN_FAST: "critical",
    Alert.BURN_SLOW: "warning",
    Alert.ERRORS_HIGH: "warning",
    Alert.HUNG: "critical",
    Alert.QUEUE_GROWING: "critical",
    Alert.MODEL_DOWN: "critical",
    Alert.REPLICAS_UNAVAILABLE: "warning",
    Alert.POD_NOT_READY: "warning",
    Alert.LOAD_SLOW: "warning",
    Alert.TARGET_DOWN: "critical",
    Alert.SERIES_ABSENT: "critical",
    Alert.METRICS_API_DOWN: "critical",
    Alert.STATE_UNKNOWN: "warning",
    Alert.RULES_FAILING: "critical",
    Alert.VERIFICATION_OLD: "warning",
    Alert.GPU_XID_ERRORS: "critical",
    Alert.GPU_ECC_ERRORS: "critical",
    Alert.GPU_UNOBSERVED: "warning",
    Alert.NODE_GROUP_AT_MAXIMUM: "warning",
}
"""`critical`: users are not served, or soon will not be; `warning`: somebody should look today."""


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

QUEUE_WINDOW: Final = "5m"
QUEUE_SHRINKS: Final = 0.9
"""A queue below this part of what it was in the window before is being worked off."""
QUEUE_FOR_S: Final = 300

DOWN_FOR_S: Final = 120
READY_MIN_S: Final = 300
PLACEMENT_ALLOWANCE_S: Final = 600
"""From the wish for a replica to its start where a node must be made first."""
LOAD_SHARE: Final = 0.8
LOAD_KEEP_S: Final = 900
"""A restart for want of time clears the alert's cause; it stays readable this long."""

UNSEEN_FOR_S: Final = 300
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


_SKU: Final = "{{ $labels.sku }}"
_POD: Final = "{{ $labels.pod }}"
_VALUE: Final = "{{ $value }}"
_PERCENTAGE: Final = "{{ $value | humanizePercentage }}"
_DURATION: Final = "{{ $value | humanizeDuration }}"
_GPU: Final = "GPU {{ $labels.gpu }} ({{ $labels.modelName }}) of {{ $labels.Hostname }}{{ $labels.hostname }}"
"""Newer exporters write `hostname`, older ones `Hostname`; the other is empty."""


def runbook(alert: str) -> str:
    """Where the page of an alert is read."""
    return f"{RUNBOOKS}/{alert}.md"


class Told(NamedTuple):
    """What a person reads: one line, and what is known beside it."""

    summary: str
    description: str


def _rule(settings: Settings, alert: Alert, expr: str, told: Told, for_s: int) -> Rule:
    return {
        "alert": alert.value,
        "expr": expr,
        "for": f"{for_s}s",
        "labels": {
            "severity": SEVERITIES[alert],
            scraping.LABEL_ENVIRONMENT: settings.environment,
            scraping.LABEL_NAMESPACE: settings.serving.namespace,
        },
        "annotations": {**told._asdict(), "runbook_url": runbook(alert.value)},
    }


def _number(value: float) -> str:
    return f"{value:.10g}"


class _Of:
    """PromQL about one model."""

    def __init__(self, settings: Settings, model: ModelSettings) -> None:
        self.settings = settings
        self.model = model
        self.namespace = f'namespace="{settings.serving.namespace}"'
        self.here = f'{{{self.namespace}, deployed_model="{model.name}"}}'
        self.job = f'job="{scraping.job(settings)}", deployed_model="{model.name}"'
        self.deployments = "|".join(names.deployment_name(model.name, one.sku) for one in model.placements)

    def rule(self, alert: Alert, expr: str, told: Told, for_s: int) -> Rule:
        rule = _rule(self.settings, alert, expr, told, for_s)
        return {**rule, "labels": {**rule["labels"], scraping.LABEL_MODEL: self.model.name}}

    def containers(self, state: Literal["ready", "unready"], skus: Sequence[str] = ()) -> str:
        """Triton's containers in that state, with their SKU: by the pods' names, so also where nothing is scraped."""
        placed = skus or [placement.sku for placement in self.model.placements]
        pods = f"{self.model.name}-({'|'.join(placed)})-[a-z0-9]+-[a-z0-9]+"
        selector = f'{self.namespace}, container="{workload.CONTAINER}", pod=~"{pods}"'
        value = 1 if state == "ready" else 0
        series = f"max by (namespace, pod) (kube_pod_container_status_ready{{{selector}}}) == {value}"
        return f'label_replace({series}, "sku", "$1", "pod", "{pods}")'

    def running_s(self) -> str:
        """Seconds since each container of Triton started."""
        selector = f'{self.namespace}, container="{workload.CONTAINER}"'
        return f"(time() - max by (namespace, pod) (kube_pod_container_state_started{{{selector}}}))"


def _promises(of: _Of) -> list[Rule]:
    model, slo = of.model.name, of.model.slo
    limit = _number(slo.latency_ms / 1000)
    allowed = f"{_number(round(100 * (1 - slo.availability), 6))}%"
    return [
        of.rule(
            Alert.LATENCY_HIGH,
            f"{recording.LATENCY}{of.here} > {limit}",
            Told(
                f"{model} is slower than promised on {_SKU}",
                f"The mean time of a request is {_DURATION}; promised are at most {limit}s.",
            ),
            LATENCY_FOR_S,
        ),
        of.rule(
            Alert.BURN_FAST,
            _burn(of, BURN_FAST, "6h"),
            Told(
                f"{model} fails too often to keep its promise for the month",
                f"{_PERCENTAGE} of the requests failed, many times what was promised: at most {allowed}.",
            ),
            BURN_FAST_FOR_S,
        ),
        of.rule(
            Alert.BURN_SLOW,
            _burn(of, BURN_SLOW, "3d"),
            Told(
                f"{model} has failed more often than promised for days",
                f"{_PERCENTAGE} of the requests of three days failed; promised are at most {allowed}.",
            ),
            BURN_SLOW_FOR_S,
        ),
        of.rule(
            Alert.ERRORS_HIGH,
            f"{recording.FAILED_RATIO}{of.here} > {_number(ERRORS_LIMIT)}",
            Told(f"Requests to {model} fail on {_SKU}", f"{_PERCENTAGE} of the requests failed."),
            ERRORS_FOR_S,
        ),
        of.rule(
            Alert.HUNG,
            _hung(of),
            Told(
                f"{_POD} takes requests and answers none",
                f"{_VALUE} requests or more have been waiting for {_hung_s(of.model)}s, and none was answered.",
            ),
            HUNG_FOR_S,
        ),
    ]


def _burn(of: _Of, windows: Sequence[tuple[float, str, str]], longest: str) -> str:
    budget = 1 - of.model.slo.availability
    pairs = []
    for times, long, short in windows:
        limit = _number(round(times * budget, 10))
        pairs.append(f"{recording.errors(long)}{of.here} > {limit} and {recording.errors(short)}{of.here} > {limit}")
    labels = recording.by((scraping.LABEL_ENVIRONMENT, scraping.LABEL_NAMESPACE, scraping.LABEL_DEPLOYED_MODEL))
    failures = (
        f"sum {labels} (sum_over_time({recording.FAILED}{of.here}[{longest}]))"
        f" * {of.settings.monitoring.evaluation_interval_s}"
    )
    return f"({' or '.join(pairs)}) and {failures} >= {BURN_MIN_FAILURES}"


def _hung_s(model: ModelSettings) -> int:
    return max(HUNG_MIN_S, HUNG_LATENCIES * math.ceil(model.slo.latency_ms / 1000))


def _hung(of: _Of) -> str:
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


def _replicas(of: _Of) -> list[Rule]:
    model, load_s = of.model.name, of.model.load_timeout_s
    available = f"{recording.REPLICAS_AVAILABLE}{of.here}"
    created = f'min by (namespace) (kube_deployment_created{{{of.namespace}, deployment=~"{of.deployments}"}})'
    return [
        of.rule(
            Alert.QUEUE_GROWING,
            _queue_grows(of),
            Told(
                f"{model} has all its replicas on {_SKU}, and its queue does not shrink",
                f"At least {_VALUE} requests have been waiting all the time, and no replica may be added.",
            ),
            QUEUE_FOR_S,
        ),
        of.rule(
            Alert.MODEL_DOWN,
            f"sum by (namespace) ({available}) == 0"
            f" unless on (namespace) time() - {created} < {load_s + PLACEMENT_ALLOWANCE_S}",
            Told(f"No replica of {model} is available", "Nobody is answered: no SKU has a replica that is Ready."),
            DOWN_FOR_S,
        ),
        of.rule(
            Alert.REPLICAS_UNAVAILABLE,
            f"{available} < {recording.REPLICAS_WANTED}{of.here}",
            Told(
                f"{model} lacks replicas on {_SKU}",
                f"{_VALUE} are available, fewer than are wanted, for longer than a node and a load take.",
            ),
            load_s + PLACEMENT_ALLOWANCE_S,
        ),
        of.rule(
            Alert.POD_NOT_READY,
            of.containers("unready"),
            Told(f"{_POD} is not Ready", f"For longer than {model} may take to load."),
            max(READY_MIN_S, load_s),
        ),
        {
            **of.rule(
                Alert.LOAD_SLOW,
                _load_slow(of),
                Told(
                    f"{_POD} takes long to load {model}",
                    f"{_DURATION} until it was loaded, or so far; after {load_s}s it is restarted.",
                ),
                0,
            ),
            "keep_firing_for": f"{LOAD_KEEP_S}s",
        },
    ]


def _queue_grows(of: _Of) -> str:
    """The queue is never empty and not being worked off, and the Deployment has as many replicas as it may have."""
    pending = f"{recording.PENDING}{of.here}"
    placed = "on (namespace, deployed_model, sku)"
    return (
        f"min_over_time({pending}[{QUEUE_WINDOW}]) > 0"
        f" and avg_over_time({pending}[{QUEUE_WINDOW}])"
        f" >= {_number(QUEUE_SHRINKS)} * avg_over_time({pending}[{QUEUE_WINDOW}] offset {QUEUE_WINDOW})"
        f" and {placed} {recording.REPLICAS_WANTED}{of.here} >= {placed} {recording.REPLICAS_MAX}{of.here}"
    )


def _load_slow(of: _Of) -> str:
    """A container that has not been Ready since its start, near its restart; or one that is, and Triton says how long
    it took, as those newer than 24.10 do: https://github.com/triton-inference-server/core/pull/397.
    """
    load_s = of.model.load_timeout_s
    limit_s = math.floor(LOAD_SHARE * load_s)
    selector = f'{of.namespace}, container="{workload.CONTAINER}"'
    loading = f"{of.containers('unready')} + on (namespace, pod) group_left () {of.running_s()} > {limit_s}"
    was_ready = (
        f"max by (namespace, pod) (max_over_time(kube_pod_container_status_ready{{{selector}}}[{limit_s}s])) == 1"
    )
    loaded = (
        f"max by (namespace, pod, sku) (nv_model_load_duration_secs{{{of.job}}}) > {limit_s}"
        f" and on (namespace, pod) {of.running_s()} < {load_s + LOAD_KEEP_S}"
    )
    return f"({loading} unless on (namespace, pod) {was_ready}) or ({loaded})"


def _sight(of: _Of) -> list[Rule]:
    """Whether a replica that serves is seen by what measures it."""
    model = of.model
    rules = [
        of.rule(
            Alert.TARGET_DOWN,
            f"{of.containers('ready')} unless on (namespace, pod) up{{{of.job}}} == 1",
            Told(
                f"{_POD} is Ready and not scraped",
                "Prometheus gets no answer from its metrics port, or does not know it as a target.",
            ),
            UNSEEN_FOR_S,
        ),
        of.rule(
            Alert.SERIES_ABSENT,
            f"{of.containers('ready')} unless on (namespace, pod) {recording.QUEUE_COMPUTE_RATIO}{of.here}",
            Told(
                f"{_POD} is Ready and has no queue ratio",
                f"Autoscaling of {model.name} on {_SKU} does not see this replica.",
            ),
            UNSEEN_FOR_S,
        ),
    ]
    with_gpus = [one.sku for one in model.placements if gpus_per_replica(model, of.settings.sku(one.sku))]
    if with_gpus and of.settings.gpu_stack.dcgm_exporter:
        held = f'DCGM_FI_DEV_FB_USED{{exported_namespace="{of.settings.serving.namespace}"}}'
        rules.append(
            of.rule(
                Alert.GPU_UNOBSERVED,
                f"{of.containers('ready', with_gpus)}"
                f' unless on (pod) label_replace({held}, "pod", "$1", "exported_pod", "(.*)")',
                Told(
                    f"The GPUs of {_POD} are not observed",
                    "The exporter of GPU metrics on its node is down, or does not know the pod.",
                ),
                UNKNOWN_FOR_S,
            )
        )
    return rules


def _observation(settings: Settings) -> list[Rule]:
    """Whether what observes the fleet works itself."""
    namespace = settings.serving.namespace
    group = f'rule_group=~".*/{namespace}-({recording.RULES}|{RULES})-.*"'
    stamp = f'kube_configmap_created{{namespace="{namespace}", configmap="{names.VERIFICATION_STAMP}"}}'
    age_days = settings.verification.max_age_days
    return [
        _rule(
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
        _rule(
            settings,
            Alert.STATE_UNKNOWN,
            f'absent(kube_deployment_spec_replicas{{namespace="{namespace}"}})',
            Told(
                f"kube-state-metrics tells nothing of {namespace}", "Alerts on replicas, pods and targets cannot fire."
            ),
            UNKNOWN_FOR_S,
        ),
        _rule(
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
        _rule(
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
        _rule(
            settings,
            Alert.GPU_XID_ERRORS,
            f"{xid} > 0 {harmless}",
            Told(f"{_GPU} reports an error", f"XID {_VALUE}, a fault of the GPU or of its driver. {user}"),
            GPU_FOR_S,
        ),
        _rule(
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
        _rule(
            settings,
            Alert.NODE_GROUP_AT_MAXIMUM,
            f'label_replace({full}, "sku", "$1", "node_group", "eks-{settings.environment}-({skus}).*")',
            Told(
                "Node group {{ $labels.node_group }} is at its maximum, and pods wait for a node",
                f"It has {_VALUE} nodes and may have no more.",
            ),
            GROUP_FOR_S,
        )
    ]


def rules(settings: Settings) -> Manifest:
    """All alerts of the stack."""
    models = [_Of(settings, model) for model in settings.models]
    groups: dict[str, list[Rule]] = {
        "triton-promises-broken": [rule for of in models for rule in _promises(of)],
        "triton-replicas": [rule for of in models for rule in _replicas(of)],
        "triton-sight": [rule for of in models for rule in _sight(of)],
        "triton-observation": _observation(settings),
    }
    if any(sku.gpus_per_node for sku in settings.skus):
        groups["triton-gpu-errors"] = _gpus(settings)
    if isinstance(settings.cluster, EksCluster):
        groups["triton-node-groups"] = _node_groups(settings)
    interval_s = settings.monitoring.evaluation_interval_s
    return recording.rule_object(settings, RULES, {name: (interval_s, found) for name, found in groups.items()})
