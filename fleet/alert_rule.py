"""What every alert is made of: its severity, its labels, its texts and its page; and PromQL about one model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from fleet import names, scraping, workload
from fleet.alert_names import Alert
from fleet.schema_observe import Severity  # noqa: TC001 - the table of severities is a constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.recording import Rule
    from fleet.schema import ModelSettings
    from fleet.settings import Settings

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
    Alert.NODE_NOT_READY: "warning",
    Alert.RESTARTED: "warning",
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

SKU: Final = "{{ $labels.sku }}"
POD: Final = "{{ $labels.pod }}"
NODE: Final = "{{ $labels.node }}"
VALUE: Final = "{{ $value }}"
PERCENTAGE: Final = "{{ $value | humanizePercentage }}"
DURATION: Final = "{{ $value | humanizeDuration }}"


def runbook(alert: str) -> str:
    """Where the page of an alert is read."""
    return f"{RUNBOOKS}/{alert}.md"


class Told(NamedTuple):
    """What a person reads: one line, and what is known beside it."""

    summary: str
    description: str


def made(settings: Settings, alert: Alert, expr: str, told: Told, for_s: int) -> Rule:
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


def number(value: float) -> str:
    return f"{value:.10g}"


class Of:
    """PromQL about one model."""

    def __init__(self, settings: Settings, model: ModelSettings) -> None:
        self.settings = settings
        self.model = model
        self.namespace = f'namespace="{settings.serving.namespace}"'
        self.here = f'{{{self.namespace}, deployed_model="{model.name}"}}'
        self.job = f'job="{scraping.job(settings)}", deployed_model="{model.name}"'
        self.deployments = "|".join(names.deployment_name(model.name, one.sku) for one in model.placements)

    def rule(self, alert: Alert, expr: str, told: Told, for_s: int) -> Rule:
        rule = made(self.settings, alert, expr, told, for_s)
        return {**rule, "labels": {**rule["labels"], scraping.LABEL_MODEL: self.model.name}}

    def containers(self, state: Literal["ready", "unready"], skus: Sequence[str] = ()) -> str:
        """Triton's containers in that state, with their SKU: by the pods' names, so also where nothing is scraped.

        The pod must be Ready too: of a node that is gone, containers stay as it last told them.
        """
        container = f'{self.namespace}, container="{workload.CONTAINER}", pod=~"{self.pods(skus)}"'
        value = 1 if state == "ready" else 0
        series = (
            f"max by (namespace, pod) (kube_pod_container_status_ready{{{container}}})"
            f" * on (namespace, pod) max by (namespace, pod)"
            f' (kube_pod_status_ready{{{self.namespace}, condition="true"}}) == {value}'
        )
        return self.with_sku(series, skus)

    def pods(self, skus: Sequence[str] = ()) -> str:
        """A pattern of the names of the model's pods; its first group is the SKU."""
        placed = skus or [placement.sku for placement in self.model.placements]
        return f"{self.model.name}-({'|'.join(placed)})-[a-z0-9]+-[a-z0-9]+"

    def with_sku(self, series: str, skus: Sequence[str] = ()) -> str:
        return f'label_replace({series}, "sku", "$1", "pod", "{self.pods(skus)}")'

    def running_s(self) -> str:
        """Seconds since each container of Triton started."""
        selector = f'{self.namespace}, container="{workload.CONTAINER}"'
        return f"(time() - max by (namespace, pod) (kube_pod_container_state_started{{{selector}}}))"
