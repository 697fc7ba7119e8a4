"""The recorded series: what autoscaling, alerts and dashboards read of Triton's counters.

Triton's counters move when a request ends, and only for one that succeeded. A mean over a time is the increase of a
duration by the increase of the successes; the increase of a duration by the time is, after Little, the mean number of
requests in that state. So the time in the queue by the time in compute is the number that wait by the number in work.

Each series is right where counters alone would mislead:

- seldom asked: both rates are of the same few requests, and nothing is rounded up to one request a second
- idle: 0 and not absent, since an autoscaler without a sample never scales in
- nothing finished, but requests wait: the number that wait, or at least the time that they have waited for
- several models in a pod, an ensemble among them: the largest, never the sum. An ensemble's own queue is always empty
  (https://github.com/triton-inference-server/core/blob/main/src/ensemble_scheduler/ensemble_scheduler.cc), its compute
  the sum of its parts'
- a restart: `rate` takes a counter that falls for one that began anew, so nothing is ever negative
- not scraped: absent, as nothing is known; the autoscaler then does not scale in

No series is ever NaN or infinite: whatever divides is above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet import monitoring, names, pods, scraping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.pods import Manifest
    from fleet.schema import ModelSettings, Placement
    from fleet.settings import Settings

Rule = dict[str, Any]

RULES: Final = "triton-recording"

QUEUE_COMPUTE_RATIO: Final = "triton:queue_compute:ratio"
"""Requests that wait by requests in work; what the autoscaler holds at its target."""
QUEUE_DURATION: Final = "triton:queue_duration:average"
COMPUTE_DURATION: Final = "triton:compute_duration:average"
REQUEST_DURATION: Final = "triton:request_duration:average"
"""Mean time of a request, microseconds, as the guide's series of the same name; likewise in queue and in compute."""
WAITING_REQUESTS: Final = "triton:waiting_requests:sum"
"""Requests that TensorRT-LLM keeps waiting itself, which Triton counts as in work. Absent with other runtimes."""

PER_POD: Final = (QUEUE_COMPUTE_RATIO, QUEUE_DURATION, COMPUTE_DURATION, REQUEST_DURATION)
"""Series with exactly one sample for each pod that is scraped, idle or not."""

SERVED: Final = "triton_fleet:served:rate"
"""Requests answered a second, of the model that users call."""
FAILED: Final = "triton_fleet:failed:rate"
"""Requests failed a second. One that its client gave up is no failure of the fleet."""
FAILED_RATIO: Final = "triton_fleet:failed:ratio"
LATENCY: Final = "triton_fleet:request_duration_seconds:average"
PENDING: Final = "triton_fleet:pending:sum"
"""Requests that wait, in Triton's queue or inside TensorRT-LLM."""
SKU_QUEUE_COMPUTE_RATIO: Final = "triton_fleet:queue_compute:average"
"""Mean over the pods of `triton:queue_compute:ratio`: what the autoscaler compares with its target."""
SKU_WAITING: Final = "triton_fleet:waiting:sum"
SCRAPED: Final = "triton_fleet:scraped:count"
REPLICAS_MIN: Final = "triton_fleet:replicas:min"
REPLICAS_MAX: Final = "triton_fleet:replicas:max"
REPLICAS_WANTED: Final = "triton_fleet:replicas:wanted"
REPLICAS_AVAILABLE: Final = "triton_fleet:replicas:available"
GPU_UTILIZATION: Final = "triton_fleet:gpu_utilization:ratio"
GPU_MEMORY: Final = "triton_fleet:gpu_memory_used:ratio"
GPUS: Final = "triton_fleet:gpus:count"

PART_FINISHED: Final = "triton_fleet:part_finished:rate"
PART_QUEUE: Final = "triton_fleet:part_queue:rate"
PART_COMPUTE: Final = "triton_fleet:part_compute:rate"
PART_REQUEST: Final = "triton_fleet:part_request:rate"
"""Of each of Triton's own models in each pod: requests answered a second, and microseconds in the queue, in compute and
altogether. Recorded once, since most of the others are made of them."""
PART_UNANSWERED: Final = "triton_fleet:part_unanswered:microseconds"
"""Of those of which nothing finished: how long requests are known to have waited; 0 where the queue was empty."""

MODEL_SERVED: Final = "triton_fleet:model_served:rate"
MODEL_BATCH: Final = "triton_fleet:model_batch_size:average"
"""Inferences of one execution."""
MODEL_QUEUE: Final = "triton_fleet:model_queue_seconds:average"
MODEL_COMPUTE: Final = "triton_fleet:model_compute_seconds:average"

SLO_LATENCY: Final = "triton_fleet:slo_latency_seconds:limit"
SLO_AVAILABILITY: Final = "triton_fleet:slo_availability:target"
ERROR_WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
"""Windows of the burn rates: https://sre.google/workbook/alerting-on-slos/, table 5-8."""

PENDING_SCRAPES: Final = 2
"""Requests wait if so many scrapes in a row say so: one that is seen between its arrival and its batch does not."""
LOAD_EVALUATIONS: Final = 2
"""In an interval, of what autoscaling reads: what was scraped then waits half as long (docs/autoscaling.md)."""
PROMISES_INTERVAL_S: Final = 60
"""Windows of hours need no newer value, and each evaluation reads all of them."""

_POD: Final = (
    scraping.LABEL_ENVIRONMENT,
    scraping.LABEL_NAMESPACE,
    scraping.LABEL_POD,
    scraping.LABEL_SKU,
    scraping.LABEL_DEPLOYED_MODEL,
)
_POD_MODEL: Final = (*_POD, scraping.LABEL_MODEL)
_SKU: Final = (
    scraping.LABEL_ENVIRONMENT,
    scraping.LABEL_NAMESPACE,
    scraping.LABEL_DEPLOYED_MODEL,
    scraping.LABEL_SKU,
)
_SKU_MODEL: Final = (*_SKU, scraping.LABEL_MODEL)
_MODEL: Final = (scraping.LABEL_ENVIRONMENT, scraping.LABEL_NAMESPACE, scraping.LABEL_DEPLOYED_MODEL)
_FAILURES: Final = 'reason!="CANCELED"'
_MICROSECONDS: Final = 1_000_000
_PERCENT: Final = 100


def errors(window: str) -> str:
    """The series with the part of a model's requests that failed in that window."""
    return f"triton_fleet:errors:ratio{window}"


def by(labels: Iterable[str]) -> str:
    return f"by ({', '.join(labels)})"


class _Triton:
    """Triton's series of one stack, in PromQL.

    Where only some pods are meant, these stand leftmost: of an empty side Prometheus matches nothing with the other.
    """

    def __init__(self, settings: Settings) -> None:
        self.job = f'job="{scraping.job(settings)}"'
        self.namespace = f'namespace="{settings.serving.namespace}"'
        self.window = f"{settings.monitoring.rate_window_s}s"
        self.scrape_s = settings.monitoring.scrape_interval_s

    def rate(self, metric: str, labels: Iterable[str] = _POD_MODEL) -> str:
        """Increase a second. Versions of a model, and tags that a user gave it, are added up."""
        return f"sum {by(labels)} ({self.increase(metric)})"

    def waiting(self, window: str) -> str:
        """The fewest requests that waited at any scrape of the window."""
        return f"sum {by(_POD_MODEL)} (min_over_time(nv_inference_pending_request_count{{{self.job}}}[{window}]))"

    def increase(self, metric: str, more: str = "") -> str:
        """Increase a second of each series."""
        return f"rate({metric}{{{self._selector(more)}}}[{self.window}])"

    def called(self, rates: str) -> str:
        """By SKU, of the models that users call: those named as the pod's deployed model."""
        named = f'label_replace(up{{{self.job}}}, "model", "$1", "deployed_model", "(.*)")'
        return f"sum {by(_SKU)} ({rates} and on (namespace, pod, model) {named})"

    def unanswered(self) -> str:
        """From the first scrape of the window to the last, in microseconds, where the queue was never empty, else 0:
        whoever waited at the first still waits. Only of those of which nothing finished.
        """
        seen = f"nv_inference_pending_request_count{{{self.job}}}[{self.window}]"
        between = f"(max {by(_POD_MODEL)} (count_over_time({seen})) - 1) * {self.scrape_s * _MICROSECONDS}"
        return f"(({self.recorded(PART_FINISHED)} == 0) + 1) * ({self.waiting(self.window)} > bool 0) * ({between})"

    def ratio(self) -> str:
        """Largest over a pod's models of waiting by in work.

        Without any compute in the window there is nothing to divide by. What waited, from the queue's own time or as
        the gauge tells, then stands for itself: as if one request were in work.
        """
        queue, compute = self.recorded(PART_QUEUE), self.recorded(PART_COMPUTE)
        waiting = self.waiting(f"{PENDING_SCRAPES * self.scrape_s}s")
        idle = f"({compute} == 0)"
        stuck = f"({idle} + ({self.recorded(PART_FINISHED)} == bool 0)) * {waiting}"
        return f"max {by(_POD)} ({queue} / ({compute} > 0) or {idle} + {queue} / {_MICROSECONDS} + {stuck})"

    def mean(self, duration: str) -> str:
        """Largest over a pod's models of the mean time, microseconds; at least what requests waited in vain."""
        finished, unanswered = self.recorded(PART_FINISHED), self.recorded(PART_UNANSWERED)
        return f"max {by(_POD)} ({duration} / ({finished} > 0) or {unanswered})"

    def model_mean(self, total: str, count: str) -> str:
        """Mean over the increase of `count`, by SKU and by Triton's own models; 0 when idle."""
        return f"{total} / ({count} > 0) or {count} * 0"

    def models(self, series: str) -> str:
        """The sum over pods of a recorded rate."""
        return f"sum {by(_SKU_MODEL)} ({self.recorded(series)})"

    def recorded(self, series: str) -> str:
        return f"{series}{{{self.namespace}}}"

    def _selector(self, more: str) -> str:
        return f"{self.job}, {more}" if more else self.job


def _record(name: str, expr: str, **labels: str) -> Rule:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def load_rules(settings: Settings) -> list[Rule]:
    """What autoscaling reads, one sample for each pod, and what it is made of."""
    triton = _Triton(settings)
    waiting = f'nv_trt_llm_request_metrics{{{triton.job}, request_type="waiting"}}'
    return [
        _record(PART_FINISHED, triton.rate("nv_inference_request_success")),
        _record(PART_QUEUE, triton.rate("nv_inference_queue_duration_us")),
        _record(PART_COMPUTE, triton.rate("nv_inference_compute_infer_duration_us")),
        _record(QUEUE_COMPUTE_RATIO, triton.ratio()),
        _record(WAITING_REQUESTS, f"sum {by(_POD)} ({waiting})"),
    ]


def pod_rules(settings: Settings) -> list[Rule]:
    """How long requests take: one sample for each pod."""
    triton = _Triton(settings)
    return [
        _record(PART_REQUEST, triton.rate("nv_inference_request_duration_us")),
        _record(PART_UNANSWERED, triton.unanswered()),
        _record(QUEUE_DURATION, triton.mean(triton.recorded(PART_QUEUE))),
        _record(COMPUTE_DURATION, triton.mean(triton.recorded(PART_COMPUTE))),
        _record(REQUEST_DURATION, triton.mean(triton.recorded(PART_REQUEST))),
    ]


def sku_rules(settings: Settings) -> list[Rule]:
    """What a person asks first: rate, errors, latency and queue of a model on a SKU."""
    triton = _Triton(settings)
    here = f"{{{triton.namespace}}}"
    duration = triton.called(triton.recorded(PART_REQUEST))
    pending = f"sum {by(_SKU)} (nv_inference_pending_request_count{{{triton.job}}})"
    return [
        _record(SERVED, triton.called(triton.recorded(PART_FINISHED))),
        _record(FAILED, triton.called(triton.increase("nv_inference_request_failure", _FAILURES))),
        _record(FAILED_RATIO, f"{FAILED}{here} / ({SERVED}{here} + {FAILED}{here} > 0) or {SERVED}{here} * 0"),
        _record(
            LATENCY,
            f"{duration} / {_MICROSECONDS} / ({SERVED}{here} > 0)"
            f" or max {by(_SKU)} ({REQUEST_DURATION}{here}) / {_MICROSECONDS}",
        ),
        _record(PENDING, f"{pending} + sum {by(_SKU)} ({WAITING_REQUESTS}{here}) or {pending}"),
        _record(SKU_QUEUE_COMPUTE_RATIO, f"avg {by(_SKU)} ({QUEUE_COMPUTE_RATIO}{here})"),
        _record(SKU_WAITING, f"sum {by(_SKU)} ({WAITING_REQUESTS}{here})"),
        _record(SCRAPED, f"sum {by(_SKU)} (up{{{triton.job}}})"),
        _record(MODEL_SERVED, triton.models(PART_FINISHED)),
        _record(
            MODEL_BATCH,
            triton.model_mean(
                triton.rate("nv_inference_count", _SKU_MODEL), triton.rate("nv_inference_exec_count", _SKU_MODEL)
            ),
        ),
        *(
            _record(
                name,
                triton.model_mean(f"{triton.models(part)} / {_MICROSECONDS}", triton.recorded(MODEL_SERVED)),
            )
            for name, part in ((MODEL_QUEUE, PART_QUEUE), (MODEL_COMPUTE, PART_COMPUTE))
        ),
    ]


def bound_rules(settings: Settings) -> list[Rule]:
    """Replicas beside the bounds of the settings; by the bounds, Deployments are known by model and SKU."""
    here = f"{{{_Triton(settings).namespace}}}"
    return [
        *(
            _record(name, f"vector({count})", **_placement_labels(settings, model, placement))
            for model in settings.models
            for placement in model.placements
            for name, count in ((REPLICAS_MIN, placement.replicas.min), (REPLICAS_MAX, most(placement)))
        ),
        *(
            _record(
                name,
                f"max by (namespace, deployment) ({metric}{here}) * on (namespace, deployment)"
                f" group_left (environment, deployed_model, sku) ({REPLICAS_MAX}{here} >= bool 0)",
            )
            for name, metric in (
                (REPLICAS_WANTED, "kube_deployment_spec_replicas"),
                (REPLICAS_AVAILABLE, "kube_deployment_status_replicas_available"),
            )
        ),
    ]


def most(placement: Placement) -> int:
    """Replicas that a placement can have: without autoscaling, as many as are set."""
    return placement.replicas.max if placement.autoscaled else placement.replicas.min


def _placement_labels(settings: Settings, model: ModelSettings, placement: Placement) -> dict[str, str]:
    return {
        **_model_labels(settings, model),
        scraping.LABEL_SKU: placement.sku,
        "deployment": names.deployment_name(model.name, placement.sku),
    }


def _model_labels(settings: Settings, model: ModelSettings) -> dict[str, str]:
    return {
        scraping.LABEL_ENVIRONMENT: settings.environment,
        scraping.LABEL_NAMESPACE: settings.serving.namespace,
        scraping.LABEL_DEPLOYED_MODEL: model.name,
    }


def gpu_rules(settings: Settings) -> list[Rule]:
    """GPUs by the SKU of the Triton pods that hold them. The exporter names the pod in its own labels, which a scrape
    renames to `exported_…`, since its target is a pod too.
    """
    triton = _Triton(settings)
    holders = (
        f"on (pod) group_left (environment, namespace, deployed_model, sku)"
        f" (max {by(_POD)} (up{{{triton.job}}}) >= bool 0)"
    )

    def held(metric: str) -> str:
        series = f'{metric}{{exported_namespace="{settings.serving.namespace}"}}'
        return f'label_replace({series}, "pod", "$1", "exported_pod", "(.*)") * {holders}'

    used = f"sum {by(_SKU)} ({held('DCGM_FI_DEV_FB_USED')})"
    free = f"sum {by(_SKU)} ({held('DCGM_FI_DEV_FB_FREE')})"
    return [
        _record(GPU_UTILIZATION, f"avg {by(_SKU)} ({held('DCGM_FI_DEV_GPU_UTIL')}) / {_PERCENT}"),
        _record(GPU_MEMORY, f"{used} / ({used} + {free} > 0)"),
        _record(GPUS, f"count {by(_SKU)} ({held('DCGM_FI_DEV_FB_USED')})"),
    ]


def promise_rules(settings: Settings) -> list[Rule]:
    """What was promised, and how much of it was broken in each window.

    Long windows add up the recorded rates, a few series, rather than the counters of every pod.
    """
    here = f"{{{_Triton(settings).namespace}}}"

    def total(name: str, window: str) -> str:
        return f"sum {by(_MODEL)} (sum_over_time({name}{here}[{window}]))"

    return [
        *(
            _record(name, f"vector({value:.10g})", **_model_labels(settings, model))
            for model in settings.models
            for name, value in (
                (SLO_LATENCY, model.slo.latency_ms / 1000),
                (SLO_AVAILABILITY, model.slo.availability),
            )
        ),
        *(
            _record(
                errors(window),
                f"{total(FAILED, window)} / ({total(SERVED, window)} + {total(FAILED, window)} > 0)"
                f" or sum {by(_MODEL)} ({SERVED}{here}) * 0",
            )
            for window in ERROR_WINDOWS
        ),
    ]


def rules(settings: Settings) -> Manifest:
    """All recording rules of the stack.

    Rules of a group are evaluated in order, so what autoscaling reads stands in one group with all that it is made of.
    The others, which people and alerts read, are made of series of groups before them, and so may be an interval late:
    in one group with the first they would delay it.
    """
    interval_s = settings.monitoring.evaluation_interval_s
    return rule_object(
        settings,
        RULES,
        {
            "triton-load": (max(interval_s // LOAD_EVALUATIONS, 1), load_rules(settings)),
            "triton-pods": (interval_s, pod_rules(settings)),
            "triton-skus": (interval_s, sku_rules(settings)),
            "triton-bounds": (interval_s, bound_rules(settings)),
            "triton-gpus": (interval_s, gpu_rules(settings)),
            "triton-promises": (PROMISES_INTERVAL_S, promise_rules(settings)),
        },
    )


def rule_object(settings: Settings, name: str, groups: dict[str, tuple[int, list[Rule]]]) -> Manifest:
    """A PrometheusRule of groups, each with its interval in seconds, that our Prometheus takes."""
    return {
        "apiVersion": scraping.API_VERSION,
        "kind": "PrometheusRule",
        "metadata": pods.metadata(
            name,
            settings.serving.namespace,
            {**pods.labels("monitoring", name), **monitoring.monitor_labels(settings.monitoring)},
        ),
        "spec": {
            "groups": [
                {"name": group, "interval": f"{interval_s}s", "rules": rules}
                for group, (interval_s, rules) in groups.items()
            ]
        },
    }
