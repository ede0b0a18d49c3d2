"""Line charts as SVG, for the page report.html, which has their styles and their script.

A chart is readable without the script: it has axes, a line per series and, if there are several, a legend. The script
shows the values under the pointer, which it reads from the attribute `data-series`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 240  # of a chart, in pixels
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 10, 30  # margins around the plot
COLOURS = 6  # classes of report.html, c0 to c5; further series reuse them with dashes


@dataclass(frozen=True)
class Series:
    """A line of a chart. `number` determines the colour, so a run has one colour in all charts."""

    name: str
    number: int
    points: Sequence[tuple[float, float]]

    @property
    def style(self) -> str:
        """The CSS classes of the line."""
        return f"c{self.number % COLOURS}" + (" dashed" if self.number >= COLOURS else "")


def line_chart(title: str, series: Sequence[Series]) -> str:
    """Returns a chart over the updates as an SVG element, or "" if no series has a point."""
    series = [line for line in series if line.points]
    if not series:
        return ""
    xs, ys = ([point[axis] for line in series for point in line.points] for axis in (0, 1))
    x_ticks, y_ticks = ticks(0.0, max(xs)), ticks(min(ys), max(ys))
    bottom, top, right = y_ticks[0], y_ticks[-1], x_ticks[-1]

    def place(x: float, y: float) -> tuple[float, float]:
        """Returns the position of a point, in pixels."""
        across, up = x / right, (y - bottom) / (top - bottom)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    data = [
        {
            "name": line.name,
            "style": line.style,
            "points": [[*(round(v, 1) for v in place(x, y)), number(x), number(y)] for x, y in line.points],
        }
        for line in series
    ]
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" tabindex="0" aria-label="{escape(title)}" '
        f'data-series="{escape(json.dumps(data, ensure_ascii=False))}">'
    ]
    for y in y_ticks:
        height = place(0, y)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {height:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{escape(number(y))}</text>')
    for x in x_ticks:
        across = place(x, y_ticks[0])[0]
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{number(x)}</text>')
    parts.append(f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">updates</text>')
    for line in series:
        pixels = [place(x, y) for x, y in line.points]
        if len(pixels) == 1:
            parts.append(f'<circle class="{line.style}" cx="{pixels[0][0]:.1f}" cy="{pixels[0][1]:.1f}" r="3"/>')
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)
        parts.append(f'<path class="line {line.style}" d="M{path}"/>')
    return "".join([*parts, "</svg>"])


def ticks(low: float, high: float) -> list[float]:
    """Returns three to seven round numbers that cover the range, the first at or below `low`."""
    if high - low <= 1e-6 * abs(high):  # a step would be lost in rounding
        low, high = low - abs(low) / 10, high + abs(high) / 10 or 1.0
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def number(value: float) -> str:
    """Formats a value with four significant digits, or all digits of its integer part."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
