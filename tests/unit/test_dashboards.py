"""Dashboards: their form, what they refer to, and where they are put. tests/rules evaluates what they ask."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from fleet import dashboards
from fleet.alert_names import Alert
from fleet.alert_rule import runbook
from fleet.dashboards import DASHBOARDS
from fleet.dashboards.grafana import Column, Dashboard, Panel, Query, Row, Threshold, Variable, document
from tests import scrapes
from tests.unit.test_alert_routing import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fleet.settings import Settings

Raw = dict[str, Any]

CONFIG_MAP_MAX_BYTES = 1024 * 1024
"""https://kubernetes.io/docs/concepts/configuration/configmap/#motivation"""

COUNTED_ALTOGETHER = {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"}
"""A GPU has so many spare rows in its life."""

every = pytest.mark.parametrize("dashboard", [pytest.param(one, id=one.uid) for one in DASHBOARDS])


def panels(dashboard: Dashboard) -> Iterator[Panel]:
    for row in dashboard.rows:
        yield from row.panels


def test_a_dashboard_as_grafana_loads_it() -> None:
    """The whole document of a small one."""
    small = Dashboard(
        "uid",
        "Title",
        "What it is.",
        (
            Row(
                "First",
                (
                    Panel(
                        "Lines",
                        "Some.",
                        (Query('a{x=~"$x"}', "{{x}}"), Query("b", "most", dashed=True)),
                        "s",
                        width=16,
                        height=6,
                        thresholds=(Threshold(2, "red"),),
                    ),
                    Panel(
                        "Table",
                        "Some.",
                        (Query("c"), Query("d")),
                        "short",
                        "table",
                        columns=(Column("x", "X"), Column("B", "D", "s")),
                    ),
                ),
            ),
            Row("Second", (Panel("One", "A number.", (Query("e"),), "short", "stat", width=4, height=4),)),
        ),
        (Variable("x", "X", "x", "a"),),
    )
    made = document(small)
    assert [(one["id"], one["type"], one["title"], *one["gridPos"].values()) for one in made["panels"]] == [
        (1, "row", "First", 0, 0, 24, 1),
        (2, "timeseries", "Lines", 0, 1, 16, 6),
        (3, "table", "Table", 0, 7, 12, 8),
        (4, "row", "Second", 0, 15, 24, 1),
        (5, "stat", "One", 0, 16, 4, 4),
    ]
    lines, table = made["panels"][1], made["panels"][2]
    source = {"type": "prometheus", "uid": "prometheus"}
    assert [(one["refId"], one["expr"], one["legendFormat"], one["datasource"]) for one in lines["targets"]] == [
        ("A", 'a{x=~"$x"}', "{{x}}", source),
        ("B", "b", "most", source),
    ]
    assert lines["fieldConfig"]["defaults"]["unit"] == "s"
    assert lines["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"color": "green", "value": None},
        {"color": "red", "value": 2},
    ]
    assert [one["matcher"] for one in lines["fieldConfig"]["overrides"]] == [{"id": "byFrameRefID", "options": "B"}]
    assert [(one["format"], one["instant"]) for one in table["targets"]] == [("table", True), ("table", True)]
    assert table["transformations"][2]["options"] == {
        "excludeByName": {},
        "indexByName": {"x": 0, "Value #B": 1},
        "renameByName": {"x": "X", "Value #B": "D"},
    }
    (variable,) = made["templating"]["list"]
    assert (variable["name"], variable["query"]["query"], variable["allValue"]) == ("x", "label_values(a, x)", ".*")


def test_addresses_do_not_change() -> None:
    """People keep them, and other dashboards lead to them."""
    assert [one.uid for one in DASHBOARDS] == [
        "triton-fleet-overview",
        "triton-fleet-triton",
        "triton-fleet-gpus",
        "triton-fleet-autoscaling",
        "triton-fleet-alerts",
    ]


@every
def test_panels_have_ids_and_places_of_their_own(dashboard: Dashboard) -> None:
    made = document(dashboard)["panels"]
    assert [one["id"] for one in made] == list(range(1, len(made) + 1))
    for one, other in combinations((one["gridPos"] for one in made), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(place["x"] + place["w"] <= 24 for place in (one["gridPos"] for one in made))


@every
def test_what_a_dashboard_refers_to_exists(dashboard: Dashboard) -> None:
    declared = {variable.name for variable in dashboard.variables}
    used = {name for _, expr in dashboards.expressions(dashboard) for name in re.findall(r"\$([a-z_]\w*)", expr)} - {
        "__rate_interval"
    }
    assert used == declared
    addresses = {f"/d/{one.uid}" for one in DASHBOARDS} | {runbook(alert) for alert in Alert}
    assert {link.url for panel in panels(dashboard) for link in panel.links} <= addresses
    for panel in panels(dashboard):
        letters = {chr(ord("A") + index) for index in range(len(panel.queries))}
        assert {column.source for column in panel.columns if len(column.source) == 1} <= letters
        assert bool(panel.columns) == (panel.kind == "table")


@every
def test_every_panel_says_what_it_shows(dashboard: Dashboard) -> None:
    for panel in panels(dashboard):
        assert panel.description.endswith(".")
        assert panel.unit in {"short", "none", "s", "reqps", "percent", "percentunit", "celsius", "watt"}
        several = len(panel.queries) > 1 or panel.kind == "timeseries"
        named = panel.kind == "table" or not several or all(query.legend for query in panel.queries)
        assert named or [query.expr for query in panel.queries] == [], panel.title


def kinds(project: Path) -> dict[str, str]:
    """Of every series that is scraped, whether it is a counter or a gauge, as its scrape says."""
    texts = [(project / name).read_text() for name in scrapes.SOURCES]
    return dict(found for text in texts for found in re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))


@every
def test_rates_are_of_counters_and_levels_of_gauges(project: Path, dashboard: Dashboard) -> None:
    """The guide's dashboard had rates of TensorRT-LLM's gauges."""
    kind = kinds(project)
    for _, expr in dashboards.expressions(dashboard):
        rated = set(re.findall(r"(?:rate|increase)\((\w+)", expr))
        named = set(re.findall(r"\b(?:nv_|DCGM_|kube_|alertmanager_|prometheus_|cluster_)\w+", expr))
        assert {metric: kind[metric] for metric in rated} == dict.fromkeys(rated, "counter")
        assert {metric for metric in named - rated if kind[metric] == "counter"} <= COUNTED_ALTOGETHER


@every
def test_thresholds_are_of_the_unit(dashboard: Dashboard) -> None:
    """The guide's dashboard had thresholds of 70 to 95 on parts of one, which nothing ever reaches."""
    for panel in panels(dashboard):
        units = [(panel.unit, panel.thresholds), *((one.unit, one.thresholds) for one in panel.columns)]
        for unit, thresholds in units:
            values = [one.value for one in thresholds]
            assert values == sorted(set(values))
            assert unit != "percentunit" or all(0 < value <= 1 for value in values), panel.title


def test_every_alert_leads_from_a_panel_to_its_page_or_has_no_picture() -> None:
    shown = {link.url for one in DASHBOARDS for panel in panels(one) for link in panel.links}
    assert {alert for alert in Alert if runbook(alert) not in shown} == {
        Alert.POD_NOT_READY,  # the panel of replicas leads to the alert above it
        Alert.STATE_UNKNOWN,  # what it is about is what panels would be drawn from
        Alert.VERIFICATION_OLD,
        Alert.GPU_UNOBSERVED,
    }


@every
def test_the_files_for_import_are_these(project: Path, dashboard: Dashboard) -> None:
    """`python -m fleet.dashboards` writes them."""
    assert json.loads((project / dashboards.file(dashboard)).read_text()) == document(dashboard)
    assert (project / dashboards.file(dashboard)).read_text() == dashboards.text(dashboard)


def test_no_other_file_is_there(project: Path) -> None:
    assert {f"dashboards/{path.name}" for path in (project / "dashboards").iterdir()} == set(
        map(dashboards.file, DASHBOARDS)
    )


def observed(**monitoring: object) -> Settings:
    stack = settings(serving={"namespace": "team-x"})
    return stack.model_copy(update={"monitoring": stack.monitoring.model_copy(update=monitoring)})


@pytest.mark.parametrize(
    ("stack", "namespace"),
    [
        pytest.param(observed(), "monitoring", id="beside Grafana"),
        pytest.param(observed(namespace="obs"), "obs", id="wherever that is"),
        pytest.param(observed(kube_prometheus_stack=False), "team-x", id="another's Grafana"),
        pytest.param(observed(kube_prometheus_stack=False, grafana=False), "team-x", id="another's, Grafana unknown"),
        pytest.param(observed(grafana=False), None, id="no Grafana"),
    ],
)
def test_where_they_are_put(stack: Settings, namespace: str | None) -> None:
    made = dashboards.config_maps(stack)
    assert [(one["metadata"]["name"], one["metadata"]["namespace"]) for one in made] == (
        [(one.uid, namespace) for one in DASHBOARDS] if namespace else []
    )
    for one, dashboard in zip(made, DASHBOARDS, strict=bool(namespace)):
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        ((name, text),) = one["data"].items()
        assert (name, json.loads(text)) == (f"{dashboard.uid}.json", document(dashboard))
        assert len(text) < CONFIG_MAP_MAX_BYTES
