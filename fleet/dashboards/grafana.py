"""Grafana's dashboards as data, and the JSON that Grafana loads. What they show is `fleet.dashboards`'.

The JSON is that of schema version 39, Grafana 10.4's; later versions bring it to their own when they load it:
https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA_VERSION: Final = 39
DATASOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
"""The data source that kube-prometheus-stack gives Grafana, in both sets of charts (its default uid)."""
COLUMNS: Final = 24
"""Width of a dashboard."""
TAG: Final = "triton-fleet"

Color = Literal["green", "orange", "red", "blue"]


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and how its series are called: text with `{{label}}`."""

    expr: str
    legend: str = ""
    dashed: bool = False
    """A bound rather than a measurement."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """From this value on the color is this one."""

    value: float
    color: Color


@dataclass(frozen=True, slots=True)
class Link:
    """Where a panel leads."""

    title: str
    url: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the label, or the letter of the query whose value it shows."""

    source: str
    title: str
    unit: str = ""
    thresholds: tuple[Threshold, ...] = ()
    link: str = ""
    """With `${__value.text}` where the cell's own text belongs."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. Units are Grafana's: https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts"""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    width: int = 12
    height: int = 8
    thresholds: tuple[Threshold, ...] = ()
    least: float | None = 0
    most: float | None = None
    decimals: int | None = None
    columns: tuple[Column, ...] = ()
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Panels that belong together, laid out from left to right."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """What the reader chooses: values of a label of a series; all of them at first."""

    name: str
    title: str
    label: str
    series: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. `uid` is in its address and never changes."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = field(default=())


def document(dashboard: Dashboard) -> dict[str, Any]:
    """The dashboard as Grafana loads it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "Triton Fleet",
                "tags": [TAG],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [_variable(variable) for variable in dashboard.variables]},
        "annotations": {"list": []},
        "panels": _layout(dashboard.rows),
    }


def _layout(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            }
        )
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return panels


def _variable(variable: Variable) -> dict[str, Any]:
    query = f"label_values({variable.series}, {variable.label})"
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{variable.name}"},
        "refresh": 2,
        "sort": 1,
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [_target(panel, index, query) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
        "links": [_link(link) for link in panel.links],
        **({"transformations": _transformations(panel)} if panel.kind == "table" else {}),
    }


def _link(link: Link) -> dict[str, Any]:
    """To another dashboard it takes the time and the choices along; anything else opens beside."""
    dashboard = link.url.startswith("/")
    return {
        "title": link.title,
        "url": link.url,
        "type": "link",
        "targetBlank": not dashboard,
        "keepTime": dashboard,
        "includeVars": dashboard,
        "asDropdown": False,
        "tags": [],
        "icon": "external link",
        "tooltip": "",
    }


def _letter(index: int) -> str:
    return chr(ord("A") + index)


def _target(panel: Panel, index: int, query: Query) -> dict[str, Any]:
    table = panel.kind == "table"
    return {
        "datasource": DATASOURCE,
        "refId": _letter(index),
        "expr": query.expr,
        "legendFormat": query.legend,
        "editorMode": "code",
        "format": "table" if table else "time_series",
        "instant": table,
        "range": not table,
    }


def _steps(thresholds: tuple[Threshold, ...]) -> dict[str, Any]:
    """Below the first threshold everything is well."""
    base = "blue" if not thresholds else "green" if thresholds[0].color != "green" else "red"
    steps = [{"color": base, "value": None}, *({"color": one.color, "value": one.value} for one in thresholds)]
    return {"mode": "absolute", "steps": steps}


def _defaults(panel: Panel) -> dict[str, Any]:
    bounds = {"min": panel.least, "max": panel.most, "decimals": panel.decimals}
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": _steps(panel.thresholds),
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        **{name: value for name, value in bounds.items() if value is not None},
    }
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineInterpolation": "linear",
            "lineWidth": 1,
            "fillOpacity": 5,
            "showPoints": "never",
            "spanNulls": False,
            "thresholdsStyle": {"mode": "dashed" if panel.thresholds else "off"},
        }
    return defaults


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    bounds = [
        {
            "matcher": {"id": "byFrameRefID", "options": _letter(index)},
            "properties": [
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}},
                {"id": "custom.fillOpacity", "value": 0},
            ],
        }
        for index, query in enumerate(panel.queries)
        if query.dashed
    ]
    return bounds + [_cells(column) for column in panel.columns]


def _cells(column: Column) -> dict[str, Any]:
    properties: list[dict[str, Any]] = []
    if column.unit:
        properties.append({"id": "unit", "value": column.unit})
    if column.thresholds:
        properties += [
            {"id": "thresholds", "value": _steps(column.thresholds)},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ]
    if column.link:
        link = {"title": "What to do", "url": column.link, "targetBlank": True}
        properties.append({"id": "links", "value": [link]})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "timeseries":
            return {
                "legend": {
                    "showLegend": True,
                    "displayMode": "table",
                    "placement": "bottom",
                    "calcs": ["lastNotNull", "max"],
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        case "stat":
            return {
                "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
                "orientation": "auto",
                "textMode": "auto",
                "colorMode": "value",
                "graphMode": "area",
                "justifyMode": "auto",
                "wideLayout": True,
                "showPercentChange": False,
                "percentChangeColorMode": "standard",
            }
        case "table":
            return {
                "showHeader": True,
                "cellHeight": "sm",
                "frameIndex": 0,
                "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
            }


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    """One row for what has the same labels, and of its fields those that are columns, in their order."""
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [_field(one, panel) for one in panel.columns]}}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {},
                "indexByName": {_field(column, panel): index for index, column in enumerate(panel.columns)},
                "renameByName": {_field(column, panel): column.title for column in panel.columns},
            },
        },
    ]


def _field(column: Column, panel: Panel) -> str:
    """The name of the field: a label, or the value of a query, whose letter Grafana adds where there are several."""
    if len(column.source) != 1 or not column.source.isupper():
        return column.source
    return f"Value #{column.source}" if len(panel.queries) > 1 else "Value"
