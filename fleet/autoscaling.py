"""Who decides how many replicas a model has on a SKU, and by what.

One of three: the settings (`placements[].autoscaled: false`), a HorizontalPodAutoscaler on the recorded series, which
prometheus-adapter serves as a metric of pods, or a ScaledObject of KEDA on the same series.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from fleet import monitoring, names, pods, recording
from fleet.schema_autoscaling import SYNC_S

if TYPE_CHECKING:
    from fleet.pods import Manifest
    from fleet.schema import ModelSettings, Placement, Settings
    from fleet.schema_autoscaling import ModelAutoscaling

RATIO: Final = recording.QUEUE_COMPUTE_RATIO
WAITING: Final = recording.WAITING_REQUESTS

Owner = Literal["settings", "autoscaler", "keda"]
"""Who sets a Deployment's number of replicas; stands in its annotation, so that a change of owner is an update."""


def owner(settings: Settings, placement: Placement) -> Owner:
    """Who sets the number of replicas of a placement."""
    if not placement.autoscaled:
        return "settings"
    return "keda" if settings.autoscaling.engine == "keda" else "autoscaler"


def adapter_wanted(settings: Settings) -> bool:
    """Whether the stack installs prometheus-adapter: a metrics API has one owner, and KEDA needs none of pods."""
    return settings.monitoring.prometheus_adapter and settings.autoscaling.engine == "prometheus-adapter"


def _quantity(value: float) -> str:
    """As the API server writes it, so that a second update finds nothing to change: whole, or in thousandths."""
    millis = round(value * 1000)
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def _pods_metric(name: str, target: float) -> Manifest:
    """The mean over the pods that have a sample; Kubernetes itself reckons with those that have none."""
    return {
        "type": "Pods",
        "pods": {
            "metric": {"name": name},
            "target": {"type": "AverageValue", "averageValue": _quantity(target)},
        },
    }


def behavior(rules: ModelAutoscaling) -> Manifest:
    """How fast replicas come and go. Everything is said: what is left out has defaults made for web servers."""
    return {
        "scaleUp": _rules(rules.scale_up.window_s, rules.scale_up.pods, rules.scale_up.period_s),
        "scaleDown": _rules(rules.scale_down.window_s, rules.scale_down.pods, rules.scale_down.period_s),
    }


def _rules(window_s: int, count: int, period_s: int) -> Manifest:
    return {
        "stabilizationWindowSeconds": window_s,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": count, "periodSeconds": period_s}],
    }


def _metadata(settings: Settings, model: ModelSettings, placement: Placement) -> Manifest:
    name = names.deployment_name(model.name, placement.sku)
    labels = {**pods.labels("autoscaler", name), names.LABEL_MODEL: model.name, names.LABEL_SKU: placement.sku}
    return pods.metadata(name, settings.serving.namespace, labels)


def _target(model: ModelSettings, placement: Placement) -> Manifest:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.deployment_name(model.name, placement.sku)}


def hpa(settings: Settings, model: ModelSettings, placement: Placement) -> Manifest:
    """The autoscaler of a model on a SKU; of two metrics the one that asks for more replicas wins."""
    rules = model.autoscaling
    metrics = [_pods_metric(RATIO, rules.target_ratio)]
    if rules.waiting_requests_target is not None:
        metrics.append(_pods_metric(WAITING, rules.waiting_requests_target))
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(settings, model, placement),
        "spec": {
            "scaleTargetRef": _target(model, placement),
            "minReplicas": placement.replicas.min,
            "maxReplicas": placement.replicas.max,
            "metrics": metrics,
            "behavior": behavior(rules),
        },
    }


def scaled_object(settings: Settings, model: ModelSettings, placement: Placement) -> Manifest:
    """KEDA's way to the same decision: it makes an autoscaler of its own, named `keda-hpa-<name>`."""
    rules = model.autoscaling
    triggers = [_trigger(settings, model, placement, RATIO, rules.target_ratio)]
    if rules.waiting_requests_target is not None:
        triggers.append(_trigger(settings, model, placement, WAITING, rules.waiting_requests_target))
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": _metadata(settings, model, placement),
        "spec": {
            "scaleTargetRef": _target(model, placement),
            "minReplicaCount": placement.replicas.min,
            "maxReplicaCount": placement.replicas.max,
            "pollingInterval": SYNC_S,
            "advanced": {
                "restoreToOriginalReplicaCount": False,
                "horizontalPodAutoscalerConfig": {"behavior": behavior(rules)},
            },
            "triggers": triggers,
        },
    }


def _trigger(
    settings: Settings, model: ModelSettings, placement: Placement, series: str, target: float
) -> dict[str, Any]:
    """The mean of the replicas' samples against the target.

    A mean and not a sum: a replica without a sample would count as idle in a sum. For the same reason a query without
    an answer is an error, which changes nothing, and not KEDA's default of 0, which would scale in.
    """
    labels = {
        "namespace": settings.serving.namespace,
        "deployed_model": model.name,
        "sku": placement.sku,
    }
    selector = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {
        "type": "prometheus",
        "metricType": "Value",
        "metadata": {
            "serverAddress": monitoring.prometheus_url(settings.monitoring),
            "query": f"avg({series}{{{selector}}})",
            "threshold": f"{target:g}",
            "ignoreNullValues": "false",
        },
    }
