"""Every series and label that rules, alerts, dashboards and the adapter name exists in a scrape whose source is named:
design section 5 item 2. The scrapes of Triton and of what observes it are real; the end-to-end tests compare them with
live ones.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from fleet import alerts, dashboards, recording, settings
from tests import scrapes
from tests.promql import Reads, Selector, reads
from tests.scrapes import Family
from tests.unit.graph import stack_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FREE = {"environment", "namespace", "pod", "exported_namespace", "exported_pod", "sku", "deployed_model", "deployment"}
FREE |= {
    "job",
    "modelName",
    "rule_group",
    "horizontalpodautoscaler",
    "container",
    "configmap",
    "name",
    "node_group",
    "alertname",
}
"""Labels whose values are the stack's own names, which no scrape of another stack can have."""

ALERTS = {"alertstate": {"pending", "firing"}, "severity": {"critical", "warning", "info"}}
"""Of the series that Prometheus makes of alerts itself."""


def every(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]


def of_rules(project: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for stack in ("local", "dev", "prod"):
        stack_settings = settings.load(stack_config(project, stack), project)
        found[stack] = every(recording.rules(stack_settings)) + every(alerts.rules(stack_settings))
    return found


def known(project: Path) -> dict[str, Family]:
    """What is scraped, and what is recorded of it: with the labels that it is grouped by, or those of its sources."""
    found = scrapes.recorded(project)
    found["ALERTS"] = Family({label: set() for label in FREE} | ALERTS)
    for rule in of_rules(project)["local"]:
        if "record" in rule:
            read = reads(rule["expr"])
            kept = [found[selector.metric].labels.keys() for selector in read.selectors if selector.metric in found]
            labels = (read.grouped or frozenset().union(*kept)) | rule.get("labels", {}).keys()
            family = found.setdefault(rule["record"], Family())
            for label in labels:
                family.labels.setdefault(label, set())
    return found


def unknown(read: Reads, series: Mapping[str, Family]) -> list[str]:
    """What of an expression no scrape has."""
    missing = []
    available = set(read.made)
    for selector in read.selectors:
        if selector.metric not in series:
            missing.append(selector.metric)
            continue
        labels = series[selector.metric].labels
        available |= labels.keys()
        missing += [f"{selector.metric}: {text}" for text in _unknown_matchers(selector, labels)]
    return missing + [f"label {label}" for label in sorted(read.grouped - available)]


def _unknown_matchers(selector: Selector, labels: Mapping[str, set[str]]) -> list[str]:
    missing = []
    for label, how, value in selector.matchers:
        if label not in labels:
            missing.append(label)
        elif label not in FREE and "$" not in value:
            pattern = value if "~" in how else re.escape(value)
            if not any(re.fullmatch(pattern, seen) for seen in labels[label]):
                missing.append(f"{label}{how}{value}")
    return missing


@pytest.mark.parametrize("stack", ["local", "dev", "prod"])
def test_rules_read_what_is_scraped(project: Path, stack: str) -> None:
    series = known(project)
    rules = of_rules(project)[stack]
    assert len(rules) > 40
    faults = {
        rule.get("record") or rule["alert"]: found for rule in rules if (found := unknown(reads(rule["expr"]), series))
    }
    assert faults == {}


def test_dashboards_read_what_is_scraped(project: Path) -> None:
    series = known(project)
    faults = {
        (dashboard.title, panel): found
        for dashboard in dashboards.DASHBOARDS
        for panel, expr in dashboards.expressions(dashboard)
        if (found := unknown(reads(expr), series))
    }
    assert faults == {}


@pytest.mark.parametrize(
    ("expr", "missing"),
    [
        ("rate(nv_inference_request_success[1m])", []),
        ("rate(nv_inference_requests[1m])", ["nv_inference_requests"]),
        ('nv_inference_request_failure{reason="BACKEND"}', []),
        ('nv_inference_request_failure{reason="GREMLINS"}', ["nv_inference_request_failure: reason=GREMLINS"]),
        ('nv_inference_request_success{reason="BACKEND"}', ["nv_inference_request_success: reason"]),
        ("sum by (sku) (nv_inference_request_success)", []),
        ("sum by (colour) (nv_inference_request_success)", ["label colour"]),
        ('max by (x) (label_replace(up, "x", "$1", "pod", "(.*)"))', []),
        ("up offset 5m unless on (pod, node) triton:queue_compute:ratio > bool 1", ["label node"]),
        ("up / ignoring (tier) up", ["label tier"]),
        ("3 * scalar(count(up))", []),
    ],
)
def test_what_is_not_there_is_found(project: Path, expr: str, missing: list[str]) -> None:
    assert unknown(reads(expr), known(project)) == missing


def test_each_scrape_says_where_it_is_from(project: Path) -> None:
    files = {path.relative_to(project).as_posix() for path in (project / "tests" / "data" / "scrapes").glob("*.txt")}
    assert files == {name for name in scrapes.SOURCES if name.startswith("tests/data")}
    for name in scrapes.SOURCES:
        first = (project / name).read_text().splitlines()[0]
        assert re.match(r"# (Recorded \d{4}-\d\d-\d\d from |Written \d{4}-\d\d-\d\d after |A scrape of )", first), name
