"""What a running Alertmanager says of its configuration, judged as verification judges it."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from fleet import alert_routing
from fleet import verification_observe as observe
from tests.rules.test_routing import DEV_AND_PROD, _alertmanager
from tests.unit.test_alert_routing import HOOK, MAIL, PAGER, SLACK, SWITCH, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Raw = dict[str, Any]
EVERY_KIND: Raw = {
    "receivers": [SLACK, PAGER, MAIL, HOOK],
    "dead_mans_switch": SWITCH,
    "group_wait_s": 90,
    "repeat_interval_minutes": 1500,
}


def drop_a_route(config: Raw) -> None:
    config["route"]["routes"].pop()


def tell_everybody(config: Raw) -> None:
    config["route"]["receiver"] = HOOK["name"]


def widen_a_route(config: Raw) -> None:
    config["route"]["routes"][-1]["matchers"].pop()


def tell_of_what_ended(config: Raw) -> None:
    config["receivers"][-1]["webhook_configs"][0]["send_resolved"] ^= True


@pytest.mark.parametrize(
    ("alerts", "change", "said"),
    [
        pytest.param({}, None, "as configured, 1 receivers", id="nobody"),
        pytest.param(DEV_AND_PROD, None, "as configured, 4 receivers", id="two environments"),
        pytest.param(EVERY_KIND, None, "as configured, 6 receivers", id="every kind"),
        pytest.param(EVERY_KIND, drop_a_route, "route.routes has 5 entries, not 6", id="a route less"),
        pytest.param(EVERY_KIND, tell_everybody, "what no route names goes to 'ops-webhook'", id="the root tells"),
        pytest.param(EVERY_KIND, widen_a_route, "route.routes[5].matchers is", id="a matcher less"),
        pytest.param(
            EVERY_KIND, tell_of_what_ended, "receiver 'ops-webhook' webhook_configs[0].send_resolved", id="how"
        ),
    ],
)
def test_what_alertmanager_says_of_our_configuration(
    tool: Callable[[str], str], tmp_path: Path, alerts: Raw, change: Callable[[Raw], None] | None, said: str
) -> None:
    made = settings(**alerts)
    plan = observe.monitoring_plan(made)
    (question,) = [one for one in observe.questions(plan) if one.name == "monitoring/alertmanager"]
    running = json.loads(json.dumps(alert_routing.config(made)))
    if change is not None:
        change(running)
    with (
        _alertmanager(tool("alertmanager"), tmp_path, running) as url,
        urllib.request.urlopen(f"{url}/status", timeout=5) as answer,  # noqa: S310 - of this test
    ):
        status = json.load(answer)
    verdict = observe.judged(question, [status], [])
    assert (verdict.ok, said in verdict.reason) == (change is None, True), verdict.reason
