"""Curves over time: as characters for a terminal, and as drawings in a page that is one file."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BARS: Final = "▁▂▃▄▅▆▇█"
CURVE_CHARS: Final = 72
LABEL_CHARS: Final = 46
LINE_CHARS: Final = 200
COLORS: Final = ("#1b6ca8", "#d1495b", "#3a7d44", "#8d6a9f", "#c77d00", "#555555")
WIDTH: Final = 860
HEIGHT: Final = 170
LEFT: Final = 60
TOP: Final = 24
BELOW: Final = 24
DASHED: Final = " wanted"
"""A curve whose name ends thus is what was asked for beside what was there."""
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
    """Curves of one unit over the same moments."""

    title: str
    curves: tuple[Curve, ...]


def line(plot: Plot, curve: Curve) -> str:
    """A curve of a plot with its name and its highest value, in one line."""
    label = plot.title if len(plot.curves) == 1 else f"{plot.title}: {curve.name}"
    drawn, highest = bars(curve.values, CURVE_CHARS)
    return f"{label[:LABEL_CHARS]:<{LABEL_CHARS}}  {drawn}  {highest:g}"[:LINE_CHARS]


def bars(values: Sequence[float | None], most: int) -> tuple[str, float]:
    """At most so many characters, and the value of the highest."""
    drawn = thinned(values, most)
    highest = max((value for value in drawn if value is not None), default=0.0)
    return "".join(
        " " if value is None else BARS[min(int(value / highest * len(BARS)), len(BARS) - 1)] if highest else BARS[0]
        for value in drawn
    ), highest


def thinned(values: Sequence[float | None], most: int) -> list[float | None]:
    """At most so many values: of each stretch the highest, so that no peak is lost."""
    step = max(-(-len(values) // most), 1)
    stretches = [values[start : start + step] for start in range(0, len(values), step)]
    return [max((value for value in those if value is not None), default=None) for those in stretches]


def clock(seconds: float) -> str:
    """A time as hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def svg(plot: Plot, times: Sequence[float], end_s: float | None = None) -> str:
    """The plot as a drawing; `times` are the moments of its values in seconds, rising from 0 to `end_s` or before."""
    known = [value for curve in plot.curves for value in curve.values if value is not None]
    highest = max(known, default=0.0) or 1.0
    end = end_s or times[-1] or 1.0
    wide, high = WIDTH - LEFT - 10, HEIGHT - TOP - BELOW
    lines, legend = [], []
    for index, curve in enumerate(plot.curves):
        color = COLORS[index % len(COLORS)]
        points = [
            f"{LEFT + time / end * wide:.1f},{TOP + high - value / highest * high:.1f}"
            for time, value in zip(times, curve.values, strict=True)
            if value is not None
        ]
        dashed = ' stroke-dasharray="4 3"' if curve.name.endswith(DASHED) else ""
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5"{dashed} points="{" ".join(points)}"/>')
        legend.append(f'<tspan fill="{color}">{html.escape(curve.name)} </tspan>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{html.escape(plot.title)}">'
        f'<text x="0" y="14" font-size="13" font-weight="bold">{html.escape(plot.title)} '
        f'<tspan font-weight="normal" font-size="11">{"".join(legend)}</tspan></text>'
        f'<text x="{LEFT - 6}" y="{TOP + 9}" font-size="11" text-anchor="end">{highest:.4g}</text>'
        f'<text x="{LEFT - 6}" y="{TOP + high}" font-size="11" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 6}" font-size="11">0:00:00</text>'
        f'<text x="{LEFT + wide}" y="{HEIGHT - 6}" font-size="11" text-anchor="end">{clock(end)}</text>'
        f'<path d="M{LEFT} {TOP}V{TOP + high}H{LEFT + wide}" fill="none" stroke="#999"/>{"".join(lines)}</svg>'
    )


def rows(cells: Sequence[Sequence[str]]) -> str:
    """Rows of an HTML table; what the cells hold is text."""
    return "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in cells)


def page(title: str, body: str) -> str:
    """One file with everything in it; `body` is HTML already, `title` is text."""
    named = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{named}</title><style>{STYLE}</style>'
        f"<h1>{named}</h1>{body}</html>\n"
    )
