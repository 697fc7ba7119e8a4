"""Monitoring: names as the upstream charts make them, and the values that they are installed with."""

from __future__ import annotations

import pytest

from fleet import monitoring
from fleet.schema_observe import Monitoring


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
