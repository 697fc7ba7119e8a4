"""Preflight of who hears of alerts (field reports B13 and B48)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from fleet import preflight, preflight_observe, settings
from fleet.faults import Fault, Refused
from fleet.preflight import Draft
from tests.unit.test_alert_routing import HOOK, MAIL, PAGER, SLACK, SWITCH
from tests.unit.test_alert_routing import settings as made

if TYPE_CHECKING:
    from pathlib import Path

Raw = dict[str, Any]


def route(*receivers: str, environment: str = "dev", **more: object) -> Raw:
    return {"environment": environment, "receivers": list(receivers), **more}


UNKNOWN = "Alertmanager refuses a configuration that names a receiver it does not know"
USER = "the mail server is told both at once, and mail would fail only when there is something to tell"
REFUSED = [
    pytest.param({}, [], id="nobody"),
    pytest.param({"receivers": [SLACK, PAGER, MAIL, HOOK], "dead_mans_switch": SWITCH}, [], id="everybody"),
    pytest.param(
        {
            "receivers": [SLACK, PAGER],
            "routes": [
                route("pager", severities=["critical"]),
                route("chat", severities=["warning", "info"]),
                route("chat", environment="prod"),
                route("chat", namespace="team-x"),
            ],
        },
        [],
        id="routes apart by severity, environment or namespace",
    ),
    pytest.param(
        {"receivers": [{**HOOK, "name": "null"}, {**HOOK, "name": "dead-mans-switch"}]},
        [
            Fault(
                f"alerts.receivers[{index}].name",
                repr(name),
                "a name other than dead-mans-switch and null",
                "the program has receivers of these names: one that tells nobody, one for the sign of life",
                "choose another name",
            )
            for index, name in enumerate(("null", "dead-mans-switch"))
        ],
        id="names of the program's own",
    ),
    pytest.param(
        {"receivers": [HOOK, SLACK, {**PAGER, "name": "ops-webhook"}]},
        [
            Fault(
                "alerts.receivers[2].name",
                "'ops-webhook'",
                "a name of its own",
                "alerts.receivers[0] has that name, and routes find a receiver by it",
                "rename one of the two",
            )
        ],
        id="two of one name",
    ),
    pytest.param(
        {"receivers": [SLACK, HOOK], "routes": [route("chatt", "ops-webhook", "nobody")]},
        [
            Fault(
                "alerts.routes[0].receivers[0]", "'chatt'", "one of chat, ops-webhook", UNKNOWN, "did you mean 'chat'?"
            ),
            Fault(
                "alerts.routes[0].receivers[2]",
                "'nobody'",
                "one of chat, ops-webhook",
                UNKNOWN,
                "add the receiver to alerts.receivers, or name one of them",
            ),
        ],
        id="receivers that are not there",
    ),
    pytest.param(
        {"routes": [route("chat")]},
        [
            Fault(
                "alerts.routes[0].receivers[0]",
                "'chat'",
                "the name of a receiver of alerts.receivers; there is none",
                UNKNOWN,
                "add the receiver to alerts.receivers, or name one of them",
            )
        ],
        id="no receivers at all",
    ),
    pytest.param(
        {"receivers": [SLACK], "routes": [route("null")]},
        [
            Fault(
                "alerts.routes[0].receivers[0]",
                "'null'",
                "one of chat",
                UNKNOWN,
                "add the receiver to alerts.receivers, or name one of them",
            )
        ],
        id="the null receiver is not for routes",
    ),
    pytest.param(
        {"receivers": [SLACK], "routes": [route("chat", "chat")]},
        [
            Fault(
                "alerts.routes[0].receivers[1]",
                "'chat'",
                "each receiver once",
                "it would be told everything twice",
                "remove one of the two",
            )
        ],
        id="a receiver twice",
    ),
    pytest.param(
        {
            "receivers": [SLACK, PAGER],
            "routes": [
                route("chat"),
                route("pager", severities=["critical", "info"]),
                route("pager", namespace="triton-dev", severities=["info", "warning", "critical"]),
            ],
        },
        [
            Fault(
                f"alerts.routes[{index}]",
                f"dev/triton-dev, {twice}",
                "an environment, namespace and severity that no other route takes",
                f"alerts.routes[{other}] takes these alerts, and an alert goes by one route alone",
                "put the receivers of both into one route, or part them by severities",
            )
            for index, twice, other in ((1, "critical", 0), (2, "info, warning, critical", 1))
        ],
        id="routes of the same alerts",
    ),
    pytest.param(
        {"receivers": [{**MAIL, "password": None}, {**MAIL, "name": "mail2", "username": None}]},
        [
            Fault(
                "alerts.receivers[0].password",
                "nothing",
                "both username and password, or neither; username is given",
                USER,
                "add password, or remove username",
            ),
            Fault(
                "alerts.receivers[1].username",
                "nothing",
                "both username and password, or neither; password is given",
                USER,
                "add username, or remove password",
            ),
        ],
        id="half a user of mail",
    ),
]


@pytest.mark.parametrize(("alerts", "expected"), REFUSED)
def test_refusals(alerts: Raw, expected: list[Fault]) -> None:
    assert list(preflight_observe.refusals(Draft.of(made(**alerts)))) == expected


def test_without_an_alertmanager_of_its_own_nobody_can_be_told() -> None:
    stack = made(receivers=[HOOK], routes=[route("ops-webhook")], dead_mans_switch=SWITCH)
    foreign = stack.model_copy(
        update={"monitoring": stack.monitoring.model_copy(update={"kube_prometheus_stack": False})}
    )
    assert list(preflight_observe.refusals(Draft.of(foreign))) == [
        Fault(
            f"alerts.{name}",
            "given",
            "nothing, where monitoring.kube_prometheus_stack is false",
            "the Alertmanager of this cluster is another's, and this stack does not change its configuration: nobody "
            "would hear",
            "configure it in the stack that installs kube-prometheus-stack, with a route of this environment and "
            "namespace",
        )
        for name in ("receivers", "routes", "dead_mans_switch")
    ]
    assert list(preflight_observe.warnings(Draft.of(foreign))) == []


UNHEARD = (
    "the alerts of this very stack carry these, and no route takes them: nobody hears",
    "add such a route, or leave routes out for one to all receivers",
)
WARNED = [
    pytest.param({}, [], id="nobody is told, as the default is"),
    pytest.param({"receivers": [SLACK]}, [], id="the default route"),
    pytest.param({"receivers": [SLACK], "routes": [route("chat")]}, [], id="its own environment"),
    pytest.param(
        {"receivers": [SLACK, PAGER], "routes": [route("chat")]},
        [
            Fault(
                "alerts.receivers[1].name",
                "'pager'",
                "a receiver that one of alerts.routes names",
                "with routes given, nobody hears who is in none of them",
                "name it in a route, or remove it",
            )
        ],
        id="a receiver in no route",
    ),
    pytest.param(
        {"receivers": [SLACK], "serving": {"namespace": "team-x"}, "routes": [route("chat")]},
        [Fault("alerts.routes", "dev/triton-dev", "a route of environment dev and namespace team-x", *UNHEARD)],
        id="the stack's namespace has another name",
    ),
    pytest.param(
        {"receivers": [SLACK], "routes": [route("chat"), route("chat", environment="prod")]},
        [
            Fault(
                "alerts.routes[1].environment",
                "prod",
                "dev, the stack's own",
                "alerts of prod come here only from a stack of prod in the same cluster whose "
                "monitoring.kube_prometheus_stack is false",
                "move the route to the stack of prod, unless the two share this Alertmanager",
            )
        ],
        id="a route of another environment",
    ),
]


@pytest.mark.parametrize(("alerts", "expected"), WARNED)
def test_warnings(alerts: Raw, expected: list[Fault]) -> None:
    assert list(preflight_observe.warnings(Draft.of(made(**alerts)))) == expected


def test_all_faults_come_at_once_and_no_secret_with_them(project: Path, config: dict[str, object]) -> None:
    """What could be read is judged although something beside it could not."""
    broken = {**SLACK, "name": "Chat", "channel": "two words"}
    alerts = {
        "receivers": [broken, HOOK, {**PAGER, "name": "ops-webhook"}],
        "routes": [route("pagr"), {"environment": "x"}],
    }
    with pytest.raises(Refused) as refused:
        settings.load({**config, "alerts": alerts}, project)
    assert [fault.setting for fault in refused.value.faults] == [
        "alerts.receivers[0].name",
        "alerts.receivers[0].channel",
        "alerts.routes[1].environment",
        "alerts.routes[1].receivers",
        "alerts.receivers[2].name",
        "alerts.routes[0].receivers[0]",
    ]
    assert "canary" not in str(refused.value)


def test_the_program_asks(project: Path, config: dict[str, object]) -> None:
    stack = settings.load({**config, "alerts": {"receivers": [HOOK, HOOK], "routes": [route("ops-webhook")]}}, project)
    verdict = preflight.check(stack, project)
    assert [fault.setting for fault in verdict.refusals] == ["alerts.receivers[1].name"]
    assert "alerts.routes" in [fault.setting for fault in verdict.warnings]


def test_secrets_that_anybody_can_read_are_told() -> None:
    """Field report B43; the value itself is not shown."""
    stack = made(receivers=[SLACK, PAGER, MAIL, HOOK], dead_mans_switch=SWITCH)
    password = stack.monitoring.model_copy(update={"grafana_password": SecretStr("canary")})
    stack = stack.model_copy(update={"monitoring": password})
    places = [
        "alerts.receivers[0].api_url",
        "alerts.receivers[1].routing_key",
        "alerts.receivers[2].password",
        "alerts.receivers[3].url",
        "alerts.dead_mans_switch",
        "monitoring.grafana_password",
    ]
    told = list(preflight_observe.readable(stack, ()))
    assert told == [
        Fault(
            place,
            "readable in the stack file",
            "an encrypted value",
            "whoever reads the repository can use it",
            f"replace it, and run `pulumi config set --secret --path 'triton-fleet:{place}'`",
        )
        for place in places
    ]
    assert [fault.setting for fault in preflight_observe.readable(stack, {"alerts"})] == places[-1:]
    assert [fault.setting for fault in preflight_observe.readable(stack, places[1:])] == places[:1]
    assert list(preflight_observe.readable(stack, {"alerts", "monitoring"})) == []
    assert list(preflight_observe.readable(stack.model_copy(update={"environment": "local"}), ())) == []
    assert list(preflight_observe.readable(made(), ())) == []
