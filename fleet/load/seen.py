"""What of a fleet is looked at while it is under load: what is asked of the API server, and what the answers say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from fleet import monitoring, names, recording, scraping
from fleet.verification_observe import service_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.settings import Settings

STALE_S: Final = 60
"""A pod that is seen no more has no sample; one that was not scraped for so long has none to be trusted."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A fleet at a moment, by SKU; `ratio` is the mean of what autoscaling reads, None where there is no sample.

    `answered` are requests answered since the first sight, by SKU and by pod. `missing` says what did not answer.
    """

    time_s: float
    wanted: Mapping[str, int]
    ready: Mapping[str, int]
    ratio: Mapping[str, float | None]
    answered: Mapping[str, Mapping[str, int]]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """A model of a stack, and by which paths on the API server its state is known."""

    model: str
    skus: tuple[str, ...]
    deployments: str
    ratio: str
    counters: str

    @property
    def paths(self) -> tuple[str, str, str]:
        return self.deployments, self.ratio, self.counters


def watched(settings: Settings, model: str, skus: Sequence[str]) -> Watched:
    """What is asked of a model."""
    namespace = settings.serving.namespace
    selector = ",".join(f"{key}={value}" for key, value in names.model_selector(model).items())
    service = f"{monitoring.prometheus_service(settings.monitoring)}:{monitoring.PORT_PROMETHEUS}"

    def query(text: str) -> str:
        return service_path(settings.monitoring.namespace, service, "/api/v1/query", query=text)

    mine = f'namespace="{namespace}", {scraping.LABEL_DEPLOYED_MODEL}="{model}"'
    counted = f'nv_inference_request_success{{job="{scraping.job(settings)}", {mine}, model="{model}"}}'
    return Watched(
        model=model,
        skus=tuple(skus),
        deployments=f"/apis/apps/v1/namespaces/{namespace}/deployments?{urlencode({'labelSelector': selector})}",
        ratio=query(f"{recording.SKU_QUEUE_COMPUTE_RATIO}{{{mine}}}"),
        counters=query(f"sum by ({scraping.LABEL_SKU}, {scraping.LABEL_POD}) ({counted})"),
    )


def replicas(watched: Watched, answer: Any) -> tuple[dict[str, int], dict[str, int]]:  # noqa: ANN401 - the API server's
    """Replicas wanted and ready, by SKU."""
    wanted, ready = dict.fromkeys(watched.skus, 0), dict.fromkeys(watched.skus, 0)
    for item in answer["items"]:
        sku = item["spec"]["template"]["metadata"]["labels"].get(names.LABEL_SKU)
        if sku in wanted:
            wanted[sku] = item["spec"].get("replicas", 1)
            ready[sku] = item.get("status", {}).get("readyReplicas", 0)
    return wanted, ready


def ratios(watched: Watched, answer: Any) -> dict[str, float | None]:  # noqa: ANN401 - Prometheus'
    """The mean of a SKU's replicas, as recorded."""
    found = {one["metric"][scraping.LABEL_SKU]: float(one["value"][1]) for one in answer["data"]["result"]}
    known = {sku: value for sku, value in found.items() if math.isfinite(value)}
    return {sku: known.get(sku) for sku in watched.skus}


@dataclass(slots=True)
class Answers:
    """Adds up what the replicas' counters rose by. A replica that is new, or began anew, counts from 0; what one that
    went has answered since its last scrape is not known.
    """

    total: dict[str, dict[str, int]] = field(default_factory=dict)
    _last: dict[tuple[str, str], int] | None = None

    def add(self, answer: Any) -> None:  # noqa: ANN401 - Prometheus'
        """Takes the counters as they are now."""
        now = {
            (one["metric"][scraping.LABEL_SKU], one["metric"][scraping.LABEL_POD]): round(float(one["value"][1]))
            for one in answer["data"]["result"]
        }
        if self._last is not None:
            for (sku, pod), count in now.items():
                before = self._last.get((sku, pod), 0)
                rose = count - before if count >= before else count
                pods = self.total.setdefault(sku, {})
                pods[pod] = pods.get(pod, 0) + rose
        self._last = {**(self._last or {}), **now}

    def copy(self) -> dict[str, dict[str, int]]:
        return {sku: dict(pods) for sku, pods in self.total.items()}
