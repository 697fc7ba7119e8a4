"""Who hears of which alert: Alertmanager's configuration, and the secrets that it reads from files.

The root route goes to a receiver that tells nobody, and an alert leaves it only by a route that names its environment,
its namespace and its severity exactly. Secrets stand in files, never in the configuration: that one is a Helm value.

https://prometheus.io/docs/alerting/latest/configuration/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fleet.alert_names import Alert
from fleet.schema_observe import EmailReceiver, PagerdutyReceiver, Route, SlackReceiver, WebhookReceiver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pydantic import SecretStr

    from fleet.schema import Settings
    from fleet.schema_observe import Alerts, Receiver

NULL: Final = "null"
"""The receiver that tells nobody, and where an alert ends that no route takes. A text: YAML's null is no name."""
DEAD_MANS_SWITCH: Final = "dead-mans-switch"
RESERVED: Final = frozenset({NULL, DEAD_MANS_SWITCH})
"""Names of receivers that are not for settings."""

SECRET: Final = "triton-fleet-receivers"  # noqa: S105 - the name of a Secret
"""The Secret in the namespace of monitoring that holds what `secrets` says, a key for each file."""
SECRETS_FOLDER: Final = "/etc/alertmanager/secrets"
"""Where the operator mounts each Secret of `alertmanagerSpec.secrets`, in a folder of its name:
https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.AlertmanagerSpec"""
ALERTMANAGER_MIN: Final = "v0.28.1"
"""The oldest Alertmanager that this configuration is for. A webhook's `url_file` came with 0.26, the last of the file
keys used here; but until 0.28 such a webhook ends Alertmanager when it answers anything but success:
https://github.com/prometheus/alertmanager/pull/3800. The chart set `guide` has 0.27 by itself."""
RETENTION: Final = "120h"
"""How long Alertmanager remembers what it told, by default. `repeat_interval_minutes` stays below it."""

WATCHDOG: Final = "Watchdog"
INFO_INHIBITOR: Final = "InfoInhibitor"
"""Alerts of the chart's own rules: the one fires always, the other beside alerts of severity info."""

RESOLVE_TIMEOUT: Final = "5m"
"""Prometheus says when an alert ends; this is for alerts of others, which may not."""
GROUP_INTERVAL: Final = "2m"
"""At most this long until what changed in a group is told."""
GROUP_BY: Final = ("environment", "namespace", "alertname")
"""One message for one thing that is wrong in one place, of however many models and pods."""
SWITCH_INTERVAL: Final = "30s"
SWITCH_REPEAT: Final = "50s"
"""A group is looked at each `SWITCH_INTERVAL`, and told again if the last time was longer ago than this. The last time
is noted a little after the look, so 60 s would make it every 90 s; 50 s makes it every minute."""

TITLE: Final = (
    "{{ .CommonLabels.environment }}/{{ .CommonLabels.namespace }}: {{ .CommonLabels.alertname }} is {{ .Status }}"
    "{{ with .CommonLabels.severity }} ({{ . }}){{ end }}"
)
TEXT: Final = (
    "{{ range $number, $alert := .Alerts }}{{ if $number }}\n\n{{ end }}"
    "{{ .Annotations.summary }} ({{ .Status }})"
    "{{ with .Annotations.description }}\n{{ . }}{{ end }}"
    "{{ with .Annotations.runbook_url }}\nWhat to do: {{ . }}{{ end }}{{ end }}"
)
RUNBOOK: Final = "{{ .CommonAnnotations.runbook_url }}"


class Cause(NamedTuple):
    """An alert that explains others: while it fires, `symptoms` with the same labels `equal` are not told."""

    alert: Alert
    symptoms: tuple[Alert, ...]
    equal: tuple[str, ...]


_MODEL: Final = ("environment", "namespace", "model")
_SKU: Final = (*_MODEL, "sku")
CAUSES: Final = (
    Cause(
        Alert.MODEL_DOWN,
        (Alert.REPLICAS_UNAVAILABLE, Alert.POD_NOT_READY, Alert.SERIES_ABSENT, Alert.LATENCY_HIGH),
        _MODEL,
    ),
    Cause(Alert.HUNG, (Alert.LATENCY_HIGH,), _SKU),
    Cause(Alert.QUEUE_GROWING, (Alert.LATENCY_HIGH,), _SKU),
    Cause(Alert.TARGET_DOWN, (Alert.SERIES_ABSENT,), _SKU),
    Cause(Alert.NODE_NOT_READY, (Alert.REPLICAS_UNAVAILABLE, Alert.POD_NOT_READY), _SKU),
    Cause(Alert.LOAD_SLOW, (Alert.RESTARTED,), _SKU),
    Cause(Alert.NODE_GROUP_AT_MAXIMUM, (Alert.REPLICAS_UNAVAILABLE,), ("environment", "namespace", "sku")),
    Cause(Alert.BURN_FAST, (Alert.BURN_SLOW, Alert.ERRORS_HIGH), _MODEL),
)
"""Each is a label of both, or the rule does nothing: where one alone has it, they are never equal."""


def config(settings: Settings) -> dict[str, Any]:
    """Alertmanager's whole configuration. It names every key that the chart has a default for: Helm merges maps."""
    alerts = settings.alerts
    switch = alerts.dead_mans_switch is not None
    return {
        "global": {"resolve_timeout": RESOLVE_TIMEOUT},
        "route": {
            "receiver": NULL,
            "group_by": list(GROUP_BY),
            "group_wait": f"{alerts.group_wait_s}s",
            "group_interval": GROUP_INTERVAL,
            "repeat_interval": f"{alerts.repeat_interval_minutes}m",
            "routes": [
                _watchdog(told=switch),
                {"matchers": [_equals("alertname", INFO_INHIBITOR)], "receiver": NULL},
                *(one for route in routes(settings) for one in _route(route)),
            ],
        },
        "inhibit_rules": inhibitions(),
        "receivers": [
            {"name": NULL},
            *([_switch()] if switch else []),
            *(_receiver(receiver) for receiver in alerts.receivers),
        ],
        "templates": [],
    }


def routes(settings: Settings) -> tuple[Route, ...]:
    """The routes that hold: those of the settings, or the stack's own environment to every receiver."""
    alerts = settings.alerts
    if alerts.routes or not alerts.receivers:
        return alerts.routes
    everybody = tuple(receiver.name for receiver in alerts.receivers)
    return (Route(environment=settings.environment, namespace=settings.serving.namespace, receivers=everybody),)


def secrets(settings: Settings) -> dict[str, SecretStr]:
    """The content of each file that the configuration names, by the file's name."""
    return dict(_secrets(settings.alerts))


def path(file: str) -> str:
    """Where Alertmanager finds one of these files."""
    return f"{SECRETS_FOLDER}/{SECRET}/{file}"


def inhibitions() -> list[dict[str, Any]]:
    """What is not told while something else is: the lower severity of the same thing, and symptoms of known causes.

    The chart's own rule for `InfoInhibitor` is left out. With it alerts of severity info would stay silent unless
    something worse is wrong, and who routes them here has asked for them.
    """
    same = ["environment", "namespace", "alertname", "model", "sku"]
    return [
        _inhibition([_equals("severity", "critical")], [_one_of("severity", ("warning", "info"))], same),
        _inhibition([_equals("severity", "warning")], [_equals("severity", "info")], same),
        *(
            _inhibition([_equals("alertname", cause.alert)], [_one_of("alertname", cause.symptoms)], [*cause.equal])
            for cause in CAUSES
        ),
    ]


def _inhibition(source: list[str], target: list[str], equal: list[str]) -> dict[str, Any]:
    return {"source_matchers": source, "target_matchers": target, "equal": equal}


def _equals(label: str, value: str) -> str:
    """A matcher of one value. Values here are names of Kubernetes or of this program, and need no escape."""
    return f'{label}="{value}"'


def _one_of(label: str, values: Sequence[str]) -> str:
    """A matcher of several values; Alertmanager anchors the expression at both ends."""
    return _equals(label, values[0]) if len(values) == 1 else f'{label}=~"{"|".join(values)}"'


def _watchdog(*, told: bool) -> dict[str, Any]:
    matchers = [_equals("alertname", WATCHDOG)]
    if not told:
        return {"matchers": matchers, "receiver": NULL}
    return {
        "matchers": matchers,
        "receiver": DEAD_MANS_SWITCH,
        "group_wait": "0s",
        "group_interval": SWITCH_INTERVAL,
        "repeat_interval": SWITCH_REPEAT,
    }


def _route(route: Route) -> Iterator[dict[str, Any]]:
    """One for each receiver. All but the last let the alert go on, to the next of the same matchers."""
    matchers = [
        _equals("environment", route.environment),
        _equals("namespace", route.namespace),
        _one_of("severity", list(dict.fromkeys(route.severities))),
    ]
    *others, last = route.receivers
    for receiver in others:
        yield {"matchers": matchers, "receiver": receiver, "continue": True}
    yield {"matchers": matchers, "receiver": last}


def _secrets(alerts: Alerts) -> Iterator[tuple[str, SecretStr]]:
    if alerts.dead_mans_switch is not None:
        yield _file(DEAD_MANS_SWITCH, "url"), alerts.dead_mans_switch
    for receiver in alerts.receivers:
        match receiver:
            case SlackReceiver():
                yield _file(receiver.name, "api_url"), receiver.api_url
            case PagerdutyReceiver():
                yield _file(receiver.name, "routing_key"), receiver.routing_key
            case EmailReceiver(password=password):
                if password is not None:
                    yield _file(receiver.name, "password"), password
            case WebhookReceiver():
                yield _file(receiver.name, "url"), receiver.url


def _file(receiver: str, field: str) -> str:
    """A receiver's name has no dot, so no two of these are the same."""
    return f"{receiver}.{field}"


def _switch() -> dict[str, Any]:
    url = path(_file(DEAD_MANS_SWITCH, "url"))
    return {"name": DEAD_MANS_SWITCH, "webhook_configs": [{"url_file": url, "send_resolved": False}]}


def _receiver(receiver: Receiver) -> dict[str, Any]:
    kind, told = _integration(receiver)
    return {"name": receiver.name, f"{kind}_configs": [{**told, "send_resolved": True}]}


def _integration(receiver: Receiver) -> tuple[str, Mapping[str, Any]]:
    match receiver:
        case SlackReceiver():
            return "slack", {
                "api_url_file": path(_file(receiver.name, "api_url")),
                "channel": receiver.channel,
                "title": TITLE,
                "title_link": RUNBOOK,
                "text": TEXT,
            }
        case PagerdutyReceiver():
            return "pagerduty", {
                "routing_key_file": path(_file(receiver.name, "routing_key")),
                "description": TITLE,
                "severity": "{{ with .CommonLabels.severity }}{{ . }}{{ else }}critical{{ end }}",
                "class": "{{ .CommonLabels.alertname }}",
                "component": "{{ .CommonLabels.model }}",
                "group": "{{ .CommonLabels.namespace }}",
                "details": {"alerts": TEXT},
            }
        case EmailReceiver():
            user = {} if receiver.username is None else {"auth_username": receiver.username}
            if receiver.password is not None:
                user["auth_password_file"] = path(_file(receiver.name, "password"))
            return "email", {
                "to": receiver.to,
                "from": receiver.sender,
                "smarthost": receiver.smarthost,
                **user,
                "headers": {"Subject": TITLE},
                "text": TEXT,
                "html": "",
            }
        case WebhookReceiver():
            return "webhook", {"url_file": path(_file(receiver.name, "url"))}
