"""Monitoring: which charts, how their objects are named, and with which values they are installed.

Names are those that the upstream charts give. They follow the release's name and nothing else, so other parts can name
an object of monitoring before it exists, and where the cluster has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet import names

if TYPE_CHECKING:
    from fleet.schema_observe import Monitoring

STACK: Final = "kube-prometheus-stack"
STACK_NAME_MAX_CHARS: Final = 26
"""The chart cuts the names of its objects there (its helper `kube-prometheus-stack.fullname`), since the operator adds
to them."""
PORT_PROMETHEUS: Final = 9090
PORT_ALERTMANAGER: Final = 9093


def stack_name(monitoring: Monitoring) -> str:
    """What the names of the release's objects begin with, as the chart makes it of the release's name."""
    release = monitoring.release
    full = release if STACK in release else f"{release}-{STACK}"
    return full[:STACK_NAME_MAX_CHARS].removesuffix("-")


def prometheus_service(monitoring: Monitoring) -> str:
    return f"{stack_name(monitoring)}-prometheus"


def alertmanager_service(monitoring: Monitoring) -> str:
    return f"{stack_name(monitoring)}-alertmanager"


def prometheus_url(monitoring: Monitoring) -> str:
    """Where Prometheus answers inside the cluster; without a path (field report B25)."""
    return f"http://{names.service_host(prometheus_service(monitoring), monitoring.namespace)}:{PORT_PROMETHEUS}"


def alertmanager_url(monitoring: Monitoring) -> str:
    """Where Alertmanager answers inside the cluster."""
    return f"http://{names.service_host(alertmanager_service(monitoring), monitoring.namespace)}:{PORT_ALERTMANAGER}"


def monitor_labels(monitoring: Monitoring) -> dict[str, str]:
    """What each ServiceMonitor, PodMonitor and PrometheusRule carries, or Prometheus does not take it (B02)."""
    return {"release": monitoring.release}
