"""What a simulation shows: a table and curves for a terminal, a page with plots, and all of it as data."""

from __future__ import annotations

import html
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from fleet import plots as drawing
from fleet.plots import Curve, Plot, clock
from fleet.simulate.world import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.simulate.plan import Run
    from fleet.simulate.verdicts import Verdict

CHANGES_SHOWN: Final = 40


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
    lines = [
        f"stack {run.plan.environment}, {clock(run.plan.trace.duration_s)}: {run.plan.trace.about.strip()}",
        "",
    ]
    lines += [drawing.line(plot, curve) for plot in plots(run) for curve in plot.curves if any(curve.values)]
    lines += ["", f"{'time':>8}  {'Deployment':<32}  {'replicas':<10}  {'metric':>8}"]
    for change in run.changes[:CHANGES_SHOWN]:
        metric = "" if change.mean is None else f"{change.mean:.2f}"
        steps = f"{change.before} to {change.after}"
        lines.append(f"{clock(change.time):>8}  {change.deployment:<32}  {steps:<10}  {metric:>8}  {change.reason}")
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


def page(run: Run, found: Sequence[Verdict]) -> str:
    """One file, with everything in it."""
    expected = "".join(
        f"<tr><td>{'ok' if one.ok else '<b>failed</b>'}</td><td>{html.escape(one.name)}</td>"
        f"<td>{html.escape(one.text)}</td></tr>"
        for one in found
    )
    changes = drawing.rows(
        [
            (
                clock(one.time),
                one.deployment,
                f"{one.before} to {one.after}",
                "" if one.mean is None else f"{one.mean:.2f}",
                one.reason,
            )
            for one in run.changes
        ]
    )
    figures = drawing.rows(
        [(name, "unknown" if value is None else f"{value:g}") for name, value in totals(run).items()]
    )
    times = [sight.time for sight in run.sights]
    drawn = "".join(drawing.svg(plot, times) for plot in plots(run))
    return drawing.page(
        f"Simulation of stack {run.plan.environment}",
        f"<p>{html.escape(run.plan.trace.about)}</p>"
        f"<h2>Expected</h2><table>{expected}</table><h2>Figures</h2><table>{figures}</table>{drawn}"
        f"<h2>Decisions</h2><table><tr><th>time</th><th>Deployment</th><th>replicas</th><th>metric</th><th>why</th></tr>"
        f"{changes}</table>",
    )
