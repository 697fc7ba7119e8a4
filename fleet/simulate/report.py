"""What a simulation shows: a table and curves for a terminal, a page with plots, and all of it as data."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from fleet.simulate.world import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.simulate.plan import Run, Sight
    from fleet.simulate.verdicts import Verdict

BARS: Final = "▁▂▃▄▅▆▇█"
CURVE_CHARS: Final = 72
CHANGES_SHOWN: Final = 40
COLORS: Final = ("#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c77d00", "#555555")
WIDTH: Final = 860
HEIGHT: Final = 170
LEFT: Final = 60
TOP: Final = 24
BELOW: Final = 24
STYLE: Final = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2rem;max-width:60rem}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border-bottom:1px solid #ddd;padding:.2rem .8rem;text-align:left}svg{display:block;margin:1rem 0}"
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot; None where there is no value."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves of one unit over the time of the sights."""

    title: str
    curves: tuple[Curve, ...]


def plots(run: Run) -> list[Plot]:
    """Load, latency, queue, ratio, replicas and cost, in that order."""
    sights = run.sights
    names = [served.name for served in run.plan.served]
    spans = [sights[0].time, *(sight.time for sight in sights)]
    length_s = [max(after - before, 1.0) for before, after in pairwise(spans)]

    def curve(name: str, values: Sequence[float | None]) -> Curve:
        return Curve(name, tuple(values))

    def rate(name: str, key: str) -> Curve:
        return curve(name, [getattr(one, key) / span for one, span in zip(sights, length_s, strict=True)])

    return [
        Plot("requests/s", (rate("asked", "offered"), rate("answered", "served"), rate("failed", "failed"))),
        Plot("p95 latency, s", (curve("p95", [one.p95_s for one in sights]),)),
        Plot("requests that wait", (curve("waiting", [one.waiting for one in sights]),)),
        Plot("ratio, as scaled by", tuple(curve(name, [one.ratio[name] for one in sights]) for name in names)),
        Plot(
            "replicas",
            (
                *(curve(f"{name} ready", [one.ready[name] for one in sights]) for name in names),
                *(curve(f"{name} wanted", [one.wanted[name] for one in sights]) for name in names),
            ),
        ),
        Plot(
            "nodes",
            tuple(curve(pool.sku, [one.nodes[pool.sku] for one in sights]) for pool in run.plan.pools),
        ),
        Plot("spent on nodes, USD", (curve("USD", [one.usd for one in sights]),)),
    ]


def totals(run: Run) -> dict[str, float | int | None]:
    """The figures of the whole trace. Latencies in seconds."""
    last = run.sights[-1]
    return {
        "offered": run.offered,
        "served": len(run.latencies),
        "failed": run.failed,
        "p50_s": quantile(run.latencies, 0.5),
        "p95_s": quantile(run.latencies, 0.95),
        "p99_s": quantile(run.latencies, 0.99),
        "changes": len(run.changes),
        "usd": last.usd,
    }


def data(run: Run, found: Sequence[Verdict]) -> dict[str, Any]:
    """All of it, for programs."""
    return {
        "environment": run.plan.environment,
        "trace": run.plan.trace.model_dump(mode="json"),
        "totals": totals(run),
        "served_by": dict(run.served_by),
        "changes": [asdict(change) for change in run.changes],
        "sights": [asdict(sight) for sight in run.sights],
        "expectations": [asdict(verdict) for verdict in found],
    }


def text(run: Run, found: Sequence[Verdict]) -> str:
    """For a terminal."""
    lines = [f"stack {run.plan.environment}, {_time(run.plan.trace.duration_s)}: {run.plan.trace.about.strip()}", ""]
    lines += [_line(plot, curve) for plot in plots(run) for curve in plot.curves if any(curve.values)]
    lines += ["", f"{'time':>8}  {'Deployment':<32}  {'replicas':<10}  {'metric':>8}"]
    for change in run.changes[:CHANGES_SHOWN]:
        metric = "" if change.mean is None else f"{change.mean:.2f}"
        steps = f"{change.before} to {change.after}"
        lines.append(f"{_time(change.time):>8}  {change.deployment:<32}  {steps:<10}  {metric:>8}  {change.reason}")
    if len(run.changes) > CHANGES_SHOWN:
        lines.append(f"{'':>8}  and {len(run.changes) - CHANGES_SHOWN} more")
    sums = totals(run)
    quantiles = [(name[:3], sums[name]) for name in ("p50_s", "p95_s", "p99_s")]
    latency = ", ".join(f"{name} {value:.2f} s" for name, value in quantiles if value is not None)
    spent = "unknown" if sums["usd"] is None else f"USD {sums['usd']:.2f}"
    lines += [
        "",
        f"{sums['served']} of {sums['offered']} requests answered, {sums['failed']} failed; {latency}; nodes: {spent}",
        ", ".join(f"{name}: {count}" for name, count in run.served_by.items()),
        "",
        *(f"{'ok' if one.ok else 'FAILED':<8}{one.name:<32}  {one.text}" for one in found),
    ]
    return "\n".join(lines)


def _line(plot: Plot, curve: Curve) -> str:
    values = _thinned(curve.values, CURVE_CHARS)
    highest = max((value for value in values if value is not None), default=0.0)
    drawn = "".join(
        " " if value is None else BARS[min(int(value / highest * len(BARS)), len(BARS) - 1)] if highest else BARS[0]
        for value in values
    )
    label = plot.title if len(plot.curves) == 1 else f"{plot.title}: {curve.name}"
    return f"{label[:46]:<46}  {drawn}  {highest:g}"[:200]


def _thinned(values: Sequence[float | None], most: int) -> list[float | None]:
    """At most so many values: of each stretch the highest, so that no peak is lost."""
    step = max(-(-len(values) // most), 1)
    stretches = [values[start : start + step] for start in range(0, len(values), step)]
    return [max((value for value in those if value is not None), default=None) for those in stretches]


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def page(run: Run, found: Sequence[Verdict]) -> str:
    """One file, with everything in it."""
    rows = "".join(
        f"<tr><td>{'ok' if one.ok else '<b>failed</b>'}</td><td>{html.escape(one.name)}</td>"
        f"<td>{html.escape(one.text)}</td></tr>"
        for one in found
    )
    changes = "".join(
        f"<tr><td>{_time(one.time)}</td><td>{html.escape(one.deployment)}</td><td>{one.before} to {one.after}</td>"
        f"<td>{'' if one.mean is None else f'{one.mean:.2f}'}</td><td>{html.escape(one.reason)}</td></tr>"
        for one in run.changes
    )
    figures = "".join(
        f"<tr><td>{name}</td><td>{'unknown' if value is None else f'{value:g}'}</td></tr>"
        for name, value in totals(run).items()
    )
    drawn = "".join(_svg(plot, run.sights) for plot in plots(run))
    title = f"Simulation of stack {html.escape(run.plan.environment)}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
        f"<h1>{title}</h1><p>{html.escape(run.plan.trace.about)}</p>"
        f"<h2>Expected</h2><table>{rows}</table><h2>Figures</h2><table>{figures}</table>{drawn}"
        f"<h2>Decisions</h2><table><tr><th>time</th><th>Deployment</th><th>replicas</th><th>metric</th><th>why</th></tr>"
        f"{changes}</table></html>\n"
    )


def _svg(plot: Plot, sights: Sequence[Sight]) -> str:
    known = [value for curve in plot.curves for value in curve.values if value is not None]
    highest = max(known, default=0.0) or 1.0
    end = sights[-1].time or 1.0
    wide, high = WIDTH - LEFT - 10, HEIGHT - TOP - BELOW
    lines, legend = [], []
    for index, curve in enumerate(plot.curves):
        color = COLORS[index % len(COLORS)]
        points = [
            f"{LEFT + sight.time / end * wide:.1f},{TOP + high - value / highest * high:.1f}"
            for sight, value in zip(sights, curve.values, strict=True)
            if value is not None
        ]
        dashed = ' stroke-dasharray="4 3"' if curve.name.endswith(" wanted") else ""
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dashed} points="{" ".join(points)}"/>')
        legend.append(f'<tspan fill="{color}">{html.escape(curve.name)} </tspan>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{html.escape(plot.title)}">'
        f'<text x="0" y="14" font-size="13" font-weight="bold">{html.escape(plot.title)} '
        f'<tspan font-weight="normal" font-size="11">{"".join(legend)}</tspan></text>'
        f'<text x="{LEFT - 6}" y="{TOP + 9}" font-size="11" text-anchor="end">{highest:.4g}</text>'
        f'<text x="{LEFT - 6}" y="{TOP + high}" font-size="11" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}" font-size="11">0:00:00</text>'
        f'<text x="{LEFT + wide}" y="{HEIGHT - 6}" font-size="11" text-anchor="end">{_time(end)}</text>'
        f'<path d="M{LEFT} {TOP}V{TOP + high}H{LEFT + wide}" fill="none" stroke="#999"/>{"".join(lines)}</svg>'
    )
