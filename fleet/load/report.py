"""What a load shows: a live view, a page with plots, and all of it as data."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fleet import plots as drawing
from fleet.load import latency, outcome
from fleet.plots import Curve, Plot, clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.load.outcome import Figures, Verdict
    from fleet.load.plan import Interval, Plan
    from fleet.load.seen import Sight

RECENT_S: Final = 10
"""What the live view calls now."""
CURVE_CHARS: Final = 48


@dataclass(slots=True)
class Load:
    """A load as far as it has come: what it is, what was asked and answered, and what the fleet looked like."""

    stack: str
    profile: str
    plan: Plan
    started: str
    bounds: dict[str, tuple[int, int]]
    """Fewest and most replicas, by SKU."""
    intervals: list[Interval] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        """How long requests were made: the time after the plan's end in which the last are answered does not count."""
        return min(self.intervals[-1].time_s, self.plan.duration_s) if self.intervals else 0.0

    def figures(self) -> Figures:
        return outcome.figures(self.intervals, self.seconds)

    def recent(self) -> Figures:
        """Of the last seconds."""
        end_s = self.intervals[-1].time_s if self.intervals else 0.0
        since_s = max(end_s - RECENT_S, 0.0)
        return outcome.figures([one for one in self.intervals if one.time_s > since_s], max(end_s - since_s, 1e-9))


def what(load: Load) -> str:
    """The load in words."""
    plan = load.plan
    peak = max(value for _, value in plan.points)
    asked = f"{peak:g} users at most" if plan.arrivals == "closed" else f"{peak:g} requests/s at most"
    connections = "connections kept" if plan.keep_alive else "a connection for each request"
    return (
        f"{load.profile} on {plan.model} of stack {load.stack}: {plan.scenario}, {plan.arrivals}, {asked}, "
        f"{clock(plan.duration_s)}, {connections}"
    )


def line(load: Load) -> str:
    """Where it stands, in one line, for a log."""
    now, sight = load.recent(), load.sights[-1] if load.sights else None
    fleet = "the fleet was not seen yet" if sight is None else ", ".join(_of_sku(sight, sku) for sku in sight.ready)
    return (
        f"{clock(load.intervals[-1].time_s if load.intervals else 0)}  {now.offered_per_s:.1f} asked/s  "
        f"{now.rps:.1f} answered/s  p50 {_ms(now.p50_ms)}  p95 {_ms(now.p95_ms)}  p99 {_ms(now.p99_ms)}  "
        f"failed {load.figures().failed}  {fleet}"
    )


def _of_sku(sight: Sight, sku: str) -> str:
    value = sight.ratio.get(sku)
    ratio = "-" if value is None else f"{value:.2f}"
    return f"{sku} {sight.ready[sku]}/{sight.wanted[sku]} ratio {ratio}"


def screen(load: Load) -> list[str]:
    """Where it stands, for a terminal, to be drawn over what stood there before."""
    now, sums = load.recent(), load.figures()
    end_s = load.intervals[-1].time_s if load.intervals else 0.0
    users = load.intervals[-1].users if load.intervals else 0
    flying = load.intervals[-1].in_flight if load.intervals else 0
    lines = [
        what(load),
        f"{clock(end_s)} of {clock(load.plan.duration_s)}   users {users}   waiting for an answer {flying}",
        "",
        f"{'':<18}{'asked/s':>9}{'answered/s':>12}{'p50':>10}{'p95':>10}{'p99':>10}{'failed':>9}",
    ]
    for name, got in ((f"last {RECENT_S} s", now), ("so far", sums)):
        quantiles = "".join(f"{_ms(value):>10}" for value in (got.p50_ms, got.p95_ms, got.p99_ms))
        lines.append(f"{name:<18}{got.offered_per_s:>9.1f}{got.rps:>12.1f}{quantiles}{got.failed:>9}")
    lines.append("")
    if load.sights:
        sight = load.sights[-1]
        lines.append(f"{'SKU':<18}{'ready':>6}{'wanted':>7}{'bounds':>8}{'ratio':>8}{'answered':>10}")
        for sku in sight.ready:
            value = sight.ratio.get(sku)
            fewest, most = load.bounds.get(sku, (0, 0))
            drawn, _ = drawing.bars([float(one.ready[sku]) for one in load.sights], CURVE_CHARS)
            answered = sum(sight.answered.get(sku, {}).values())
            lines.append(
                f"{sku:<18}{sight.ready[sku]:>6}{sight.wanted[sku]:>7}{f'{fewest}-{most}':>8}"
                f"{'-' if value is None else f'{value:.2f}':>8}{answered:>10}  {drawn}"
            )
        if sight.missing:
            lines.append(f"not seen: {sight.missing}")
    lines += [f"{count} x {text}" for text, count in list(sums.errors.items())[:3]]
    return lines


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def share(load: Load) -> dict[str, dict[str, Any]]:
    """By SKU: how many requests its replicas answered, which part of all that is, and how many each replica did."""
    answered = load.sights[-1].answered if load.sights else {}
    total = sum(sum(pods.values()) for pods in answered.values())
    skus = load.sights[-1].ready if load.sights else {}
    return {
        sku: {
            "answered": sum(answered.get(sku, {}).values()),
            "part": round(sum(answered.get(sku, {}).values()) / total, 4) if total else 0.0,
            "replicas": dict(answered.get(sku, {})),
        }
        for sku in skus
    }


def data(load: Load, found: Sequence[Verdict]) -> dict[str, Any]:
    """All of it, for programs. Times in seconds since the load began."""
    sums = load.figures()
    skus = load.sights[-1].ready if load.sights else {}
    plan = asdict(load.plan)
    return {
        "stack": load.stack,
        "profile": load.profile,
        "started": load.started,
        "interrupted": load.interrupted,
        **asdict(sums),
        "rps": round(sums.rps, 3),
        "offered_per_s": round(sums.offered_per_s, 3),
        "error_ratio": sums.error_ratio,
        "replicas": {
            sku: [
                {"time_s": round(one.time_s, 1), "ready": one.ready[sku], "wanted": one.wanted[sku]}
                for one in load.sights
            ]
            for sku in skus
        },
        "metric": {
            sku: [{"time_s": round(one.time_s, 1), "ratio": one.ratio.get(sku)} for one in load.sights] for sku in skus
        },
        "share": share(load),
        "thresholds": [asdict(verdict) for verdict in found],
        "plan": {key: plan[key] for key in plan if key not in ("case", "requests_file")},
        "intervals": [asdict(one) for one in load.intervals],
    }


def plots(load: Load) -> list[tuple[Plot, list[float]]]:
    """Each with the moments of its values."""
    each = load.intervals
    times = [one.time_s for one in each]
    lengths = [max(after - before, 1e-3) for before, after in zip([0.0, *times], times, strict=False)]

    def rate(name: str, key: str) -> Curve:
        return Curve(name, tuple(getattr(one, key) / span for one, span in zip(each, lengths, strict=True)))

    def quantile(name: str, part: float) -> Curve:
        return Curve(name, tuple(latency.quantile(one.latency, part) for one in each))

    seen = [one.time_s for one in load.sights]
    skus = list(load.sights[-1].ready) if load.sights else []
    return [
        (Plot("requests/s", (rate("asked", "offered"), rate("answered", "served"), rate("failed", "failed"))), times),
        (Plot("latency, s", (quantile("p50", 0.5), quantile("p95", 0.95), quantile("p99", 0.99))), times),
        (Plot("waiting for an answer", (Curve("requests", tuple(float(one.in_flight) for one in each)),)), times),
        (
            Plot(
                "ratio, as scaled by",
                tuple(Curve(sku, tuple(one.ratio.get(sku) for one in load.sights)) for sku in skus),
            ),
            seen,
        ),
        (
            Plot(
                "replicas",
                (
                    *(Curve(f"{sku} ready", tuple(float(one.ready[sku]) for one in load.sights)) for sku in skus),
                    *(Curve(f"{sku} wanted", tuple(float(one.wanted[sku]) for one in load.sights)) for sku in skus),
                ),
            ),
            seen,
        ),
        (
            Plot(
                "requests answered, by SKU",
                tuple(
                    Curve(sku, tuple(float(sum(one.answered.get(sku, {}).values())) for one in load.sights))
                    for sku in skus
                ),
            ),
            seen,
        ),
    ]


def summary(load: Load, found: Sequence[Verdict]) -> str:
    """For a terminal, at the end."""
    sums = load.figures()
    drawn = [drawing.line(plot, curve) for plot, _ in plots(load) for curve in plot.curves if any(curve.values)]
    tokens = ""
    if sums.tokens:
        tokens = (
            f"; {sums.tokens / max(sums.seconds, 1e-9):.1f} tokens/s, first token p95 {_ms(sums.first_token_p95_ms)}"
        )
    answered = f"{sums.served} of {sums.offered} requests answered, {sums.failed} failed, {sums.retried} retries"
    quantiles = f"p50 {_ms(sums.p50_ms)}, p95 {_ms(sums.p95_ms)}, p99 {_ms(sums.p99_ms)}"
    return "\n".join(
        [
            what(load),
            "",
            *drawn,
            "",
            f"{answered}; {sums.rps:.1f} requests/s; {quantiles}{tokens}",
            *(f"{sku}: {one['answered']} answered ({one['part']:.0%})" for sku, one in share(load).items()),
            *(f"{count} x {text}" for text, count in sums.errors.items()),
            "",
            *(f"{'ok' if one.ok else 'FAILED':<8}{one.name:<16}{one.text}" for one in found),
        ]
    )


def page(load: Load, found: Sequence[Verdict]) -> str:
    """One file, with everything in it."""
    sums = load.figures()
    figures = {
        "asked": str(sums.offered),
        "answered": str(sums.served),
        "failed": str(sums.failed),
        "retries": str(sums.retried),
        "answered/s": f"{sums.rps:.2f}",
        "p50": _ms(sums.p50_ms),
        "p95": _ms(sums.p95_ms),
        "p99": _ms(sums.p99_ms),
        **({"first token, p95": _ms(sums.first_token_p95_ms), "tokens": str(sums.tokens)} if sums.tokens else {}),
    }
    end_s = max([one.time_s for one in load.intervals[-1:]] + [one.time_s for one in load.sights[-1:]], default=1.0)
    drawn = "".join(drawing.svg(plot, times, end_s) for plot, times in plots(load) if times)
    replicas = [
        (sku, replica, str(count)) for sku, one in share(load).items() for replica, count in one["replicas"].items()
    ]
    held = [("ok" if one.ok else "FAILED", one.name, one.text) for one in found]
    ended = "<p><b>It was interrupted.</b></p>" if load.interrupted else ""
    return drawing.page(
        f"Load on stack {load.stack}",
        f"<p>{html.escape(what(load))}. Begun {html.escape(load.started)}.</p>{ended}"
        f"<h2>Thresholds</h2><table>{drawing.rows(held)}</table>"
        f"<h2>Figures</h2><table>{drawing.rows(list(figures.items()))}</table>{drawn}"
        f"<h2>Who answered</h2><table>{drawing.rows(replicas)}</table>"
        f"<h2>Errors</h2><table>{drawing.rows([(str(count), text) for text, count in sums.errors.items()])}</table>",
    )
