"""Alertmanager's configuration: who is told, what is never told, and that no secret stands in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fleet import alert_routing, alert_rule
from fleet.schema import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

Raw = dict[str, Any]
CANARY = "canary-0b43"
"""Part of every secret below (field report B43)."""

SLACK: Raw = {"name": "chat", "kind": "slack", "api_url": f"https://slack.invalid/{CANARY}", "channel": "#gpu"}
PAGER: Raw = {"name": "pager", "kind": "pagerduty", "routing_key": CANARY}
MAIL: Raw = {
    "name": "mail",
    "kind": "email",
    "to": "team@example.com",
    "sender": "fleet@example.com",
    "smarthost": "smtp.example.com:587",
    "username": "fleet",
    "password": CANARY,
}
HOOK: Raw = {"name": "ops-webhook", "kind": "webhook", "url": f"https://hooks.invalid/{CANARY}"}
SWITCH = f"https://alive.invalid/{CANARY}"


def settings(environment: str = "dev", serving: Raw | None = None, **alerts: object) -> Settings:
    return Settings.model_validate(
        {
            "environment": environment,
            "cluster": {"source": "kubeconfig", "kubeconfig": "kubeconfig"},
            **({"serving": serving} if serving else {}),
            "skus": [{"name": "cpu", "gpus_per_node": 0, "labels": {"kind": "cpu"}, "nodes": {"min": 0, "max": 2}}],
            "models": [
                {
                    "name": "minilm",
                    "version": 1,
                    "runtime": "python",
                    "placements": [{"sku": "cpu", "replicas": {"min": 1, "max": 2}}],
                }
            ],
            "images": {"triton": "t:1", "tools": "t:1"},
            "alerts": alerts,
        }
    )


WATCHDOG_UNHEARD = {"matchers": ['alertname="Watchdog"'], "receiver": "null"}
UNHEARD = {"matchers": ['alertname="InfoInhibitor"'], "receiver": "null"}
ROOT = {
    "receiver": "null",
    "group_by": ["environment", "namespace", "alertname"],
    "group_wait": "30s",
    "group_interval": "2m",
    "repeat_interval": "240m",
}


def test_a_cause_is_as_severe_as_its_symptoms() -> None:
    """Else who is told of what is critical alone hears of neither."""
    order = ("info", "warning", "critical")
    for cause in alert_routing.CAUSES:
        least = max(order.index(alert_rule.SEVERITIES[one]) for one in cause.symptoms)
        assert order.index(alert_rule.SEVERITIES[cause.alert]) >= least, cause.alert


def test_nobody_is_told_by_default() -> None:
    made = settings()
    config = alert_routing.config(made)
    assert config.pop("inhibit_rules") == alert_routing.inhibitions()
    assert (config, alert_routing.secrets(made)) == (
        {
            "global": {"resolve_timeout": "5m"},
            "route": {**ROOT, "routes": [WATCHDOG_UNHEARD, UNHEARD]},
            "receivers": [{"name": "null"}],
            "templates": [],
        },
        {},
    )


def to(receiver: str, environment: str, namespace: str, severity: str, **more: object) -> Raw:
    return {
        "matchers": [f'environment="{environment}"', f'namespace="{namespace}"', f"severity{severity}"],
        "receiver": receiver,
        **more,
    }


TWO = '=~"critical|warning"'
ROUTED = [
    pytest.param({"receivers": [HOOK]}, [to("ops-webhook", "dev", "triton-dev", TWO)], id="no routes: all are told"),
    pytest.param(
        {"receivers": [HOOK], "serving": {"namespace": "team-x"}},
        [to("ops-webhook", "dev", "team-x", TWO)],
        id="no routes: the stack's own namespace",
    ),
    pytest.param(
        {"receivers": [HOOK, PAGER]},
        [
            to("ops-webhook", "dev", "triton-dev", TWO, **{"continue": True}),
            to("pager", "dev", "triton-dev", TWO),
        ],
        id="no routes, two receivers",
    ),
    pytest.param(
        {"routes": [{"environment": "dev", "receivers": ["chat"]}], "receivers": [SLACK, PAGER]},
        [to("chat", "dev", "triton-dev", TWO)],
        id="a route, and one whom it does not name",
    ),
    pytest.param(
        {
            "receivers": [SLACK, PAGER],
            "routes": [
                {"environment": "dev", "severities": ["critical"], "receivers": ["pager", "chat"]},
                {"environment": "dev", "severities": ["warning", "info", "warning"], "receivers": ["chat"]},
                {"environment": "prod", "namespace": "team-y", "receivers": ["pager"]},
            ],
        },
        [
            to("pager", "dev", "triton-dev", '="critical"', **{"continue": True}),
            to("chat", "dev", "triton-dev", '="critical"'),
            to("chat", "dev", "triton-dev", '=~"warning|info"'),
            to("pager", "prod", "team-y", TWO),
        ],
        id="by severity and by environment",
    ),
]


@pytest.mark.parametrize(("given", "expected"), ROUTED)
def test_routes(given: Raw, expected: list[Raw]) -> None:
    routes = alert_routing.config(settings(**given))["route"]
    assert routes == {**ROOT, "routes": [WATCHDOG_UNHEARD, UNHEARD, *expected]}


def test_times_are_those_of_the_settings() -> None:
    route = alert_routing.config(settings(group_wait_s=0, repeat_interval_minutes=5))["route"]
    assert (route["group_wait"], route["group_interval"], route["repeat_interval"]) == ("0s", "2m", "5m")


def test_the_dead_mans_switch_is_told_every_minute() -> None:
    made = settings(dead_mans_switch=SWITCH)
    config = alert_routing.config(made)
    assert config["route"]["routes"] == [
        {
            "matchers": ['alertname="Watchdog"'],
            "receiver": "dead-mans-switch",
            "group_wait": "0s",
            "group_interval": "30s",
            "repeat_interval": "50s",
        },
        UNHEARD,
    ]
    file = "/etc/alertmanager/secrets/triton-fleet-receivers/dead-mans-switch.url"
    assert config["receivers"] == [
        {"name": "null"},
        {"name": "dead-mans-switch", "webhook_configs": [{"url_file": file, "send_resolved": False}]},
    ]
    assert {name: text.get_secret_value() for name, text in alert_routing.secrets(made).items()} == {
        "dead-mans-switch.url": SWITCH
    }


def test_receivers_and_their_files() -> None:
    made = settings(receivers=[SLACK, PAGER, MAIL, HOOK])
    folder = "/etc/alertmanager/secrets/triton-fleet-receivers"
    assert alert_routing.config(made)["receivers"] == [
        {"name": "null"},
        {
            "name": "chat",
            "slack_configs": [
                {
                    "api_url_file": f"{folder}/chat.api_url",
                    "channel": "#gpu",
                    "title": alert_routing.TITLE,
                    "title_link": "{{ .CommonAnnotations.runbook_url }}",
                    "text": alert_routing.TEXT,
                    "send_resolved": True,
                }
            ],
        },
        {
            "name": "pager",
            "pagerduty_configs": [
                {
                    "routing_key_file": f"{folder}/pager.routing_key",
                    "description": alert_routing.TITLE,
                    "severity": "{{ with .CommonLabels.severity }}{{ . }}{{ else }}critical{{ end }}",
                    "class": "{{ .CommonLabels.alertname }}",
                    "component": "{{ .CommonLabels.model }}",
                    "group": "{{ .CommonLabels.namespace }}",
                    "details": {"alerts": alert_routing.TEXT},
                    "send_resolved": True,
                }
            ],
        },
        {
            "name": "mail",
            "email_configs": [
                {
                    "to": "team@example.com",
                    "from": "fleet@example.com",
                    "smarthost": "smtp.example.com:587",
                    "auth_username": "fleet",
                    "auth_password_file": f"{folder}/mail.password",
                    "headers": {"Subject": alert_routing.TITLE},
                    "text": alert_routing.TEXT,
                    "html": "",
                    "send_resolved": True,
                }
            ],
        },
        {"name": "ops-webhook", "webhook_configs": [{"url_file": f"{folder}/ops-webhook.url", "send_resolved": True}]},
    ]
    assert {name: text.get_secret_value() for name, text in alert_routing.secrets(made).items()} == {
        "chat.api_url": SLACK["api_url"],
        "pager.routing_key": CANARY,
        "mail.password": CANARY,
        "ops-webhook.url": HOOK["url"],
    }


def test_mail_without_a_user() -> None:
    bare = {key: value for key, value in MAIL.items() if key not in ("username", "password")}
    made = settings(receivers=[bare])
    (told,) = alert_routing.config(made)["receivers"][1]["email_configs"]
    assert [key for key in told if key.startswith("auth")] == []
    assert alert_routing.secrets(made) == {}


def test_no_secret_stands_in_the_configuration() -> None:
    """Field report B43: the configuration is a Helm value, and those are shown in plans and kept in the state."""
    made = settings(receivers=[SLACK, PAGER, MAIL, HOOK], dead_mans_switch=SWITCH)
    files = alert_routing.secrets(made)
    config = json.dumps(alert_routing.config(made))
    assert CANARY not in config
    assert CANARY not in repr(files)
    assert all(CANARY in text.get_secret_value() for text in files.values())
    assert sorted(named_files(alert_routing.config(made))) == sorted(map(alert_routing.path, files))


def named_files(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from [one] if key.endswith("_file") else named_files(one)
    elif isinstance(value, list):
        for one in value:
            yield from named_files(one)
