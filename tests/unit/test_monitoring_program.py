"""What the whole program registers of monitoring: what comes before what, what is secret, how releases go in."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from components import access
from fleet import aws_addons
from tests.unit import graph
from tests.unit.test_program import texts

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.graph import Graph

CANARIES = {
    "grafana": "canary-grafana-password",
    "webhook": "https://hooks.invalid/canary-webhook",
    "switch": "https://hooks.invalid/canary-switch",
}


@pytest.fixture(autouse=True)
def no_cluster_named_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(access.CLUSTER_VARIABLE, raising=False)


def test_custom_resources_come_after_what_brings_their_kinds_b08(stacks: dict[str, Graph]) -> None:
    for run in stacks.values():
        stack = run.one(graph.RELEASE, "kube-prometheus-stack")
        custom = [one for one in run.resources if "monitoring.coreos.com" in one.type]
        assert {one.name for one in custom} >= {"triton", "triton-recording", "triton-alerts"}
        # DCGM's chart has a ServiceMonitor.
        for one in (*custom, run.one(graph.RELEASE, "dcgm-exporter")):
            assert stack.urn in run.behind(one)
            assert one.urn not in run.behind(stack)


def test_apis_go_before_their_prometheus_and_before_all_namespaces_b38(stacks: dict[str, Graph]) -> None:
    for run in stacks.values():
        namespaces = {one.urn for one in run.of(graph.NAMESPACE)}
        assert len(namespaces) == len({"monitoring", "serving"})
        for name in ("prometheus-adapter", "metrics-server"):
            behind = run.behind(run.one(graph.RELEASE, name))
            assert behind >= namespaces
            assert run.one(graph.RELEASE, "kube-prometheus-stack").urn in behind


def test_a_release_that_failed_leaves_nothing_in_the_way_of_the_next_b40(stacks: dict[str, Graph]) -> None:
    for run in stacks.values():
        for one in run.of(graph.RELEASE):
            assert one.inputs["name"] == {"kube-prometheus-stack": "prometheus"}.get(one.name, one.name)
            assert one.inputs["cleanupOnFail"] is True
            assert one.inputs["atomic"] is not one.inputs["skipAwait"]


def test_no_secret_stands_readable_in_a_release_or_anywhere_b43(project: Path, config: dict[str, Any]) -> None:
    config = copy.deepcopy(config)
    config["monitoring"] = {**config["monitoring"], "grafana_password": CANARIES["grafana"]}
    config["alerts"] = {
        "receivers": [{"name": "ops", "kind": "webhook", "url": CANARIES["webhook"]}],
        "dead_mans_switch": CANARIES["switch"],
    }
    run = graph.run(project, config)
    readable = [
        (one.urn, text)
        for one in run.resources
        for text in texts({key: value for key, value in one.inputs.items() if not _is_secret(value)})
        if "canary" in text and "token" not in text
    ]
    assert readable == []
    kept = {one.name: one.inputs["stringData"]["value"] for one in run.of("kubernetes:core/v1:Secret")}
    assert kept == {
        "triton-fleet-grafana": {"admin-user": "admin", "admin-password": CANARIES["grafana"]},
        "triton-fleet-receivers": {
            "dead-mans-switch.url": CANARIES["switch"],
            "ops.url": CANARIES["webhook"],
        },
    }
    values = run.one(graph.RELEASE, "kube-prometheus-stack").inputs["values"]
    assert values["alertmanager"]["alertmanagerSpec"]["secrets"] == ["triton-fleet-receivers"]
    assert values["grafana"]["admin"]["existingSecret"] == "triton-fleet-grafana"


def _is_secret(value: object) -> bool:
    return isinstance(value, dict) and graph.SECRET in value


def test_what_the_cluster_has_is_not_installed(project: Path, config: dict[str, Any]) -> None:
    without = copy.deepcopy(config)
    without["monitoring"] |= {"kube_prometheus_stack": False, "prometheus_adapter": False, "metrics_server": False}
    run = graph.run(project, without)
    assert [one.name for one in run.of(graph.RELEASE)] == [
        "dcgm-exporter",
        "node-feature-discovery",
        "nvidia-device-plugin",
    ]
    assert [one.name for one in run.of(graph.NAMESPACE)] == ["triton-local"]
    own = {one.inputs["metadata"]["labels"]["release"] for one in run.resources if "monitoring.coreos" in one.type}
    assert own == {"prometheus"}


def test_another_name_of_the_release_reaches_all_that_follow_it_b02_b25(project: Path, config: dict[str, Any]) -> None:
    renamed = copy.deepcopy(config)
    renamed["monitoring"] |= {"release": "mon2", "namespace": "obs"}
    run = graph.run(project, renamed)
    monitors = [one.inputs["metadata"]["labels"]["release"] for one in run.resources if "monitoring.co" in one.type]
    assert monitors == ["mon2"] * 3
    stack = run.one(graph.RELEASE, "kube-prometheus-stack")
    assert (stack.inputs["name"], stack.inputs["namespace"]) == ("mon2", "obs")
    spec = stack.inputs["values"]["prometheus"]["prometheusSpec"]
    for kind in ("serviceMonitor", "podMonitor", "probe", "scrapeConfig", "rule"):
        assert spec[f"{kind}Selector"] == {"matchLabels": {"release": "mon2"}}
    adapter = run.one(graph.RELEASE, "prometheus-adapter").inputs["values"]
    assert adapter["prometheus"] == {
        "url": "http://mon2-kube-prometheus-stack-prometheus.obs.svc",
        "port": 9090,
        "path": "",
    }
    left = [one.urn for one in run.resources for text in texts(one.inputs) if ".monitoring.svc" in text]
    assert left == []


def test_a_disk_of_prometheus_is_made_by_what_the_stack_brings(project: Path) -> None:
    config = graph.stack_config(project, "prod")
    config["monitoring"] = {**config.get("monitoring", {}), "storage": {"size_gib": 100}}
    for known in (True, False):
        run = graph.run(project, config, stack="prod", preview=not known, known=known)
        (disk,) = [one for one in run.of(graph.STORAGE_CLASS) if one.name == "triton-fleet-gp3"]
        driver = run.one("aws:eks/addon:Addon", aws_addons.EBS_DRIVER)
        identity = run.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", "ebs-csi")
        stack = run.one(graph.RELEASE, "kube-prometheus-stack")
        assert run.behind(stack) >= {disk.urn, driver.urn, identity.urn}
        assert identity.urn in run.behind(driver)
        assert driver.urn in run.behind(run.one(graph.NAMESPACE, "monitoring"))
    del config["monitoring"]["storage"]
    without = graph.run(project, config, stack="prod")
    assert aws_addons.EBS_DRIVER not in {one.name for one in without.resources}
