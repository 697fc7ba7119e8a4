"""Inside the servers: every model that Triton runs, and each replica."""

from __future__ import annotations

from typing import Final

from fleet.alert_names import Alert
from fleet.dashboards.grafana import Dashboard, Panel, Query, Row, Threshold
from fleet.dashboards.shared import FLEET, FLEET_VARIABLES, MEMORY_HIGH, RATIO_HIGH, page

_PER_REQUEST: Final = f"(sum by (model) (rate(nv_inference_request_success{{{FLEET}}}[$__rate_interval])) > 0)"


def _part(kind: str, legend: str) -> Query:
    """Mean time of one part of a request, seconds. Triton counts it in microseconds."""
    spent = f"sum by (model) (rate(nv_inference_{kind}_duration_us{{{FLEET}}}[$__rate_interval]))"
    return Query(f"{spent} / 1e6 / {_PER_REQUEST}", f"{{{{model}}}}: {legend}")


TRITON: Final = Dashboard(
    "triton-fleet-triton",
    "Triton Fleet: Triton",
    "Inside the servers: every model that Triton runs, parts of ensembles too, and each replica.",
    (
        Row(
            "By Triton's model",
            (
                Panel(
                    "Requests",
                    "Answered per second.",
                    (Query(f"triton_fleet:model_served:rate{{{FLEET}}}", "{{model}} on {{sku}}"),),
                    "reqps",
                ),
                Panel(
                    "Batch size",
                    "Inferences for each execution, mean. Near 1 under load, dynamic batching gathers nothing.",
                    (Query(f"triton_fleet:model_batch_size:average{{{FLEET}}}", "{{model}} on {{sku}}"),),
                    "short",
                ),
                Panel(
                    "Where the time goes",
                    "Mean time of a request in the queue, in taking its input, in compute and in giving its output. "
                    "An ensemble's own is that of its parts.",
                    (
                        _part("queue", "queue"),
                        _part("compute_input", "input"),
                        _part("compute_infer", "compute"),
                        _part("compute_output", "output"),
                    ),
                    "s",
                    width=24,
                    height=10,
                ),
                Panel(
                    "Time in the queue",
                    "Per request, mean.",
                    (Query(f"triton_fleet:model_queue_seconds:average{{{FLEET}}}", "{{model}} on {{sku}}"),),
                    "s",
                ),
                Panel(
                    "Time in compute",
                    "Per request, mean.",
                    (Query(f"triton_fleet:model_compute_seconds:average{{{FLEET}}}", "{{model}} on {{sku}}"),),
                    "s",
                ),
                Panel(
                    "Failed, by reason",
                    "Requests per second. REJECTED: the queue was full or the time was up; CANCELED: the client left; "
                    "BACKEND: the model failed; OTHER: the rest, a part of an ensemble among it.",
                    (
                        Query(
                            f"sum by (model, reason) (rate(nv_inference_request_failure{{{FLEET}}}[$__rate_interval]))",
                            "{{model}}: {{reason}}",
                        ),
                    ),
                    "reqps",
                    links=(page(Alert.ERRORS_HIGH),),
                ),
                Panel(
                    "Time to load",
                    "How long each replica took to load a model, when it did. Tritons after 24.10 tell.",
                    (Query(f"max by (pod, model) (nv_model_load_duration_secs{{{FLEET}}})", "{{model}} in {{pod}}"),),
                    "s",
                    links=(page(Alert.LOAD_SLOW),),
                ),
            ),
        ),
        Row(
            "By replica",
            (
                Panel(
                    "Queue to compute",
                    "The metric of autoscaling, of each pod.",
                    (Query(f"triton:queue_compute:ratio{{{FLEET}}}", "{{pod}}"),),
                    "short",
                    thresholds=(Threshold(RATIO_HIGH, "orange"),),
                ),
                Panel(
                    "Requests waiting",
                    "In the queues of each pod, now. Pods of one model that differ much: clients keep to theirs.",
                    (Query(f"sum by (pod) (nv_inference_pending_request_count{{{FLEET}}})", "{{pod}}"),),
                    "short",
                    links=(page(Alert.HUNG),),
                ),
                Panel(
                    "Mean time of a request",
                    "Of each pod, of its slowest model.",
                    (Query(f"triton:request_duration:average{{{FLEET}}} / 1e6", "{{pod}}"),),
                    "s",
                ),
                Panel(
                    "Requests",
                    "Answered per second by each pod, of the model that users call.",
                    (
                        Query(
                            "sum by (pod) (label_replace(rate(nv_inference_request_success"
                            f'{{{FLEET}}}[$__rate_interval]), "called", "$1", "model", "(.*)") '
                            "and on (pod, called) label_replace(nv_inference_request_success"
                            f'{{{FLEET}}}, "called", "$1", "deployed_model", "(.*)"))',
                            "{{pod}}",
                        ),
                    ),
                    "reqps",
                ),
            ),
        ),
        Row(
            "TensorRT-LLM (only where that runtime serves)",
            (
                Panel(
                    "Requests inside the engine",
                    "By state: waiting, being read, being answered. Triton's queue does not see these.",
                    (
                        Query(
                            f'sum by (sku, request_type) (nv_trt_llm_request_metrics{{{FLEET},request_type!="max"}})',
                            "{{request_type}} on {{sku}}",
                        ),
                    ),
                    "short",
                ),
                Panel(
                    "KV cache in use",
                    "Part of the blocks that hold tokens, of each pod.",
                    (
                        Query(
                            f'nv_trt_llm_kv_cache_block_metrics{{{FLEET},kv_cache_block_type="used"}} / ignoring '
                            f"(kv_cache_block_type) (nv_trt_llm_kv_cache_block_metrics"
                            f'{{{FLEET},kv_cache_block_type="max"}} > 0)',
                            "{{pod}}",
                        ),
                    ),
                    "percentunit",
                    most=1,
                    thresholds=(Threshold(MEMORY_HIGH, "orange"),),
                ),
            ),
        ),
    ),
    FLEET_VARIABLES,
)
