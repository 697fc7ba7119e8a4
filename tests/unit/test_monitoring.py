"""Monitoring: names as the upstream charts make them, and the values that they are installed with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from fleet import gpu_stack, monitoring, recording, settings
from fleet.schema_observe import Monitoring
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings


@pytest.mark.parametrize(
    ("release", "namespace", "name", "url"),
    [
        (
            "prometheus",
            "monitoring",
            "prometheus-kube-prometheus",
            "http://prometheus-kube-prometheus-prometheus.monitoring.svc:9090",
        ),
        ("mon2", "obs", "mon2-kube-prometheus-stack", "http://mon2-kube-prometheus-stack-prometheus.obs.svc:9090"),
        (
            "kube-prometheus-stack",
            "monitoring",
            "kube-prometheus-stack",
            "http://kube-prometheus-stack-prometheus.monitoring.svc:9090",
        ),
        # Cut at 26 characters, and no hyphen is left at the cut.
        (
            "prometheus-of-ours",
            "m",
            "prometheus-of-ours-kube-pr",
            "http://prometheus-of-ours-kube-pr-prometheus.m.svc:9090",
        ),
        (
            "twenty-one-long-names",
            "m",
            "twenty-one-long-names-kube",
            "http://twenty-one-long-names-kube-prometheus.m.svc:9090",
        ),
        (
            "twenty-two-longer-name",
            "m",
            "twenty-two-longer-name-kub",
            "http://twenty-two-longer-name-kub-prometheus.m.svc:9090",
        ),
        (
            "twenty-five-characters-it",
            "m",
            "twenty-five-characters-it",
            "http://twenty-five-characters-it-prometheus.m.svc:9090",
        ),
    ],
)
def test_names_follow_the_release_as_the_chart_makes_them_b25(
    release: str, namespace: str, name: str, url: str
) -> None:
    settings = Monitoring(release=release, namespace=namespace)
    assert monitoring.stack_name(settings) == name
    assert monitoring.prometheus_service(settings) == f"{name}-prometheus"
    assert monitoring.prometheus_url(settings) == url
    assert monitoring.monitor_labels(settings) == {"release": release}


def stack(project: Path, name: str = "prod", compat: str = "current", **changes: object) -> Settings:
    config = graph.stack_config(project, name)
    config["monitoring"] = {**config.get("monitoring", {}), **changes}
    config["charts"] = {"compat": compat}
    return settings.load(config, project)


def test_the_sets_of_versions_differ_in_what_their_charts_need(project: Path) -> None:
    current, guide = (monitoring.stack_values(stack(project, compat=compat)) for compat in ("current", "guide"))
    assert current.pop("crds") == {
        "upgradeJob": {
            "enabled": True,
            "forceConflicts": True,
            "image": {"busybox": {"tag": "1.37.0"}},
            "nodeSelector": {"triton-fleet.io/node-role": "system"},
        }
    }
    # Below 0.28 Alertmanager ends when a webhook that it reads from a file refuses a message.
    assert guide["alertmanager"]["alertmanagerSpec"].pop("image") == {"tag": "v0.28.1"}
    assert current == guide


def test_series_fill_a_part_of_the_disk_and_the_rest_is_for_prometheus_itself(project: Path) -> None:
    """100 GiB are 102400 MiB, of which 85 % are 87040."""
    values = monitoring.stack_values(stack(project, storage={"size_gib": 100}, retention_days=30))
    spec = values["prometheus"]["prometheusSpec"]
    claim = {
        "storageClassName": "triton-fleet-gp3",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "100Gi"}},
    }
    assert (spec["retention"], spec["retentionSize"]) == ("30d", "87040MiB")
    assert spec["storageSpec"] == {"volumeClaimTemplate": {"spec": claim}}
    smaller = {**claim, "resources": {"requests": {"storage": "1Gi"}}}
    assert values["alertmanager"]["alertmanagerSpec"]["storage"] == {"volumeClaimTemplate": {"spec": smaller}}


@pytest.mark.parametrize(
    ("name", "storage", "made", "named"),
    [
        ("prod", {"size_gib": 9}, True, "triton-fleet-gp3"),
        ("prod", {"size_gib": 9, "storage_class": "theirs"}, False, "theirs"),
        ("prod", None, False, None),
        ("local", {"size_gib": 9}, False, None),
        ("local", {"size_gib": 9, "storage_class": "theirs"}, False, "theirs"),
    ],
)
def test_the_stack_makes_a_class_where_it_makes_the_cluster_and_none_is_named(
    project: Path, name: str, storage: dict[str, Any] | None, named: str | None, *, made: bool
) -> None:
    settled = stack(project, name, storage=storage)
    assert (monitoring.storage_class(settled) is not None) is made
    spec = monitoring.stack_values(settled)["prometheus"]["prometheusSpec"].get("storageSpec")
    assert (spec and spec["volumeClaimTemplate"]["spec"].get("storageClassName")) == named


def test_what_no_pod_can_scrape_is_not_monitored(project: Path) -> None:
    for name in ("local", "dev", "prod"):
        values = monitoring.stack_values(stack(project, name))
        for part in ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy"):
            assert values[part] == {"enabled": False}


@pytest.mark.parametrize(
    ("name", "changes", "where"),
    [
        ("prod", {}, {"nodeSelector": {"triton-fleet.io/node-role": "system"}}),
        ("prod", {"node_selector": {"pool": "m"}}, {"nodeSelector": {"pool": "m"}}),
        ("local", {}, {}),
        (
            "local",
            {"tolerations": [{"key": "a", "value": "b", "effect": "NO_SCHEDULE"}]},
            {"tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]},
        ),
    ],
)
def test_pods_of_monitoring_go_where_the_settings_say_and_on_eks_to_the_system_nodes(
    project: Path, name: str, changes: dict[str, Any], where: dict[str, Any]
) -> None:
    chosen = stack(project, name, **changes)
    assert monitoring.where(chosen) == where
    for part in ("master", "gc"):
        values = gpu_stack.nfd_values(chosen)[part]
        assert {key: value for key, value in values.items() if key != "resources"} == where


def test_the_adapter_names_each_series_of_a_pod_as_autoscaling_does_b24(project: Path) -> None:
    values = monitoring.adapter_values(stack(project, relist_interval_s=45))
    assert (values["metricsRelistInterval"], values["extraArguments"]) == ("45s", ["--metrics-max-age=90s"])
    assert values["rules"]["default"] is False
    (rule,) = values["rules"]["custom"]
    # Without `name` the adapter exposes a series under its own name.
    assert set(rule) == {"seriesQuery", "resources", "metricsQuery"}
    assert rule["resources"]["overrides"] == {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    matched = re.fullmatch(r'\{__name__=~"(.+)",namespace!="",pod!=""\}', rule["seriesQuery"])
    assert matched is not None
    # Prometheus anchors a matcher at both ends.
    assert all(re.fullmatch(matched[1], name) for name in (*recording.PER_POD, recording.WAITING_REQUESTS))
    assert not any(re.fullmatch(matched[1], name) for name in (recording.SERVED, recording.LATENCY, "up"))
