"""The alerts and rules as objects, and the page of each alert. What they reckon is tests/rules'."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from fleet import alert_rule, alerts, monitoring, recording, scraping, settings
from fleet.alert_names import Alert
from tests.unit.graph import local_settings, stack_config

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings

STACKS = ("local", "dev", "prod")
SECTIONS = ["What it means", "What to look at", "What to do"]


def of_stack(project: Path, stack: str) -> Settings:
    return settings.load(stack_config(project, stack), project)


def every(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for group in manifest["spec"]["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("stack", STACKS)
def test_each_alert_says_what_a_person_needs(project: Path, stack: str) -> None:
    stack_settings = of_stack(project, stack)
    for rule in every(alerts.rules(stack_settings)):
        labels = {key: value for key, value in rule["labels"].items() if key != "model"}
        assert labels == {
            "severity": alert_rule.SEVERITIES[Alert(rule["alert"])],
            "environment": stack,
            "namespace": f"triton-{stack}",
        }
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"{alert_rule.RUNBOOKS}/{rule['alert']}.md"
        assert re.fullmatch(r"[0-9]+s", rule["for"])
        assert not re.search(r"\{\{(?! \$(labels\.\w+|value)( \| \w+)? \}\})", str(rule["annotations"]))


def test_the_alerts_of_a_stack(project: Path) -> None:
    common = {alert.value for alert in Alert} - {"NodeGroupAtMaximum"}
    gpus = {"GpuXidErrors", "GpuEccErrors", "GpuUnobserved"}

    def of(stack_settings: Settings) -> set[str]:
        return {rule["alert"] for rule in every(alerts.rules(stack_settings))}

    sku = {"name": "cpu", "nodes": {"min": 1, "max": 1}}
    model = local_settings(project).models[0].model_dump(include={"name", "version", "runtime"})
    placed = {**model, "placements": [{"sku": "cpu", "replicas": {"min": 1, "max": 1}}]}
    assert of(local_settings(project)) == common
    assert of(of_stack(project, "dev")) == of(of_stack(project, "prod")) == common | {"NodeGroupAtMaximum"}
    assert of(local_settings(project, skus=[sku], models=[placed])) == common - gpus
    assert of(local_settings(project, gpu_stack={"dcgm_exporter": False})) == common - {"GpuUnobserved"}


@pytest.mark.parametrize(("engine", "api"), [("prometheus-adapter", "custom"), ("keda", "external")])
def test_the_api_that_autoscalers_read_is_looked_at(project: Path, engine: str, api: str) -> None:
    found = every(alerts.rules(local_settings(project, autoscaling={"engine": engine})))
    (rule,) = [one for one in found if one["alert"] == "MetricsApiDown"]
    assert re.findall(r'name="([^"]*)"', rule["expr"]) == [f"v1beta1.{api}.metrics.k8s.io"]


def test_only_an_adapter_of_ours_is_looked_at(project: Path) -> None:
    def looked_at(**changes: Any) -> bool:  # noqa: ANN401 - settings as a stack file has them
        (rule,) = [
            one for one in every(alerts.rules(local_settings(project, **changes))) if one["alert"] == "MetricsApiDown"
        ]
        return "prometheus-adapter" in rule["expr"]

    assert looked_at()
    assert not looked_at(monitoring={"prometheus_adapter": False})
    assert not looked_at(autoscaling={"engine": "keda"})


def test_limits_are_what_was_promised(project: Path) -> None:
    """99 % leaves 1 %: 14.4 % and 6 % of an hour's and of six hours' requests, 1 % of three days'."""
    model = stack_config(project, "local")["models"][0]
    promised = local_settings(
        project, models=[{**model, "load_timeout_s": 900, "slo": {"latency_ms": 120_500, "availability": 0.99}}]
    )
    rules = {rule["alert"]: rule for rule in every(alerts.rules(promised))}
    assert rules["TritonLatencyHigh"]["expr"].endswith(" > 120.5")
    assert re.findall(r"> ([0-9.]+)", rules["TritonErrorBudgetBurnFast"]["expr"]) == ["0.144", "0.144", "0.06", "0.06"]
    assert re.findall(r"> ([0-9.]+)", rules["TritonErrorBudgetBurnSlow"]["expr"]) == ["0.01", "0.01"]
    # three times 121 s without an answer
    assert set(re.findall(r"(?:\[|offset )(\w+)", rules["TritonHung"]["expr"])) == {"363s"}
    # the load's time, and ten minutes for a node
    assert (rules["TritonReplicasUnavailable"]["for"], rules["TritonPodNotReady"]["for"]) == ("1500s", "900s")
    assert "> 720" in rules["TritonModelLoadSlow"]["expr"]


def test_each_alert_has_its_page_and_each_page_its_alert(project: Path) -> None:
    pages = {page.stem: page.read_text() for page in (project / "docs" / "runbooks").glob("*.md")}
    assert pages.keys() == {alert.value for alert in Alert} == {alert.value for alert in alert_rule.SEVERITIES}
    for name, text in pages.items():
        assert text.startswith(f"# {name}\n")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
        assert all(len(section.split()) > 10 for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])


def test_pages_name_series_that_are_recorded(project: Path) -> None:
    recorded = {rule["record"] for rule in every(recording.rules(local_settings(project)))}
    text = "".join(page.read_text() for page in (project / "docs" / "runbooks").glob("*.md"))
    named = set(re.findall(r"`(triton(?:_fleet)?:[a-z0-9_:]+)", text))
    assert named
    assert named - recorded == set()


@pytest.mark.parametrize("stack", STACKS)
def test_our_prometheus_takes_our_objects_b02(project: Path, stack: str) -> None:
    """Whatever the release is called: field report B02."""
    for release in ("prometheus", "mon2"):
        stack_settings = settings.load(
            {**stack_config(project, stack), "monitoring": {"release": release, "namespace": "obs"}}, project
        )
        selected = monitoring.monitor_labels(stack_settings.monitoring)
        assert selected == {"release": release}
        objects = [
            recording.rules(stack_settings),
            alerts.rules(stack_settings),
            scraping.pod_monitor(stack_settings),
            scraping.node_autoscaler_monitor(stack_settings),
        ]
        for manifest in objects:
            assert selected.items() <= manifest["metadata"]["labels"].items()
            assert manifest["apiVersion"] == "monitoring.coreos.com/v1"


def test_names_are_given_once(project: Path) -> None:
    groups = [
        group["name"]
        for manifest in (recording.rules(local_settings(project)), alerts.rules(local_settings(project)))
        for group in manifest["spec"]["groups"]
    ]
    assert len(groups) == len(set(groups))
    recorded = [
        (rule["record"], tuple(sorted(rule.get("labels", {}).items())))
        for rule in every(recording.rules(local_settings(project)))
    ]
    assert len(recorded) == len(set(recorded))


def test_what_is_scraped(project: Path) -> None:
    times = {"scrape_interval_s": 20, "rate_window_s": 80, "relist_interval_s": 60}
    manifest = scraping.pod_monitor(local_settings(project, monitoring=times))
    assert manifest["metadata"] == {
        "name": "triton",
        "namespace": "triton-local",
        "labels": {
            "app.kubernetes.io/name": "triton",
            "app.kubernetes.io/instance": "triton",
            "app.kubernetes.io/component": "monitoring",
            "app.kubernetes.io/part-of": "triton-fleet",
            "app.kubernetes.io/managed-by": "pulumi",
            "release": "prometheus",
        },
    }
    assert manifest["spec"] == {
        "selector": {"matchLabels": {"app.kubernetes.io/component": "triton"}},
        "podMetricsEndpoints": [
            {
                "port": "metrics",
                "path": "/metrics",
                "interval": "20s",
                "scrapeTimeout": "10s",
                "relabelings": [
                    {
                        "action": "replace",
                        "sourceLabels": ["__meta_kubernetes_pod_label_triton_fleet_io_sku"],
                        "targetLabel": "sku",
                    },
                    {
                        "action": "replace",
                        "sourceLabels": ["__meta_kubernetes_pod_label_model"],
                        "targetLabel": "deployed_model",
                    },
                    {"action": "replace", "replacement": "local", "targetLabel": "environment"},
                ],
            }
        ],
    }


def test_the_time_out_of_a_scrape_is_within_its_interval(project: Path) -> None:
    times = {"scrape_interval_s": 5, "rate_window_s": 60}
    (endpoint,) = scraping.pod_monitor(local_settings(project, monitoring=times))["spec"]["podMetricsEndpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("5s", "5s")


def test_windows_follow_the_settings(project: Path) -> None:
    times = {"scrape_interval_s": 20, "rate_window_s": 240, "evaluation_interval_s": 15, "relist_interval_s": 60}
    manifest = recording.rules(local_settings(project, monitoring=times))
    groups = {group["name"]: group for group in manifest["spec"]["groups"]}
    assert set(re.findall(r"\[(\w+)\]", str(groups["triton-load"]))) == {"240s", "40s"}
    # 15 / 2, whole seconds.
    assert groups.pop("triton-load")["interval"] == "7s"
    assert {group["interval"] for group in groups.values()} == {"15s", "60s"}


def test_autoscalings_series_keep_what_maps_them_to_a_pod_b24(project: Path) -> None:
    """Field report B24: without `namespace` and `pod` a series is no metric of a pod, and only those are offered."""
    stack_settings = local_settings(project)
    (offered,) = monitoring.adapter_values(stack_settings)["rules"]["custom"]
    (pattern,) = re.findall(r'__name__=~"([^"]*)"', offered["seriesQuery"])
    recorded = {rule["record"] for rule in every(recording.rules(stack_settings))}
    assert {name for name in recorded if re.match(pattern, name)} == {*recording.PER_POD, recording.WAITING_REQUESTS}
    for rule in every(recording.rules(local_settings(project))):
        if rule["record"] in (*recording.PER_POD, recording.WAITING_REQUESTS):
            kept = re.match(r"(?:max|sum) by \(([^)]*)\)", rule["expr"])
            assert kept is not None
            assert {"namespace", "pod"} <= set(kept.group(1).split(", "))
