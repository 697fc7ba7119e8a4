"""What each autoscaler sees and wants."""

from __future__ import annotations

from typing import Final

from fleet.alert_names import Alert
from fleet.dashboards.grafana import Dashboard, Panel, Query, Row, Threshold, Variable
from fleet.dashboards.shared import KNOWN, page

_HPA: Final = 'namespace=~"$namespace",horizontalpodautoscaler=~"$deployment"'
_DEPLOYMENT: Final = 'namespace=~"$namespace",deployment=~"$deployment"'


def _hpa(metric: str, more: str = "") -> str:
    """A metric of HPAs with the label `deployment`, which the HPA's name is."""
    selector = f"{_HPA},{more}" if more else _HPA
    joined = f'label_replace({metric}{{{selector}}}, "deployment", "$1", "horizontalpodautoscaler", "(.*)")'
    return f"max by (namespace, deployment) ({joined})"


AUTOSCALING: Final = Dashboard(
    "triton-fleet-autoscaling",
    "Triton Fleet: autoscaling",
    "What each autoscaler sees, what it wants, and what came of it. Its target and its wishes are there where models "
    "have autoscalers; metric, bounds and replicas are there without.",
    (
        Row(
            "Replicas",
            (
                Panel(
                    "Metric and target",
                    "Requests that wait by requests in work, mean of the replicas. Dashed: what autoscaling aims at.",
                    (
                        Query(
                            "sum by (namespace, deployment) (triton_fleet:queue_compute:average"
                            '{namespace=~"$namespace"} * on (namespace, deployed_model, sku) group_left (deployment) '
                            f"(0 * {KNOWN}{{{_DEPLOYMENT}}} + 1))",
                            "{{deployment}}",
                        ),
                        Query(
                            _hpa("kube_horizontalpodautoscaler_spec_target_metric", 'metric_name=~"triton:.+"'),
                            "target: {{deployment}}",
                            dashed=True,
                        ),
                    ),
                    "short",
                    links=(page(Alert.METRICS_API_DOWN),),
                ),
                Panel(
                    "What the autoscaler read",
                    "The metric as it came to the autoscaler through the API of custom metrics.",
                    (
                        Query(
                            _hpa("kube_horizontalpodautoscaler_status_target_metric", 'metric_name=~"triton:.+"'),
                            "{{deployment}}",
                        ),
                    ),
                    "short",
                    links=(page(Alert.METRICS_API_DOWN),),
                ),
                Panel(
                    "Replicas",
                    "Wanted by the autoscaler, asked of the Deployment, and available. Dashed: the bounds.",
                    (
                        Query(_hpa("kube_horizontalpodautoscaler_status_desired_replicas"), "desired: {{deployment}}"),
                        Query(f"triton_fleet:replicas:wanted{{{_DEPLOYMENT}}}", "asked for: {{deployment}}"),
                        Query(f"triton_fleet:replicas:available{{{_DEPLOYMENT}}}", "available: {{deployment}}"),
                        Query(f"triton_fleet:replicas:min{{{_DEPLOYMENT}}}", "at least: {{deployment}}", dashed=True),
                        Query(f"triton_fleet:replicas:max{{{_DEPLOYMENT}}}", "at most: {{deployment}}", dashed=True),
                    ),
                    "short",
                    width=24,
                    height=10,
                    decimals=0,
                    links=(page(Alert.QUEUE_GROWING),),
                ),
                Panel(
                    "Autoscalers that cannot decide",
                    "1: the metric does not reach the autoscaler (condition ScalingActive is not true).",
                    (
                        Query(
                            "1 - "
                            + _hpa(
                                "kube_horizontalpodautoscaler_status_condition",
                                'condition="ScalingActive",status="true"',
                            ),
                            "{{deployment}}",
                        ),
                    ),
                    "short",
                    most=1,
                    decimals=0,
                    thresholds=(Threshold(1, "red"),),
                    links=(page(Alert.METRICS_API_DOWN),),
                ),
                Panel(
                    "Autoscalers at a bound",
                    "1: the autoscaler wants more or fewer replicas than it may have (condition ScalingLimited).",
                    (
                        Query(
                            _hpa(
                                "kube_horizontalpodautoscaler_status_condition",
                                'condition="ScalingLimited",status="true"',
                            ),
                            "{{deployment}}",
                        ),
                    ),
                    "short",
                    most=1,
                    decimals=0,
                    thresholds=(Threshold(1, "orange"),),
                    links=(page(Alert.QUEUE_GROWING),),
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                Panel(
                    "Pods waiting for a node",
                    "Pods of the fleet that no node has taken yet.",
                    (
                        Query(
                            'sum by (namespace) (kube_pod_status_phase{namespace=~"$namespace",phase="Pending"})',
                            "{{namespace}}",
                        ),
                    ),
                    "short",
                    decimals=0,
                ),
                Panel(
                    "GPUs",
                    "That nodes offer, and that pods have asked for.",
                    (
                        Query(
                            'sum(kube_node_status_allocatable{resource="nvidia_com_gpu"})',
                            "offered",
                        ),
                        Query(
                            'sum by (namespace) (kube_pod_container_resource_requests{resource="nvidia_com_gpu"})',
                            "asked for in {{namespace}}",
                        ),
                    ),
                    "short",
                    decimals=0,
                ),
                Panel(
                    "Node groups",
                    "Nodes that the node autoscaler wants. Dashed: the most that it may have. Only where it runs.",
                    (
                        Query("max by (node_group) (cluster_autoscaler_node_group_target_count)", "{{node_group}}"),
                        Query(
                            "max by (node_group) (cluster_autoscaler_node_group_max_count)",
                            "at most: {{node_group}}",
                            dashed=True,
                        ),
                    ),
                    "short",
                    decimals=0,
                    links=(page(Alert.NODE_GROUP_AT_MAXIMUM),),
                ),
                Panel(
                    "Pods that no node group can help",
                    "Pods that the node autoscaler cannot place; only where it runs.",
                    (Query("sum(cluster_autoscaler_unschedulable_pods_count)", "pods"),),
                    "short",
                    decimals=0,
                    thresholds=(Threshold(1, "orange"),),
                    links=(page(Alert.NODE_GROUP_AT_MAXIMUM),),
                ),
            ),
        ),
    ),
    (
        Variable("namespace", "Namespace", "namespace", KNOWN),
        Variable("deployment", "Deployment", "deployment", KNOWN),
    ),
)
