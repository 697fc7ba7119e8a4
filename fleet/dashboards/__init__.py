"""The dashboards: what each shows. `python -m fleet.dashboards` writes them into dashboards/, for import by hand.

They depend on no setting: which models, SKUs and bounds there are, the series say themselves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from fleet import pods
from fleet.dashboards.alerting import ALERTS
from fleet.dashboards.autoscaling import AUTOSCALING
from fleet.dashboards.gpus import GPUS
from fleet.dashboards.grafana import document
from fleet.dashboards.overview import OVERVIEW
from fleet.dashboards.triton import TRITON

if TYPE_CHECKING:
    from fleet.dashboards.grafana import Dashboard
    from fleet.pods import Manifest
    from fleet.settings import Settings

FOLDER: Final = "dashboards"
LABEL: Final = {"grafana_dashboard": "1"}
"""What Grafana's sidecar looks for by the chart's default values; the value is a text."""

DASHBOARDS: Final = (OVERVIEW, TRITON, GPUS, AUTOSCALING, ALERTS)


def config_maps(settings: Settings) -> list[Manifest]:
    """The dashboards where Grafana's sidecar finds them; none where the stack has Prometheus without Grafana.

    Beside the Grafana of a stack of ours, else in the serving namespace: sidecars look in all of them by default, and
    two stacks that share a Grafana do not write the same object.
    """
    monitoring = settings.monitoring
    if monitoring.kube_prometheus_stack and not monitoring.grafana:
        return []
    namespace = monitoring.namespace if monitoring.kube_prometheus_stack else settings.serving.namespace
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": pods.metadata(dashboard.uid, namespace, {**pods.labels("dashboards", dashboard.uid), **LABEL}),
            "data": {f"{dashboard.uid}.json": json.dumps(document(dashboard), sort_keys=True)},
        }
        for dashboard in DASHBOARDS
    ]


def file(dashboard: Dashboard) -> str:
    """The dashboard's file, relative to the project."""
    return f"{FOLDER}/{dashboard.uid.removeprefix('triton-fleet-')}.json"


def text(dashboard: Dashboard) -> str:
    """What stands in that file."""
    return json.dumps(document(dashboard), indent=2) + "\n"


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """Every expression of the dashboard with the title of its panel."""
    return [(panel.title, query.expr) for row in dashboard.rows for panel in row.panels for query in panel.queries]
