"""What fires, and whether it is told."""

from __future__ import annotations

from typing import Final

from fleet.alert_names import Alert
from fleet.alert_rule import runbook
from fleet.dashboards.grafana import Column, Dashboard, Panel, Query, Row, Threshold, Variable
from fleet.dashboards.shared import KNOWN, page

_FIRING: Final = 'ALERTS{alertstate="firing",alertname!~"Watchdog|InfoInhibitor"}'
_ASTRAY: Final = f"{_FIRING} unless on (environment, namespace) {KNOWN}"
"""Alerts whose environment and namespace are together those of no fleet: none of their routes takes them."""
_OURS: Final = 'integration=~"slack|pagerduty|email|webhook"'
"""The kinds of receivers that settings know; Alertmanager counts for every kind that there is."""


ALERTS: Final = Dashboard(
    "triton-fleet-alerts",
    "Triton Fleet: alerts",
    "What fires, what reaches nobody, and whether Alertmanager delivers.",
    (
        Row(
            "Now",
            (
                *(
                    Panel(
                        title,
                        f"Alerts of the fleet of severity {severity} that fire.",
                        (
                            Query(
                                f'count(ALERTS{{alertstate="firing",environment!="",namespace=~"$namespace",'
                                f'severity="{severity}"}}) or vector(0)'
                            ),
                        ),
                        "short",
                        "stat",
                        width=4,
                        height=4,
                        thresholds=(Threshold(1, "red" if severity == "critical" else "orange"),),
                    )
                    for title, severity in (("Critical", "critical"), ("Warnings", "warning"), ("Infos", "info"))
                ),
                Panel(
                    "Environment missing or wrong",
                    "Alerts that fire and whose labels environment and namespace are not those of a fleet. No route "
                    "takes them: nobody is told. The chart's own, about the cluster, are among them.",
                    (Query(f"count({_ASTRAY}) or vector(0)"),),
                    "short",
                    "stat",
                    width=4,
                    height=4,
                    thresholds=(Threshold(1, "orange"),),
                ),
                Panel(
                    "Same, in the fleet's namespaces",
                    "Of these, those that name a namespace of the fleet: their rule should name its environment too.",
                    (Query(f"count(({_ASTRAY}) and on (namespace) {KNOWN}) or vector(0)"),),
                    "short",
                    "stat",
                    width=4,
                    height=4,
                    thresholds=(Threshold(1, "red"),),
                ),
                Panel(
                    "Sign of life",
                    "Whether the alert that always fires does. Without it, silence means nothing.",
                    (Query('count(ALERTS{alertname="Watchdog",alertstate="firing"}) or vector(0)'),),
                    "short",
                    "stat",
                    width=4,
                    height=4,
                    thresholds=(Threshold(1, "green"),),
                ),
                Panel(
                    "Alerts of the fleet",
                    "What fires. The name leads to what to do.",
                    (Query('ALERTS{alertstate="firing",environment!="",namespace=~"$namespace"}'),),
                    "short",
                    "table",
                    width=24,
                    columns=(
                        Column("alertname", "Alert", link=runbook("${__value.text}")),
                        Column("severity", "Severity"),
                        Column("environment", "Environment"),
                        Column("namespace", "Namespace"),
                        Column("model", "Model"),
                        Column("sku", "SKU"),
                        Column("pod", "Pod"),
                    ),
                ),
                Panel(
                    "Alerts that reach nobody",
                    "What fires with labels of no fleet.",
                    (Query(_ASTRAY),),
                    "short",
                    "table",
                    width=24,
                    columns=(
                        Column("alertname", "Alert"),
                        Column("severity", "Severity"),
                        Column("environment", "Environment"),
                        Column("namespace", "Namespace"),
                        Column("pod", "Pod"),
                    ),
                ),
                Panel(
                    "Over time",
                    "Alerts of the fleet that fire.",
                    (
                        Query(
                            'count by (alertname, severity) (ALERTS{alertstate="firing",environment!="",'
                            'namespace=~"$namespace"})',
                            "{{alertname}} ({{severity}})",
                        ),
                    ),
                    "short",
                    width=24,
                    decimals=0,
                ),
            ),
        ),
        Row(
            "Alertmanager and rules",
            (
                Panel(
                    "Messages sent",
                    "Per hour, by the kind of receiver.",
                    (
                        Query(
                            f"sum by (integration) (increase(alertmanager_notifications_total{{{_OURS}}}[1h]))",
                            "{{integration}}",
                        ),
                    ),
                    "short",
                ),
                Panel(
                    "Messages that failed",
                    "Per hour, by the kind of receiver.",
                    (
                        Query(
                            f"sum by (integration) (increase(alertmanager_notifications_failed_total{{{_OURS}}}[1h]))",
                            "{{integration}}",
                        ),
                    ),
                    "short",
                    thresholds=(Threshold(1, "red"),),
                ),
                Panel(
                    "Alerts in Alertmanager",
                    "By state; suppressed are those that a silence or a cause keeps back.",
                    (Query("sum by (state) (alertmanager_alerts)", "{{state}}"),),
                    "short",
                    decimals=0,
                ),
                Panel(
                    "Faults on the way",
                    "A configuration that was not taken (1); rules that fail and alerts that Prometheus could not hand "
                    "over, per second.",
                    (
                        Query("1 - min(alertmanager_config_last_reload_successful)", "configuration not taken"),
                        Query(
                            "sum(rate(prometheus_rule_evaluation_failures_total[$__rate_interval]))", "rules that fail"
                        ),
                        Query(
                            "sum(rate(prometheus_notifications_dropped_total[$__rate_interval]))",
                            "alerts not handed over",
                        ),
                    ),
                    "short",
                    thresholds=(Threshold(1, "red"),),
                    links=(page(Alert.RULES_FAILING),),
                ),
            ),
        ),
    ),
    (Variable("namespace", "Namespace", "namespace", KNOWN),),
)
