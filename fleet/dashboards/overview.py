"""The fleet at a glance: traffic, errors, latency, queues and replicas, by model and SKU."""

from __future__ import annotations

from typing import Final

from fleet.alert_names import Alert
from fleet.dashboards.grafana import Column, Dashboard, Link, Panel, Query, Row, Threshold
from fleet.dashboards.shared import BY, FAILED_MANY, FAILED_SOME, FLEET, FLEET_VARIABLES, RATIO_HIGH, SLO, page

NOW: Final = Row(
    "Now",
    (
        Panel(
            "Requests",
            "Requests answered per second, of the models that users call.",
            (Query(f"sum(triton_fleet:served:rate{{{FLEET}}})"),),
            "reqps",
            "stat",
            width=4,
            height=4,
        ),
        Panel(
            "Failed",
            "Part of the requests that fail.",
            (
                Query(
                    f"sum(triton_fleet:failed:rate{{{FLEET}}}) / (sum(triton_fleet:failed:rate{{{FLEET}}})"
                    f" + sum(triton_fleet:served:rate{{{FLEET}}}) > 0) or vector(0)"
                ),
            ),
            "percentunit",
            "stat",
            width=4,
            height=4,
            thresholds=(Threshold(FAILED_SOME, "orange"), Threshold(FAILED_MANY, "red")),
            links=(page(Alert.ERRORS_HIGH),),
        ),
        Panel(
            "Slowest against its promise",
            "Mean time of a request as part of the promised one, of the model and SKU where it is worst.",
            (
                Query(
                    f"max(triton_fleet:request_duration_seconds:average{{{FLEET}}} / on (environment, namespace, "
                    f"deployed_model) group_left () triton_fleet:slo_latency_seconds:limit{{{SLO}}})"
                ),
            ),
            "percentunit",
            "stat",
            width=4,
            height=4,
            thresholds=(Threshold(0.8, "orange"), Threshold(1, "red")),
            links=(page(Alert.LATENCY_HIGH),),
        ),
        Panel(
            "Replicas missing",
            "Replicas that are wanted and not available.",
            (Query(f"sum(triton_fleet:replicas:wanted{{{FLEET}}}) - sum(triton_fleet:replicas:available{{{FLEET}}})"),),
            "short",
            "stat",
            width=4,
            height=4,
            thresholds=(Threshold(1, "orange"),),
            links=(page(Alert.REPLICAS_UNAVAILABLE), page(Alert.NODE_NOT_READY), page(Alert.RESTARTED)),
        ),
        Panel(
            "GPUs held",
            "GPUs that pods of Triton hold, as dcgm-exporter counts them; 0 where there is none to count.",
            (Query(f"sum(triton_fleet:gpus:count{{{FLEET}}}) or vector(0)"),),
            "short",
            "stat",
            width=4,
            height=4,
        ),
        Panel(
            "Alerts",
            "Alerts of the fleet that fire.",
            (
                Query(
                    'count(ALERTS{alertstate="firing",environment!="",namespace=~"$namespace"}) or vector(0)',
                ),
            ),
            "short",
            "stat",
            width=4,
            height=4,
            thresholds=(Threshold(1, "orange"),),
            links=(Link("Alerts", "/d/triton-fleet-alerts"),),
        ),
        Panel(
            "Models and SKUs",
            "One row for each model on each SKU.",
            tuple(
                Query(f"sum by (environment, namespace, deployed_model, sku) (triton_fleet:{series}{{{FLEET}}})")
                for series in (
                    "served:rate",
                    "failed:ratio",
                    "request_duration_seconds:average",
                    "queue_compute:average",
                    "pending:sum",
                    "replicas:min",
                    "replicas:available",
                    "replicas:max",
                )
            ),
            "short",
            "table",
            width=24,
            columns=(
                Column("environment", "Environment"),
                Column("deployed_model", "Model"),
                Column("sku", "SKU"),
                Column("A", "Requests", "reqps"),
                Column("B", "Failed", "percentunit", (Threshold(FAILED_SOME, "orange"), Threshold(FAILED_MANY, "red"))),
                Column("C", "Mean time", "s"),
                Column("D", "Queue to compute", "short", (Threshold(RATIO_HIGH, "orange"),)),
                Column("E", "Waiting", "short"),
                Column("F", "Replicas at least", "short"),
                Column("G", "Replicas", "short"),
                Column("H", "Replicas at most", "short"),
            ),
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    "triton-fleet-overview",
    "Triton Fleet: overview",
    "Traffic, latency, errors, queues and replicas, by model and SKU.",
    (
        NOW,
        Row(
            "Traffic",
            (
                Panel(
                    "Requests answered",
                    "Per second, of the models that users call; parts of an ensemble are not counted again.",
                    (Query(f"triton_fleet:served:rate{{{FLEET}}}", BY),),
                    "reqps",
                ),
                Panel(
                    "Requests failed",
                    "Part of all requests.",
                    (Query(f"triton_fleet:failed:ratio{{{FLEET}}}", BY),),
                    "percentunit",
                    thresholds=(Threshold(FAILED_MANY, "red"),),
                    links=(page(Alert.ERRORS_HIGH),),
                ),
                Panel(
                    "Mean time of a request",
                    "From its arrival at Triton to its answer, queue included. Dashed: what is promised, models[].slo. "
                    "Where requests wait and none is finished, it is the length of the window.",
                    (
                        Query(f"triton_fleet:request_duration_seconds:average{{{FLEET}}}", BY),
                        Query(
                            f"triton_fleet:slo_latency_seconds:limit{{{SLO}}}",
                            "promised: {{deployed_model}}",
                            dashed=True,
                        ),
                    ),
                    "s",
                    links=(page(Alert.LATENCY_HIGH),),
                ),
                Panel(
                    "Error budget: rate of burning",
                    "Errors of the last hour and of the last six, as a multiple of those that the promise allows. At 1 "
                    "the budget lasts exactly as long as the promise runs.",
                    (
                        Query(
                            f"triton_fleet:errors:ratio1h{{{SLO}}} / on (environment, namespace, deployed_model) "
                            f"(1 - triton_fleet:slo_availability:target{{{SLO}}})",
                            "{{deployed_model}}, 1 h",
                        ),
                        Query(
                            f"triton_fleet:errors:ratio6h{{{SLO}}} / on (environment, namespace, deployed_model) "
                            f"(1 - triton_fleet:slo_availability:target{{{SLO}}})",
                            "{{deployed_model}}, 6 h",
                        ),
                    ),
                    "short",
                    thresholds=(Threshold(1, "orange"), Threshold(6, "red")),
                    links=(page(Alert.BURN_FAST), page(Alert.BURN_SLOW)),
                ),
            ),
        ),
        Row(
            "Load and replicas",
            (
                Panel(
                    "Queue to compute",
                    "Requests that wait by requests in work, mean over the replicas: what autoscaling sees.",
                    (Query(f"triton_fleet:queue_compute:average{{{FLEET}}}", BY),),
                    "short",
                    thresholds=(Threshold(RATIO_HIGH, "orange"),),
                    links=(Link("Autoscaling", "/d/triton-fleet-autoscaling"),),
                ),
                Panel(
                    "Requests waiting",
                    "In the queues of all replicas, now.",
                    (Query(f"triton_fleet:pending:sum{{{FLEET}}}", BY),),
                    "short",
                    links=(page(Alert.QUEUE_GROWING),),
                ),
                Panel(
                    "Replicas",
                    "Available. Dashed: the bounds.",
                    (
                        Query(f"triton_fleet:replicas:available{{{FLEET}}}", BY),
                        Query(f"triton_fleet:replicas:min{{{FLEET}}}", f"at least: {BY}", dashed=True),
                        Query(f"triton_fleet:replicas:max{{{FLEET}}}", f"at most: {BY}", dashed=True),
                    ),
                    "short",
                    decimals=0,
                    links=(page(Alert.REPLICAS_UNAVAILABLE), page(Alert.MODEL_DOWN)),
                ),
                Panel(
                    "Replicas that are measured",
                    "Pods that Prometheus reads. Fewer than are available means that some are not seen.",
                    (Query(f"triton_fleet:scraped:count{{{FLEET}}}", BY),),
                    "short",
                    decimals=0,
                    links=(page(Alert.TARGET_DOWN), page(Alert.SERIES_ABSENT)),
                ),
            ),
        ),
    ),
    FLEET_VARIABLES,
)
