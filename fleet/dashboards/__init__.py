"""The dashboards: what each shows. `python -m fleet.dashboards` writes them into dashboards/, for import by hand.

They depend on no setting: which models, SKUs and bounds there are, the series say themselves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from fleet import names
from fleet.dashboards.alerting import ALERTS
from fleet.dashboards.autoscaling import AUTOSCALING
from fleet.dashboards.gpus import GPUS
from fleet.dashboards.overview import OVERVIEW
from fleet.dashboards.triton import TRITON
from fleet.grafana import document

if TYPE_CHECKING:
    from fleet.grafana import Dashboard
    from fleet.pods import Manifest
    from fleet.schema_observe import Monitoring

FOLDER: Final = "dashboards"
LABEL: Final = {"grafana_dashboard": "1"}
"""What Grafana's sidecar looks for by the chart's default values; the value is a text."""

DASHBOARDS: Final = (OVERVIEW, TRITON, GPUS, AUTOSCALING, ALERTS)


def config_map(dashboard: Dashboard, monitoring: Monitoring) -> Manifest:
    """The dashboard where Grafana's sidecar finds it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": dashboard.uid,
            "namespace": monitoring.namespace,
            "labels": {
                **LABEL,
                names.LABEL_PART_OF: names.PART_OF,
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
            },
        },
        "data": {f"{dashboard.uid}.json": json.dumps(document(dashboard), sort_keys=True)},
    }


def file(dashboard: Dashboard) -> str:
    """The dashboard's file, relative to the project."""
    return f"{FOLDER}/{dashboard.uid.removeprefix('triton-fleet-')}.json"


def text(dashboard: Dashboard) -> str:
    """What stands in that file."""
    return json.dumps(document(dashboard), indent=2) + "\n"


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """Every expression of the dashboard with the title of its panel."""
    return [(panel.title, query.expr) for row in dashboard.rows for panel in row.panels for query in panel.queries]
