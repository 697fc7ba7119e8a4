"""Preflight of monitoring: intervals (field report B23), names, and settings that would do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet import preflight, preflight_monitoring, settings
from fleet.faults import Fault, Refused
from tests.unit import graph

if TYPE_CHECKING:
    from pathlib import Path

RATE = "a rate needs two samples in its window, also when a scrape or two were missed"
DROPPED = (
    "prometheus-adapter drops a series that was not {} since it last listed series, and autoscaling is blind until the "
    "next time"
)
RESERVED = "a namespace of its own, not default or kube-…"
CASES = [
    pytest.param({}, {}, [], id="the stack's own"),
    pytest.param({"scrape_interval_s": 15, "rate_window_s": 60}, {}, [], id="four scrapes in a window"),
    pytest.param(
        {"scrape_interval_s": 60, "rate_window_s": 60},
        {},
        [
            Fault(
                "monitoring.rate_window_s",
                "60",
                "at least 240: 4 times monitoring.scrape_interval_s",
                RATE,
                "widen rate_window_s or lower scrape_interval_s",
            ),
            Fault(
                "monitoring.relist_interval_s",
                "30",
                "at least monitoring.scrape_interval_s, which is 60",
                DROPPED.format("scraped"),
                "raise relist_interval_s or lower scrape_interval_s",
            ),
        ],
        id="B23",
    ),
    pytest.param(
        {"relist_interval_s": 10, "evaluation_interval_s": 11},
        {},
        [
            Fault(
                "monitoring.relist_interval_s",
                "10",
                "at least monitoring.evaluation_interval_s, which is 11",
                DROPPED.format("made"),
                "raise relist_interval_s or lower evaluation_interval_s",
            )
        ],
        id="listed more often than made",
    ),
    pytest.param(
        {"release": "a" * 54},
        {},
        [
            Fault(
                "monitoring.release",
                repr("a" * 54),
                "at most 53 characters",
                "Helm accepts no longer name of a release",
                "choose a shorter name",
            )
        ],
        id="a release's name is too long",
    ),
    pytest.param({"release": "a" * 53}, {}, [], id="the longest name of a release"),
    pytest.param(
        {"release": "prometheus-adapter"},
        {},
        [
            Fault(
                "monitoring.release",
                "'prometheus-adapter'",
                "a name other than dcgm-exporter, metrics-server, prometheus-adapter",
                "the stack has a release of that name",
                "choose another name",
            )
        ],
        id="a release of another chart",
    ),
    pytest.param(
        {"namespace": "kube-system"},
        {},
        [
            Fault(
                "monitoring.namespace",
                "'kube-system'",
                RESERVED,
                "the stack makes it, and takes it away when it goes",
                "leave it out for monitoring, or name a namespace that nothing else uses",
            )
        ],
        id="a namespace of the system's",
    ),
    pytest.param({"namespace": "kube-system", "kube_prometheus_stack": False}, {}, [], id="the cluster's own, there"),
    pytest.param(
        {"namespace": "triton-local"},
        {},
        [
            Fault(
                "monitoring.namespace",
                "'triton-local'",
                "another namespace than serving.namespace",
                "the serving namespace admits restricted pods only and denies all traffic that it does not name; "
                "exporters of nodes and GPUs could not run there",
                "name another namespace",
            )
        ],
        id="the serving namespace",
    ),
    pytest.param(
        {"grafana": False, "grafana_password": "secret"},
        {},
        [
            Fault(
                "monitoring.grafana_password",
                "a text, not shown",
                "nothing, where the stack installs no Grafana",
                "nobody would use it",
                "remove it, or set monitoring.kube_prometheus_stack and monitoring.grafana",
            )
        ],
        id="a password of nothing",
    ),
    pytest.param(
        {},
        {"compat": "guide"},
        [
            Fault(
                "monitoring.grafana_password",
                "nothing",
                "a password, where charts.compat is guide",
                "that version of the chart has a password that everybody knows",
                "run `pulumi config set --secret --path 'triton-fleet:monitoring.grafana_password'`",
            )
        ],
        id="the guide's password",
    ),
    pytest.param({"grafana_password": "secret"}, {"compat": "guide"}, [], id="a password of one's own"),
    pytest.param({"grafana": False}, {"compat": "guide"}, [], id="no Grafana"),
    pytest.param(
        {"kube_prometheus_stack": False, "storage": {"size_gib": 9}},
        {},
        [
            Fault(
                "monitoring.storage",
                "9 GiB",
                "nothing, where monitoring.kube_prometheus_stack is false",
                "the Prometheus of this cluster is another's, and keeps its own disk",
                "remove it",
            )
        ],
        id="a disk of nothing",
    ),
]


@pytest.mark.parametrize(("monitoring", "charts", "faults"), CASES)
def test_what_does_not_fit_is_refused(
    project: Path, monitoring: dict[str, Any], charts: dict[str, Any], faults: list[Fault]
) -> None:
    config = graph.local_config(project)
    config["monitoring"] = {**config["monitoring"], **monitoring}
    config["charts"] = {**config["charts"], **charts}
    found = preflight.check(settings.load(config, project), project).refusals
    assert [fault for fault in found if fault.setting.startswith("monitoring.")] == faults


def test_faults_are_told_beside_those_of_single_settings(project: Path) -> None:
    config = graph.local_config(project)
    config["monitoring"] = {**config["monitoring"], "scrape_interval_s": 30}
    config["environment"] = "tset"
    with pytest.raises(Refused) as refused:
        settings.load(config, project)
    assert {"environment", "monitoring.rate_window_s"} <= {fault.setting for fault in refused.value.faults}


@pytest.mark.parametrize(
    ("version", "addons", "storage", "refused"),
    [
        ("1.34", {}, {"size_gib": 50}, False),
        ("1.33", {}, {"size_gib": 50}, True),
        ("1.33", {}, {"size_gib": 50, "storage_class": "theirs"}, False),
        ("1.33", {"aws-ebs-csi-driver": "v1.2.3-eksbuild.1"}, {"size_gib": 50}, False),
        ("1.33", {}, None, False),
    ],
)
def test_a_disk_of_ebs_needs_a_pinned_driver(
    project: Path, version: str, addons: dict[str, str], storage: dict[str, Any] | None, *, refused: bool
) -> None:
    config = graph.stack_config(project, "prod")
    config["cluster"] = {**config["cluster"], "kubernetes_version": version, "addons": addons}
    config["monitoring"] = {"storage": storage}
    found = list(preflight_monitoring.refusals(preflight.Draft.of(settings.load(config, project))))
    expected = Fault(
        "monitoring.storage",
        "50 GiB, with cluster.kubernetes_version 1.33",
        "a version of aws-ebs-csi-driver in cluster.addons, or a storage_class",
        "that add-on makes the disk, and no version of it is pinned for this Kubernetes",
        "name one: `aws eks describe-addon-versions --addon-name aws-ebs-csi-driver --kubernetes-version 1.33` lists "
        "them",
    )
    assert found == ([expected] if refused else [])


KINDS, OFFERS = "gpu_stack.node_feature_discovery", "gpu_stack.device_plugin"


@pytest.mark.parametrize(
    ("stack", "changes", "warned"),
    [
        ("prod", {}, []),
        ("prod", {"monitoring": {"kube_prometheus_stack": False}}, ["monitoring.kube_prometheus_stack"]),
        ("prod", {"monitoring": {"prometheus_adapter": False}}, ["monitoring.prometheus_adapter"]),
        ("prod", {"autoscaling": {"engine": "keda"}}, ["autoscaling.engine"]),
        ("prod", {"gpu_stack": {"node_feature_discovery": False}}, [KINDS]),
        ("prod", {"gpu_stack": {"node_feature_discovery": False, "device_plugin": False}}, [OFFERS]),
        ("local", {"gpu_stack": {"device_plugin": False}, "autoscaling": {"engine": "keda"}}, []),
    ],
)
def test_what_a_new_cluster_lacks_is_warned_of(
    project: Path, stack: str, changes: dict[str, Any], warned: list[str]
) -> None:
    loaded = settings.load({**graph.stack_config(project, stack), **changes}, project)
    assert [fault.setting for fault in preflight_monitoring.left_out(loaded)] == warned
