"""What the GPU stack and monitoring must prove: what the cluster is asked, and how its answers are judged.

Everything is asked of the API server, and of Prometheus and Alertmanager through its proxy to Services: whoever may
update the stack may ask, and no network policy needs a hole for it.

The forms of the answers: https://prometheus.io/docs/prometheus/latest/querying/api/,
https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml,
https://github.com/kubernetes/metrics/blob/master/pkg/apis/custom_metrics/v1beta1/types.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import yaml
from pydantic import BaseModel, ConfigDict

from fleet import alert_routing, alerts, autoscaling, gpu_stack, monitoring, names, recording
from fleet.alert_routing import NULL
from fleet.workload import node_labels

if TYPE_CHECKING:
    from fleet.pods import Manifest
    from fleet.settings import Settings
    from fleet.verification import Node, Pod

FRESH_EVALUATIONS: Final = 3
"""A sample is fresh that is not older than this many evaluations of rules: one is running, one may have been late."""
PROPAGATION_S: Final = 120
"""Seconds until a pod sees a changed ConfigMap or Secret. A kubelet syncs each pod once a minute, up to half as late
again: https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically."""
SETTLING_SCRAPES: Final = 3
"""A rate needs two samples; the third is for the scrape that was under way."""

WAYS: Final = "_configs"
"""What the keys of a receiver that say how it is told end with; others are Alertmanager's own."""
KEDA_PREFIX: Final = "keda-hpa-"
"""KEDA makes an autoscaler of this and its ScaledObject's name."""
SHOWN_MAX: Final = 5
"""Faults told of one check, and names told of one fault."""

_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
"""As Prometheus reads durations: https://prometheus.io/docs/prometheus/latest/configuration/configuration/."""
_MATCHER = re.compile(r"\s*\"?([^\s=!~\"]+)\"?\s*(=~|!~|!=|=)\s*\"?(.*?)\"?\s*")
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+|[numkMGTPE]i?)?")
"""A quantity of Kubernetes that is not negative. What is no number the adapter shows as a negative one (B06)."""


class Frozen(BaseModel):
    """Part of the plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DaemonSetPlan(Frozen):
    """A DaemonSet that must run on every node with GPUs."""

    namespace: str
    name: str


class GpuNodes(Frozen):
    """The nodes of one SKU with GPUs."""

    sku: str
    labels: dict[str, str]
    """What its nodes carry before anything has looked at their GPUs."""
    product: str
    gpus: int
    """GPUs of one node."""


class GpuPlan(Frozen):
    """What makes GPUs visible, and how many there must be."""

    daemon_sets: tuple[DaemonSetPlan, ...]
    skus: tuple[GpuNodes, ...]


class RuleObject(Frozen):
    """A PrometheusRule of ours: by group, the names of its rules in order."""

    name: str
    groups: dict[str, tuple[str, ...]]


class MonitoringPlan(Frozen):
    """What is measured, who must know it, and who is told."""

    serving: str
    """The serving namespace."""
    namespace: str
    """That of Prometheus and Alertmanager."""
    prometheus: str
    """Its Service and port, `name:port`."""
    alertmanager: str | None
    """Its Service and port; None where the cluster's own is used, which has a configuration of its own."""
    alerting: dict[str, Any]
    """The configuration that Alertmanager must have; what it does not say is Alertmanager's default."""
    rules: tuple[RuleObject, ...]
    series: tuple[str, ...]
    """Recorded series that have one sample per replica, idle or not."""
    pod_metrics: tuple[str, ...]
    """Of these, those that autoscaling reads from the custom metrics API."""
    autoscalers: tuple[str, ...]
    """HorizontalPodAutoscalers of the serving namespace."""
    node_metrics: bool
    """Whether the stack brings the API of resource metrics."""
    fresh_s: int
    settle_s: int
    """How long a change takes until the last of all these can know it."""


@dataclass(frozen=True, slots=True)
class DaemonPod:
    """A pod of a DaemonSet as the API server shows it."""

    name: str
    node: str | None
    ready: bool
    waiting: str


class Verdict(NamedTuple):
    ok: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Question:
    """A check by what the API server answers on some paths; asked again until it holds or its time is over."""

    name: str
    paths: tuple[str, ...]
    judge: Callable[[Sequence[Any], Sequence[Pod]], Verdict]
    """Of the answers, one for each path, and the replicas that there are."""


def gpu_plan(settings: Settings) -> GpuPlan | None:
    """What the settings say of GPUs; None without any."""
    skus = tuple(
        GpuNodes(
            sku=sku.name,
            labels={key: value for key, value in node_labels(sku).items() if key != names.NODE_GPU_PRODUCT_LABEL},
            product=sku.gpu_product,
            gpus=sku.gpus_per_node,
        )
        for sku in settings.skus
        if sku.gpu_product is not None
    )
    daemon_sets = tuple(
        DaemonSetPlan(namespace=namespace, name=name) for namespace, name in gpu_stack.daemon_sets(settings)
    )
    return GpuPlan(daemon_sets=daemon_sets, skus=skus) if skus else None


def monitoring_plan(settings: Settings) -> MonitoringPlan:
    """What the settings say of monitoring."""
    stack = settings.monitoring
    rules = [recording.rules(settings), alerts.rules(settings)]
    slowest_s = max(_seconds(group["interval"]) for one in rules for group in one["spec"]["groups"])
    return MonitoringPlan(
        serving=settings.serving.namespace,
        namespace=stack.namespace,
        prometheus=f"{monitoring.prometheus_service(stack)}:{monitoring.PORT_PROMETHEUS}",
        alertmanager=(
            f"{monitoring.alertmanager_service(stack)}:{monitoring.PORT_ALERTMANAGER}"
            if stack.kube_prometheus_stack
            else None
        ),
        alerting=alert_routing.config(settings) if stack.kube_prometheus_stack else {},
        rules=tuple(map(_rule_object, rules)),
        series=recording.PER_POD,
        pod_metrics=(autoscaling.RATIO,) if settings.autoscaling.engine == "prometheus-adapter" else (),
        autoscalers=_autoscalers(settings),
        node_metrics=stack.metrics_server,
        fresh_s=FRESH_EVALUATIONS * stack.evaluation_interval_s,
        settle_s=settle_s(stack.scrape_interval_s, slowest_s, stack.relist_interval_s),
    )


def _autoscalers(settings: Settings) -> tuple[str, ...]:
    prefixes = {"autoscaler": "", "keda": KEDA_PREFIX}
    return tuple(
        prefixes[owner] + names.deployment_name(model.name, placement.sku)
        for model in settings.models
        for placement in model.placements
        if (owner := autoscaling.owner(settings, placement)) in prefixes
    )


def _rule_object(manifest: Manifest) -> RuleObject:
    groups = {
        group["name"]: tuple(rule.get("record") or rule["alert"] for rule in group["rules"])
        for group in manifest["spec"]["groups"]
    }
    return RuleObject(name=manifest["metadata"]["name"], groups=groups)


def _seconds(interval: str) -> int:
    """The seconds of an interval as our rules write it."""
    return int(interval.removesuffix("s"))


def settle_s(scrape_s: int, evaluation_s: int, relist_s: int) -> int:
    """Seconds from a new object to the last that knows it: mount, scrapes, evaluation, the adapter's listing."""
    return PROPAGATION_S + SETTLING_SCRAPES * scrape_s + 2 * evaluation_s + relist_s


# The GPU stack


def daemon_check(daemon_set: DaemonSetPlan) -> str:
    return f"gpus/{daemon_set.namespace}/{daemon_set.name}"


NODES_CHECK: Final = "gpus/nodes"


def gpu_nodes(plan: GpuPlan, nodes: Sequence[Node]) -> list[Node]:
    """The Ready nodes of every SKU with GPUs, whether their GPUs have been found yet or not."""
    found = [node for node in nodes if node.ready and any(_carries(node, sku) for sku in plan.skus)]
    return sorted(found, key=lambda node: node.name)


def _carries(node: Node, sku: GpuNodes) -> bool:
    """Whether it is, or may turn out to be, a node of the SKU: another product is another's node."""
    product = node.labels.get(names.NODE_GPU_PRODUCT_LABEL, sku.product)
    return product == sku.product and all(node.labels.get(key) == value for key, value in sku.labels.items())


def daemon_verdict(pods: Sequence[DaemonPod] | None, nodes: Sequence[Node]) -> Verdict:
    """Whether a DaemonSet has a ready pod on each of the nodes; `pods` is None where there is no such DaemonSet."""
    if pods is None:
        return Verdict(ok=False, reason="there is no such DaemonSet")
    wrong = []
    for node in nodes:
        here = sorted((pod for pod in pods if pod.node == node.name), key=lambda pod: pod.name)
        if not here:
            wrong.append(f"{node.name} has no pod of it: its taints or labels do not fit")
        elif not any(pod.ready for pod in here):
            wrong.append(f"{here[0].name} on {node.name} is not ready: {here[0].waiting or 'no reason given'}")
    return _verdict(wrong, f"ready on {_several([node.name for node in nodes])}")


def offer_verdict(plan: GpuPlan, nodes: Sequence[Node]) -> Verdict:
    """Whether each of the nodes offers the GPUs that its SKU was planned with."""
    wrong, offered = [], []
    for node in nodes:
        if names.NODE_GPU_PRODUCT_LABEL not in node.labels:
            wrong.append(f"{node.name} has no label {names.NODE_GPU_PRODUCT_LABEL}: no GPU was found on it")
            continue
        # Labels of two SKUs may fit one node; it must have what the most modest of them was planned with.
        sku = min((sku for sku in plan.skus if _carries(node, sku)), key=lambda sku: sku.gpus)
        offered.append(f"{node.name} offers {node.gpus}")
        if node.gpus < sku.gpus:
            wrong.append(f"{node.name} offers {node.gpus} GPUs, not {sku.gpus} as a node of {sku.sku}")
    return _verdict(wrong, _several(offered))


# Monitoring


def questions(plan: MonitoringPlan) -> list[Question]:
    """What is asked of monitoring, in the order in which a fault shows its cause first."""
    prometheus = partial(service_path, plan.namespace, plan.prometheus)
    pool = f"podMonitor/{plan.serving}/{names.POD_MONITOR}/0"
    found = [
        Question(
            "monitoring/prometheus",
            (
                prometheus("/api/v1/status/runtimeinfo"),
                *((prometheus("/api/v1/alertmanagers"),) if plan.alertmanager else ()),
            ),
            _loaded,
        ),
        Question(
            "monitoring/targets",
            (prometheus("/api/v1/targets", state="active", scrapePool=pool),),
            partial(_scraped, plan.serving),
        ),
        *(
            Question(f"monitoring/rules/{one.name}", (prometheus("/api/v1/rules"),), partial(_ruled, plan.serving, one))
            for one in plan.rules
        ),
        *(
            Question(
                f"monitoring/series/{series}",
                (prometheus("/api/v1/query", query=_recent(series, plan.serving, plan.fresh_s)),),
                partial(_sampled, plan.fresh_s),
            )
            for series in plan.series
        ),
        *(
            Question(f"monitoring/pod-metrics/{metric}", (_pod_metric(plan.serving, metric),), _measured)
            for metric in plan.pod_metrics
        ),
    ]
    if plan.autoscalers:
        path = f"/apis/autoscaling/v2/namespaces/{plan.serving}/horizontalpodautoscalers"
        found.append(Question("monitoring/autoscalers", (path,), partial(_scaling, plan.autoscalers)))
    if plan.alertmanager is not None:
        status = service_path(plan.namespace, plan.alertmanager, "/api/v2/status")
        found.append(Question("monitoring/alertmanager", (status,), partial(_routed, plan.alerting)))
    if plan.node_metrics:
        found.append(Question("monitoring/node-metrics", ("/apis/metrics.k8s.io/v1beta1/nodes",), _counted))
    return found


def judged(question: Question, answers: Sequence[Any], pods: Sequence[Pod]) -> Verdict:
    """The verdict on the answers; what has not the form of an answer is wrong as well."""
    try:
        return question.judge(answers, pods)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, yaml.YAMLError) as error:
        return Verdict(ok=False, reason=f"the answer has another form than expected: {error!r}")


def service_path(namespace: str, service: str, path: str, **query: str) -> str:
    """The path on the API server by which a Service answers."""
    asked = f"?{urlencode(query)}" if query else ""
    return f"/api/v1/namespaces/{namespace}/services/{service}/proxy{path}{asked}"


def _pod_metric(namespace: str, metric: str) -> str:
    selector = ",".join(f"{key}={value}" for key, value in names.fleet_selector().items())
    asked = urlencode({"labelSelector": selector})
    return f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/*/{quote(metric, safe=':')}?{asked}"


def _recent(series: str, namespace: str, window_s: int) -> str:
    """A query that answers with the samples themselves, so that an old one is not taken for a fresh one."""
    return f'{series}{{namespace="{namespace}"}}[{window_s}s]'


def _loaded(answers: Sequence[Any], _: Sequence[Pod]) -> Verdict:
    """Prometheus runs on the configuration that it was given last, and knows whom to tell of alerts."""
    wrong = []
    if answers[0]["data"]["reloadConfigSuccess"] is not True:
        wrong.append("Prometheus refused its newest configuration and runs on an older one")
    if len(answers) > 1 and not answers[1]["data"]["activeAlertmanagers"]:
        wrong.append("Prometheus knows no Alertmanager: no alert reaches anybody")
    return _verdict(wrong, "its newest configuration is loaded")


def _scraped(namespace: str, answers: Sequence[Any], pods: Sequence[Pod]) -> Verdict:
    """Each replica is a target, and its last scrape succeeded."""
    targets = {
        target["labels"].get("pod"): target
        for target in answers[0]["data"]["activeTargets"]
        if target["labels"].get("namespace") == namespace
    }
    wrong = []
    for pod in pods:
        target = targets.get(pod.name)
        if target is None:
            wrong.append(f"{pod.name} is no target of Prometheus")
        elif target["health"] != "up":
            why = target["lastError"] or "it was not scraped yet"
            wrong.append(f"{pod.name} is {target['health']}: {why}")
    return _of_replicas(wrong, pods, "scraped")


def _ruled(namespace: str, wanted: RuleObject, answers: Sequence[Any], _: Sequence[Pod]) -> Verdict:
    """Each group of the object is loaded with the rules that it holds, and each rule could be evaluated."""
    file = re.compile(rf"(?:.*/)?{re.escape(f'{namespace}-{wanted.name}')}-{_UID}\.yaml")
    loaded = {group["name"]: group["rules"] for group in answers[0]["data"]["groups"] if file.fullmatch(group["file"])}
    wrong = []
    for group, rules in wanted.groups.items():
        got = loaded.get(group)
        if got is None:
            wrong.append(f"group {group} is not loaded")
        elif tuple(rule["name"] for rule in got) != rules:
            other = sorted({rule["name"] for rule in got} ^ set(rules))
            wrong.append(f"group {group} is loaded with other rules: {_several(other) or 'in another order'}")
        else:
            wrong += [
                f"{rule['name']} is {rule['health']}: {rule.get('lastError') or 'it was not evaluated yet'}"
                for rule in got
                if rule["health"] != "ok"
            ]
    wrong += [f"group {group} is loaded and is not ours any more" for group in sorted(loaded.keys() - wanted.groups)]
    count = sum(map(len, wanted.groups.values()))
    return _verdict(wrong, f"{count} rules are loaded and could be evaluated")


def _sampled(fresh_s: int, answers: Sequence[Any], pods: Sequence[Pod]) -> Verdict:
    """Each replica has one series, its last sample is fresh, and it is a number that autoscaling can use."""
    found: dict[str, list[float]] = {}
    for series in answers[0]["data"]["result"]:
        found.setdefault(str(series["metric"].get("pod")), []).append(float(series["values"][-1][1]))
    wrong = []
    for pod in pods:
        values = found.get(pod.name, [])
        if not values:
            wrong.append(f"{pod.name} has no sample of the last {fresh_s} s")
        elif len(values) > 1:
            wrong.append(f"{pod.name} has {len(values)} series where one is read")
        elif not math.isfinite(values[0]) or values[0] < 0:
            wrong.append(f"{pod.name} has {values[0]}, which is no measure")
    shown = ", ".join(f"{value:.3g}" for pod in pods[:SHOWN_MAX] for value in found.get(pod.name, []))
    return _of_replicas(wrong, pods, f"sampled: {shown}")


def _measured(answers: Sequence[Any], pods: Sequence[Pod]) -> Verdict:
    """The custom metrics API has one value for each replica."""
    values: dict[str, list[str]] = {}
    for item in answers[0]["items"]:
        values.setdefault(item["describedObject"]["name"], []).append(str(item["value"]))
    wrong = []
    for pod in pods:
        got = values.get(pod.name, [])
        if len(got) != 1:
            wrong.append(f"{pod.name} has {len(got)} values, not 1")
        elif _QUANTITY.fullmatch(got[0]) is None:
            wrong.append(f"{pod.name} has {got[0]}, which is no measure")
    shown = ", ".join(values[pod.name][0] for pod in pods[:SHOWN_MAX] if pod.name in values)
    return _of_replicas(wrong, pods, f"measured: {shown}")


def _scaling(wanted: Sequence[str], answers: Sequence[Any], _: Sequence[Pod]) -> Verdict:
    """Each autoscaler can reach its Deployment and has the metrics that it decides by."""
    found = {item["metadata"]["name"]: item for item in answers[0]["items"]}
    wrong = []
    for name in wanted:
        if name not in found:
            wrong.append(f"{name} is not there")
            continue
        conditions = {one["type"]: one for one in found[name].get("status", {}).get("conditions", ())}
        for kind in ("AbleToScale", "ScalingActive"):
            one = conditions.get(kind)
            if one is None:
                wrong.append(f"{name} has not been looked at by the autoscaler's controller yet")
                break
            if one["status"] != "True":
                wrong.append(f"{name}: {kind} is {one['status']}: {one['reason']}: {one['message']}")
                break
    return _verdict(wrong, f"{len(wanted)} can scale and have their metrics")


def _counted(answers: Sequence[Any], _: Sequence[Pod]) -> Verdict:
    """The API of resource metrics has measured some node: it answers, and what it scrapes answers it."""
    measured = sorted(item["metadata"]["name"] for item in answers[0]["items"])
    return _verdict([] if measured else ["no node has been measured yet"], f"measures {_several(measured)}")


# Alertmanager's configuration


def _routed(wanted: Mapping[str, Any], answers: Sequence[Any], _: Sequence[Pod]) -> Verdict:
    """What Alertmanager runs on is what we gave it; others' AlertmanagerConfig objects may have added routes."""
    got = yaml.safe_load(answers[0]["config"]["original"])
    others = [one["name"] for one in got["receivers"] if _is_generated(one["name"])]
    more = f"; AlertmanagerConfig objects add {_several(others)}" if others else ""
    count = len(wanted["receivers"])
    return _verdict(alerting_faults(wanted, got), f"as configured, {count} receivers, the root's is null{more}")


def alerting_faults(wanted: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """How a running configuration of Alertmanager differs from the one that was wanted."""
    root = got["route"].get("receiver")
    if root != NULL:
        return [f"what no route names goes to {root!r}, not to {NULL!r}"]
    own = [one for one in got["receivers"] if not _is_generated(one["name"])]
    route = {
        **got["route"],
        "routes": [one for one in got["route"].get("routes") or () if not _is_generated(one.get("receiver") or "")],
    }
    faults = _differences("route", {"routes": [], **wanted["route"]}, route, defaults=False)
    faults += _named_differences(wanted["receivers"], own)
    for key in wanted.keys() - {"route", "receivers"}:
        mine, theirs = wanted[key], got.get(key)
        if key == "inhibit_rules":
            lacking = [one for one in mine if all(_differences(key, one, had, defaults=True) for had in theirs or ())]
            faults += [f"{key} lacks {one}" for one in lacking]
        else:
            faults += _differences(key, mine, theirs, defaults=True)
    return faults


def _is_generated(receiver: str) -> bool:
    """Whether the operator made it of an AlertmanagerConfig object, as `<namespace>/<object>/<receiver>`."""
    return "/" in receiver


def _named_differences(wanted: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]]) -> list[str]:
    mine = {one["name"]: one for one in wanted}
    theirs = {one["name"]: one for one in got}
    faults = [f"receiver {name!r} is missing" for name in mine.keys() - theirs.keys()]
    faults += [f"receiver {name!r} is not ours" for name in theirs.keys() - mine.keys()]
    for name in mine.keys() & theirs.keys():
        ways = mine[name].keys() | {key for key, value in theirs[name].items() if value and key.endswith(WAYS)}
        for way in sorted(ways):
            faults += _differences(
                f"receiver {name!r} {way}", mine[name].get(way), theirs[name].get(way), defaults=True
            )
    return sorted(faults)


def _differences(path: str, wanted: Any, got: Any, *, defaults: bool) -> list[str]:  # noqa: ANN401 - any YAML
    """Where `got` is not as wanted; with `defaults` it may hold keys that were not wanted."""
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        keys = sorted(wanted.keys() | (set() if defaults else {key for key, value in got.items() if value}))
        return [
            fault
            for key in keys
            for fault in _differences(f"{path}.{key}", wanted.get(key), got.get(key), defaults=defaults)
        ]
    if path.endswith("matchers"):
        same = sorted(map(_matcher, wanted or ())) == sorted(map(_matcher, got or ()))
        return [] if same else [f"{path} is {got}, not {wanted}"]
    if _is_list(wanted) and _is_list(got):
        if len(wanted) != len(got):
            return [f"{path} has {len(got)} entries, not {len(wanted)}"]
        return [
            fault
            for number, (mine, theirs) in enumerate(zip(wanted, got, strict=True))
            for fault in _differences(f"{path}[{number}]", mine, theirs, defaults=defaults)
        ]
    if not wanted and not got:
        return []
    return [] if _scalar(wanted) == _scalar(got) else [f"{path} is {got!r}, not {wanted!r}"]


def _is_list(value: Any) -> bool:  # noqa: ANN401 - any YAML
    return isinstance(value, Sequence) and not isinstance(value, str)


def _matcher(text: str) -> tuple[str, ...]:
    """A matcher as its label, operator and value; one that cannot be read stands for itself."""
    parts = _MATCHER.fullmatch(text)
    return (text,) if parts is None else parts.groups()


def _scalar(value: Any) -> object:  # noqa: ANN401 - any YAML
    """A value to be compared: durations in milliseconds, since Alertmanager writes 240m as 4h."""
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(int(count) * _UNIT_MS[unit] for count, unit in _DURATION_PART.findall(value))
    return value


# How it is told


def _several(found: Sequence[str]) -> str:
    shown = ", ".join(found[:SHOWN_MAX])
    return f"{shown} and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else shown


def _verdict(wrong: Sequence[str], good: str) -> Verdict:
    if not wrong:
        return Verdict(ok=True, reason=good)
    more = f"; and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
    return Verdict(ok=False, reason="; ".join(wrong[:SHOWN_MAX]) + more)


def _of_replicas(wrong: Sequence[str], pods: Sequence[Pod], good: str) -> Verdict:
    if not pods:
        return Verdict(ok=False, reason="there is no ready replica to ask about")
    return _verdict(wrong, f"{len(pods)} replicas are {good}")


def first_look(plan: MonitoringPlan, name: str) -> str:
    """The arguments of kubectl that tell most about a failed check of monitoring."""
    what = name.split("/")[1]
    return {
        "prometheus": f"-n {plan.namespace} logs -l app.kubernetes.io/name=prometheus -c prometheus --tail 50",
        "targets": f"-n {plan.serving} describe podmonitors,networkpolicies",
        "rules": f"-n {plan.serving} describe prometheusrules",
        "series": f"-n {plan.serving} describe prometheusrules",
        "pod-metrics": "describe apiservice v1beta1.custom.metrics.k8s.io",
        "autoscalers": f"-n {plan.serving} describe hpa",
        "alertmanager": f"-n {plan.namespace} logs -l app.kubernetes.io/name=alertmanager -c alertmanager --tail 50",
        "node-metrics": "describe apiservice v1beta1.metrics.k8s.io",
    }[what]
