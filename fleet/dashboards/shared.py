"""What the dashboards have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.alert_rule import runbook
from fleet.dashboards.grafana import Link, Variable

if TYPE_CHECKING:
    from fleet.alert_names import Alert

RATIO_HIGH: Final = 1.0
"""Requests wait as long as they are computed. What autoscaling aims at is a setting, and drawn beside it."""
FAILED_SOME: Final = 0.001
FAILED_MANY: Final = 0.01
MEMORY_HIGH: Final = 0.95

FLEET: Final = 'namespace=~"$namespace",deployed_model=~"$model",sku=~"$sku"'
SLO: Final = 'namespace=~"$namespace",deployed_model=~"$model"'
BY: Final = "{{deployed_model}} on {{sku}}"
KNOWN: Final = "triton_fleet:replicas:max"
"""One series for each model and SKU that the settings name, whether or not a pod of it runs."""
FLEET_VARIABLES: Final = (
    Variable("namespace", "Namespace", "namespace", KNOWN),
    Variable("model", "Model", "deployed_model", KNOWN),
    Variable("sku", "SKU", "sku", KNOWN),
)


def page(alert: Alert) -> Link:
    return Link(f"What to do: {alert}", runbook(alert))
