"""Settings of what observes the fleet: the GPU stack, monitoring, and who hears of alerts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, SecretStr, Tag, model_validator

from fleet import names
from fleet.schema_base import (
    UNNAMED,
    Choice,
    DnsLabel,
    Environment,
    Form,
    LabelKey,
    LabelValue,
    Model,
    Taint,
    by,
    matching,
    one_line,
    refuse,
    setting,
    whole,
)

WINDOW_MIN_SCRAPES: Final = 4
"""A rate needs two samples in its window; with four scrapes in it, it still has them when two were missed (B23)."""
SCRAPE_MAX_S: Final = 60
RETENTION_MAX_DAYS: Final = 400
STORAGE_MAX_GIB: Final = 16384
"""The largest gp3 volume: https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html"""
SECRET_MAX_CHARS: Final = 4096
PORT_MAX: Final = 65535
REPEAT_MAX_MINUTES: Final = 5 * 24 * 60
"""Alertmanager's --data.retention, 120h by default; with a longer interval it repeats too early, and warns:
https://github.com/prometheus/alertmanager/blob/main/cmd/alertmanager/main.go"""

_URL = re.compile(r"https?://[^\s/]+(/\S*)?")
_HOST_PORT = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?:(?P<port>[0-9]{1,5})")
_ADDRESS = re.compile(r"[^@\s,]+@[^@\s,]+")
_CHANNEL = re.compile(r"[#@]?\S{1,80}")


def _secret(text: SecretStr) -> SecretStr:
    plain = text.get_secret_value()
    if not plain.strip() or "\0" in plain or "\n" in plain or len(plain) > SECRET_MAX_CHARS:
        refuse(
            f"one line of 1 to {SECRET_MAX_CHARS} characters",
            "it is one password, key or URL",
            "write the secret alone; `pulumi config set --secret --path` asks for it",
        )
    return text


def _secret_url(text: SecretStr) -> SecretStr:
    if _URL.fullmatch(_secret(text).get_secret_value()) is None:
        refuse("a URL that begins with http:// or https://", "alerts are sent there", "write the URL in full")
    return text


def _host_port(text: str) -> str:
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) <= PORT_MAX:
        refuse(
            f"host:port, the port from 1 to {PORT_MAX}",
            "mail is handed to that server",
            "write it as smtp.example.com:587",
        )
    return text


Secret = Annotated[SecretStr, AfterValidator(_secret), Form("a secret text, from `pulumi config set --secret --path`")]
SecretUrl = Annotated[
    SecretStr, AfterValidator(_secret_url), Form("a secret URL, from `pulumi config set --secret --path`")
]
HostPort = Annotated[str, AfterValidator(_host_port), Form("host:port")]
MailAddress = Annotated[
    str,
    matching(_ADDRESS, "one mail address", "mail goes there, or comes from there", "write it as name@example.com"),
    Form("a mail address"),
]
Channel = Annotated[
    str,
    matching(_CHANNEL, "the name of a channel", "messages go there", "write it as Slack shows it, such as '#gpu'"),
    Form("the name of a channel"),
]

OneLine = Annotated[str, AfterValidator(one_line), Form("text on one line")]

Severity = Literal["critical", "warning", "info"]


class GpuStack(Model):
    """What makes GPUs visible to Kubernetes; each part is left out where the cluster has it already."""

    node_feature_discovery: bool = setting(
        "two of them in one cluster write the same labels",
        "Whether the stack installs node feature discovery.",
        default=True,
        strict=True,
    )
    device_plugin: bool = setting(
        "two of them offer the same GPUs",
        "Whether the stack installs NVIDIA's device plugin, with GPU feature discovery.",
        default=True,
        strict=True,
    )
    dcgm_exporter: bool = setting(
        "two of them count the same GPUs",
        "Whether the stack installs NVIDIA's DCGM exporter.",
        default=True,
        strict=True,
    )


class PrometheusStorage(Model):
    """The disk that Prometheus keeps its series on."""

    size_gib: int = whole(
        1, STORAGE_MAX_GIB, "series need room, and no volume is larger than the upper bound", "Size of the disk, GiB."
    )
    storage_class: DnsLabel | None = setting(
        "the cluster makes the disk by it",
        "StorageClass of the disk. Network file systems are no place for Prometheus.",
        derived="with `cluster.source: eks` one of gp3 that the stack makes, else the cluster's default",
        default=None,
    )


class Monitoring(Model):
    """Prometheus, Alertmanager, Grafana and the metrics APIs."""

    kube_prometheus_stack: bool = setting(
        "two of them in one cluster fight over the same objects",
        "Whether the stack installs kube-prometheus-stack. Without it, `release` and `namespace` name the one that the "
        "cluster has.",
        default=True,
        strict=True,
    )
    prometheus_adapter: bool = setting(
        "the API of custom metrics has one owner",
        "Whether the stack installs prometheus-adapter.",
        default=True,
        strict=True,
    )
    metrics_server: bool = setting(
        "the API of resource metrics has one owner",
        "Whether the stack installs metrics-server.",
        default=True,
        strict=True,
    )
    release: DnsLabel = setting(
        "the names and selectors of kube-prometheus-stack follow its release's name",
        "Helm release of kube-prometheus-stack.",
        default="prometheus",
    )
    namespace: DnsLabel = setting(
        "monitoring has a namespace of its own",
        "Namespace of kube-prometheus-stack, prometheus-adapter and dcgm-exporter.",
        default=names.NAMESPACE_MONITORING,
    )
    scrape_interval_s: int = whole(
        1,
        SCRAPE_MAX_S,
        "autoscaling cannot react faster than it measures",
        "Time between two scrapes of Triton, seconds.",
        default=10,
    )
    evaluation_interval_s: int = whole(
        1,
        SCRAPE_MAX_S,
        "autoscaling cannot react faster than its series",
        "Time between two evaluations of rules, seconds; those that autoscaling reads come twice as often.",
        default=10,
    )
    rate_window_s: int = whole(
        4,
        3600,
        "a rate needs samples in its window",
        "Window of the rates that autoscaling reads, seconds.",
        default=60,
    )
    relist_interval_s: int = whole(
        1,
        3600,
        "a series that is scraped less often than the adapter lists series comes and goes",
        "Time between two listings of series by prometheus-adapter, seconds.",
        default=30,
    )
    retention_days: int = whole(
        1, RETENTION_MAX_DAYS, "series need room", "How long Prometheus keeps series, days.", default=15
    )
    storage: PrometheusStorage | None = setting(
        "without a disk of its own Prometheus forgets with its pod",
        "The disk of Prometheus. Left out: none, series go with the pod.",
        default=None,
    )
    prometheus_memory_mib: int = whole(
        256,
        2**20,
        "Prometheus holds the newest series in memory, and is ended when it needs more than its limit",
        "Memory of Prometheus, MiB: what it asks for, and its limit.",
        default=2048,
    )
    node_selector: Mapping[LabelKey, LabelValue] = setting(
        "they are labels of nodes",
        "Labels of the nodes that monitoring runs on, and the master of node feature discovery; exporters run on all.",
        derived="with `cluster.source: eks` the system nodes', else none",
        default={},
        max_length=32,
    )
    tolerations: tuple[Taint, ...] = setting(
        "they are taints of nodes",
        "Taints that the pods on those nodes tolerate, where the nodes have some.",
        default=(),
        max_length=16,
    )
    grafana: bool = setting("it shows the dashboards", "Whether Grafana is installed.", default=True, strict=True)
    grafana_password: Secret | None = setting(
        "whoever knows it may change dashboards",
        "Password of Grafana's user admin.",
        derived="made by the chart, in the Secret `<release>-grafana`",
        default=None,
    )


class SlackReceiver(Model):
    """A channel of Slack."""

    name: DnsLabel = setting("routes name it", "Name of the receiver.")
    kind: Literal["slack"] = setting("these are the kinds of receivers", "How it is told: by Slack.")
    api_url: SecretUrl = setting("alerts are sent there", "Incoming webhook of Slack.")
    channel: Channel = setting("messages go there", "Channel.")


class PagerdutyReceiver(Model):
    """A service of PagerDuty."""

    name: DnsLabel = setting("routes name it", "Name of the receiver.")
    kind: Literal["pagerduty"] = setting("these are the kinds of receivers", "How it is told: by PagerDuty.")
    routing_key: Secret = setting("it names the service", "Integration key of the Events API v2.")


class EmailReceiver(Model):
    """A mail address."""

    name: DnsLabel = setting("routes name it", "Name of the receiver.")
    kind: Literal["email"] = setting("these are the kinds of receivers", "How it is told: by mail.")
    to: MailAddress = setting("mail goes there", "Address that mail goes to.")
    sender: MailAddress = setting("mail comes from there", "Address that mail comes from.")
    smarthost: HostPort = setting("mail is handed to that server", "Server that takes mail.")
    username: OneLine | None = setting("most servers take mail from users only", "User at that server.", default=None)
    password: Secret | None = setting("it is the user's", "Password of that user.", default=None)


class WebhookReceiver(Model):
    """Any program that takes Alertmanager's webhook."""

    name: DnsLabel = setting("routes name it", "Name of the receiver.")
    kind: Literal["webhook"] = setting("these are the kinds of receivers", "How it is told: by a webhook.")
    url: SecretUrl = setting("alerts are posted there", "URL that alerts are posted to.")


Receiver = Annotated[
    Annotated[SlackReceiver, Tag("slack")]
    | Annotated[PagerdutyReceiver, Tag("pagerduty")]
    | Annotated[EmailReceiver, Tag("email")]
    | Annotated[WebhookReceiver, Tag("webhook")],
    by("kind"),
    Choice("kind", ("kind slack", "kind pagerduty", "kind email", "kind webhook")),
]


class Route(Model):
    """Who hears of the alerts of an environment."""

    environment: Environment = setting(
        "an alert goes where its environment's label says, or nowhere", "Environment of the alerts."
    )
    namespace: DnsLabel = setting(
        "an alert goes where its namespace says, exactly, or nowhere",
        "Serving namespace of the alerts, exactly.",
        derived="`triton-<environment>`",
    )
    severities: tuple[Severity, ...] = setting(
        "alerts have one of these",
        "Severities that are told.",
        default=("critical", "warning"),
        min_length=1,
        max_length=3,
    )
    receivers: tuple[DnsLabel, ...] = setting(
        "each is the name of one of `alerts.receivers`", "Receivers that are told.", min_length=1, max_length=16
    )

    @model_validator(mode="before")
    @classmethod
    def _namespace_default(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "namespace" in data:
            return data
        given = data.get("environment")
        environment = given if isinstance(given, str) and given in get_args(Environment) else UNNAMED
        return {**data, "namespace": names.namespace(environment)}


class Alerts(Model):
    """Who hears of alerts. Nobody does who is not named here."""

    receivers: tuple[Receiver, ...] = setting("alerts go to them", "Who can be told.", default=(), max_length=64)
    routes: tuple[Route, ...] = setting(
        "each environment's alerts go to its own receivers",
        "Who is told what.",
        derived="with receivers, one route of the stack's own environment and namespace to all of them",
        default=(),
        max_length=64,
    )
    dead_mans_switch: SecretUrl | None = setting(
        "who hears nothing cannot tell silence from a dead Alertmanager",
        "URL that hears every minute that alerts work, and raises the alarm itself when it does not.",
        default=None,
    )
    group_wait_s: int = whole(
        0,
        3600,
        "alerts of one cause come together",
        "How long the first message of a group waits for more, seconds.",
        default=30,
    )
    repeat_interval_minutes: int = whole(
        5,
        REPEAT_MAX_MINUTES,
        "what is not mended is told again, and Alertmanager forgets after five days that it told",
        "Time until a message is repeated, minutes.",
        default=240,
    )


class Slo(Model):
    """What the users of a model are promised."""

    latency_ms: int = whole(
        1, 3600_000, "an answer later than that breaks the promise", "Longest mean time of a request, ms.", default=2000
    )
    availability: float = setting(
        "the part of requests that succeed; 1 leaves no error to spend, and no burn rate",
        "Part of the requests that must succeed.",
        ge=0.5,
        le=0.99999,
        strict=True,
        default=0.999,
    )
