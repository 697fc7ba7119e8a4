"""What Prometheus scrapes of ours, and which labels tell the series apart.

Field names are the operator's: https://prometheus-operator.dev/docs/api-reference/api/. None is newer than the older of
the two sets of charts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet import aws_autoscaler, monitoring, names, pods

if TYPE_CHECKING:
    from fleet.pods import Manifest
    from fleet.settings import Settings

API_VERSION: Final = "monitoring.coreos.com/v1"
TRITON: Final = "triton"
NODE_AUTOSCALER: Final = "node-autoscaler"

LABEL_ENVIRONMENT: Final = "environment"
LABEL_NAMESPACE: Final = "namespace"
LABEL_POD: Final = "pod"
LABEL_SKU: Final = "sku"
LABEL_DEPLOYED_MODEL: Final = "deployed_model"
"""The model as the settings name it. Triton's own label `model` names each part of an ensemble."""
LABEL_MODEL: Final = "model"

TIMEOUT_MAX_S: Final = 10
"""Prometheus' own default. The operator refuses a time-out above the interval."""


def job(settings: Settings) -> str:
    """The label `job` of Triton's series: the operator makes it of the PodMonitor's namespace and name."""
    return f"{settings.serving.namespace}/{TRITON}"


def _pod_label(label: str) -> str:
    """The label of a pod as service discovery offers it: what is no letter and no digit becomes `_`."""
    return "__meta_kubernetes_pod_label_" + "".join(char if char.isalnum() else "_" for char in label)


def _labels(settings: Settings, name: str) -> dict[str, str]:
    return {**pods.labels("monitoring", name), **monitoring.monitor_labels(settings.monitoring)}


def pod_monitor(settings: Settings) -> Manifest:
    """Every Triton pod of the serving namespace, each as a target with its SKU, its model and the environment.

    The labels are set before the scrape, so Triton's own `model` keeps its meaning.
    """
    interval_s = settings.monitoring.scrape_interval_s
    return {
        "apiVersion": API_VERSION,
        "kind": "PodMonitor",
        "metadata": pods.metadata(TRITON, settings.serving.namespace, _labels(settings, TRITON)),
        "spec": {
            "selector": {"matchLabels": names.fleet_selector()},
            "podMetricsEndpoints": [
                {
                    "port": names.PORT_METRICS_NAME,
                    "path": "/metrics",
                    "interval": f"{interval_s}s",
                    "scrapeTimeout": f"{min(interval_s, TIMEOUT_MAX_S)}s",
                    "relabelings": [
                        {
                            "action": "replace",
                            "sourceLabels": [_pod_label(names.LABEL_SKU)],
                            "targetLabel": LABEL_SKU,
                        },
                        {
                            "action": "replace",
                            "sourceLabels": [_pod_label(names.LABEL_MODEL)],
                            "targetLabel": LABEL_DEPLOYED_MODEL,
                        },
                        {
                            "action": "replace",
                            "replacement": settings.environment,
                            "targetLabel": LABEL_ENVIRONMENT,
                        },
                    ],
                }
            ],
        },
    }


def node_autoscaler_monitor(settings: Settings) -> Manifest:
    """The node autoscaler's Service, as its chart makes it. Its release comes long before the kind of this object."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ServiceMonitor",
        "metadata": pods.metadata(NODE_AUTOSCALER, names.NAMESPACE_SYSTEM, _labels(settings, NODE_AUTOSCALER)),
        "spec": {
            "selector": {"matchLabels": {names.LABEL_INSTANCE: aws_autoscaler.RELEASE}},
            "endpoints": [{"port": "http", "path": "/metrics", "interval": "30s", "scrapeTimeout": "10s"}],
        },
    }
