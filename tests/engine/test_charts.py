"""The charts of the mirror, rendered with our values: none of these is ignored, and objects have the names we know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet import gpu_stack, monitoring, settings
from local import mirror
from tests.charts import Chart, RefusedByChart
from tests.unit import graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleet.settings import Settings

pytestmark = pytest.mark.engine

CASES = (("local", "current"), ("prod", "current"), ("prod", "guide"))
MIRRORED: dict[str, tuple[str, Callable[[Settings], dict[str, Any]]]] = {
    gpu_stack.NFD: ("kube-system", gpu_stack.nfd_values),
    gpu_stack.DEVICE_PLUGIN: ("kube-system", gpu_stack.device_plugin_values),
    gpu_stack.DCGM_EXPORTER: ("monitoring", gpu_stack.dcgm_values),
    monitoring.STACK: ("monitoring", monitoring.stack_values),
    monitoring.ADAPTER: ("monitoring", monitoring.adapter_values),
    monitoring.METRICS_SERVER: ("kube-system", monitoring.metrics_server_values),
}
"""By chart: where its release goes, and its values."""
GPU_CHARTS = (gpu_stack.NFD, gpu_stack.DEVICE_PLUGIN, gpu_stack.DCGM_EXPORTER)
UPSTREAMS_OWN = {gpu_stack.NFD}
"""No light chart: upstream's, from its program's module."""


@pytest.fixture(scope="module")
def charts(project: Path) -> Path:
    mirror.complete(print)
    return project / "local" / "charts"


def told(project: Path, stack: str, compat: str = "current") -> Settings:
    config = graph.stack_config(project, stack)
    return settings.load({**config, "charts": {**config.get("charts", {}), "compat": compat}}, project)


@pytest.mark.parametrize("name", sorted(MIRRORED))
@pytest.mark.parametrize(("stack", "compat"), CASES)
def test_a_chart_of_the_mirror_ignores_no_value(
    project: Path, charts: Path, name: str, stack: str, compat: str
) -> None:
    namespace, values_of = MIRRORED[name]
    assert Chart(charts / name, name, namespace).ignored(values_of(told(project, stack, compat))) == []


@pytest.mark.parametrize("name", sorted(set(MIRRORED) - UPSTREAMS_OWN))
def test_a_light_chart_refuses_what_it_does_not_know(project: Path, charts: Path, name: str) -> None:
    namespace, values_of = MIRRORED[name]
    values = {**values_of(told(project, "prod")), "tolerationz": []}
    with pytest.raises(RefusedByChart, match="tolerationz"):
        Chart(charts / name, name, namespace).text(values)


def pods(objects: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The pods' specifications, by workload."""
    return {
        name: one["spec"]["template"]["spec"]
        for name, one in objects.items()
        if name[0] in ("DaemonSet", "Deployment", "Job")
    }


def test_one_nfd_and_only_pods_for_gpu_nodes_tolerate_their_taints_b28(project: Path, charts: Path) -> None:
    prod = told(project, "prod")
    found: dict[str, dict[str, Any]] = {}
    for chart in GPU_CHARTS:
        namespace, values_of = MIRRORED[chart]
        rendered = pods(Chart(charts / chart, chart, namespace).objects(values_of(prod)))
        found |= {name: pod for (_, name), pod in rendered.items()}
    (taint,) = gpu_stack.tolerations(prod)
    tolerant = {name for name, pod in found.items() if taint in pod.get("tolerations", ())}
    assert tolerant == {name for _, name in gpu_stack.daemon_sets(prod)}
    assert [name for name in found if name.endswith("-master")] == ["node-feature-discovery-master"]
    assert found["node-feature-discovery-master"]["nodeSelector"] == {"triton-fleet.io/node-role": "system"}


def test_the_objects_have_the_names_that_other_parts_know_them_by(project: Path, charts: Path) -> None:
    local = told(project, "local")
    rendered = {
        (namespace, name)
        for chart, (namespace, values_of) in ((chart, MIRRORED[chart]) for chart in GPU_CHARTS)
        for kind, name in Chart(charts / chart, chart, namespace).objects(values_of(local))
        if kind == "DaemonSet"
    }
    assert rendered == set(gpu_stack.daemon_sets(local))


def test_the_exporters_monitor_is_taken_and_ends_before_the_next_scrape_b02(project: Path, charts: Path) -> None:
    local = told(project, "local")
    objects = Chart(charts / "dcgm-exporter", "dcgm-exporter", "monitoring").objects(gpu_stack.dcgm_values(local))
    monitor, service = objects["ServiceMonitor", "dcgm-exporter"], objects["Service", "dcgm-exporter"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    seconds = [int(endpoint[key].removesuffix("s")) for key in ("scrapeTimeout", "interval")]
    assert seconds == sorted(seconds)
    assert objects["ConfigMap", "exporter-metrics-config-map"]["data"]["metrics"] == gpu_stack.counters()


FULL: dict[str, Any] = {
    "release": "prometheus",
    "node_selector": {"pool": "system"},
    "tolerations": [{"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}],
    "grafana_password": "secret",
    "storage": {"size_gib": 50, "storage_class": "fast"},
}
"""Monitoring with everything said that may be said."""


def full(project: Path, compat: str = "current", **more: object) -> Settings:
    config = graph.local_config(project)
    config["monitoring"] = {**config["monitoring"], **FULL, **more}
    config["charts"] = {**config["charts"], "compat": compat}
    config["alerts"] = {"receivers": [{"name": "ops", "kind": "webhook", "url": "https://hooks.invalid/a"}]}
    return settings.load(config, project)


@pytest.mark.parametrize("compat", ["current", "guide"])
@pytest.mark.parametrize("name", [monitoring.STACK, monitoring.ADAPTER, monitoring.METRICS_SERVER])
def test_monitoring_ignores_nothing_where_everything_is_said(
    project: Path, charts: Path, name: str, compat: str
) -> None:
    namespace, values_of = MIRRORED[name]
    assert Chart(charts / name, name, namespace).ignored(values_of(full(project, compat))) == []


def test_every_pod_of_monitoring_tolerates_and_selects_what_it_is_told_b02(project: Path, charts: Path) -> None:
    """Whatever chart or custom resource it comes from. The operator's pods follow their resource."""
    told_pods = full(project)
    placed = {}
    for name in (monitoring.STACK, monitoring.ADAPTER, monitoring.METRICS_SERVER):
        namespace, values_of = MIRRORED[name]
        objects = Chart(charts / name, "prometheus" if name == monitoring.STACK else name, namespace).objects(
            values_of(told_pods)
        )
        placed |= pods(objects)
        placed |= {one: objects[one]["spec"] for one in objects if one[0] in ("Prometheus", "Alertmanager")}
    everywhere = placed.pop(("DaemonSet", "prometheus-prometheus-node-exporter"))
    assert everywhere["tolerations"] == [{"operator": "Exists"}]
    assert sorted(name for _, name in placed) == [
        "metrics-server",
        "prometheus-adapter",
        "prometheus-grafana",
        "prometheus-kube-prometheus-admission-create",
        "prometheus-kube-prometheus-alertmanager",
        "prometheus-kube-prometheus-crds-upgrade",
        "prometheus-kube-prometheus-operator",
        "prometheus-kube-prometheus-prometheus",
        "prometheus-kube-state-metrics",
    ]
    wanted = [{"key": "CriticalAddonsOnly", "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    for pod in placed.values():
        assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "system"}, wanted)


@pytest.mark.parametrize(("release", "namespace"), [("prometheus", "monitoring"), ("mon2", "obs")])
def test_monitoring_is_found_by_the_names_that_others_know_b02_b25(
    project: Path, charts: Path, release: str, namespace: str
) -> None:
    named = full(project, release=release, namespace=namespace)
    stack = Chart(charts / monitoring.STACK, release, namespace).objects(monitoring.stack_values(named))
    prometheus = stack["Prometheus", monitoring.prometheus_service(named.monitoring)]
    ours = monitoring.monitor_labels(named.monitoring)
    for kind in ("serviceMonitor", "podMonitor", "probe", "scrapeConfig", "rule"):
        assert prometheus["spec"][f"{kind}Selector"] == {"matchLabels": ours}
        assert prometheus["spec"][f"{kind}NamespaceSelector"] == {}
    for (kind, _), one in stack.items():
        if kind in ("ServiceMonitor", "PrometheusRule"):
            assert ours.items() <= one["metadata"]["labels"].items()
    ports = {
        name: [port["port"] for port in one["spec"]["ports"]]
        for (kind, name), one in stack.items()
        if kind == "Service"
    }
    assert monitoring.PORT_PROMETHEUS in ports[monitoring.prometheus_service(named.monitoring)]
    assert monitoring.PORT_ALERTMANAGER in ports[monitoring.alertmanager_service(named.monitoring)]
    assert monitoring.PORT_GRAFANA in ports[monitoring.grafana_service(named.monitoring)]
    adapter = Chart(charts / monitoring.ADAPTER, monitoring.ADAPTER, namespace).objects(
        monitoring.adapter_values(named)
    )
    (container,) = adapter["Deployment", "prometheus-adapter"]["spec"]["template"]["spec"]["containers"]
    assert f"--prometheus-url={monitoring.prometheus_url(named.monitoring)}" in container["args"]


def test_no_monitor_waits_longer_for_an_answer_than_until_it_asks_again(project: Path, charts: Path) -> None:
    """The operator refuses such a monitor. Without an interval of its own a monitor has Prometheus' own."""
    stack = Chart(charts / monitoring.STACK, "prometheus", "monitoring").objects(
        monitoring.stack_values(told(project, "local"))
    )
    interval = stack["Prometheus", "prometheus-kube-prometheus-prometheus"]["spec"]["scrapeInterval"]
    monitors = [one for (kind, _), one in stack.items() if kind == "ServiceMonitor"]
    waits = [
        (endpoint["scrapeTimeout"], endpoint.get("interval", interval))
        for one in monitors
        for endpoint in one["spec"]["endpoints"]
        if "scrapeTimeout" in endpoint
    ]
    assert waits == [("30s", "30s")]
