"""Bars with intervals, and the choices of a slider in a plane, as inline SVG that the script can change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Bar:
    """A number of a group between two ends, drawn as a bar with its interval, and in words."""

    kind: str
    of: str
    value: float
    low: float
    high: float
    text: str
    ends: str  # of the interval, in words


@dataclass(frozen=True)
class Point:
    """A choice in a plane; ``low`` and ``high`` are the ends of an interval of x."""

    x: float
    y: float
    low: float
    high: float


@dataclass(frozen=True)
class Plane:
    """The choices of a chooser in a plane, and what its axes are; ticks are numbers and their words."""

    points: Sequence[Point]
    x: str
    y: str
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]


def bar_svg(bar: Bar, ends: tuple[float, float]) -> str:
    """A bar from 0, or a point where the axis does not begin there, and a line for the interval."""
    start, end = ends
    width = (end - start) or 1.0

    def place(value: float) -> float:
        return min(max(100 * (value - start) / width, 0.0), 100.0)

    shapes = '<rect class="track" x="0" y="0" width="100" height="20"/>'
    if not math.isnan(bar.value):
        at = place(bar.value)
        if start == 0:
            shapes += f'<rect class="value" x="0" y="3" width="{at:.2f}" height="14"/>'
        if not math.isnan(bar.low) and not math.isnan(bar.high):
            low, high = place(bar.low), place(bar.high)
            shapes += (
                f'<rect class="interval" x="{low:.2f}" y="9" width="{max(high - low, 0.3):.2f}" height="2"/>'
            )
        shapes += f'<rect class="point" x="{max(at - 0.4, 0):.2f}" y="3" width="0.8" height="14"/>'
    return (
        f'<svg class="bar" viewBox="0 0 100 20" preserveAspectRatio="none" focusable="false">{shapes}</svg>'
    )


_SIZE, _MARGINS = (480, 300), (80, 28, 16, 46)  # of a plane: width, height; left, right, top, bottom


def plane_svg(plane: Plane, chosen: int) -> str:
    """Choices in a plane; the ring marks the one that is chosen at first, colour the one that is shown."""
    left, right, top, bottom = _MARGINS
    width, height = _SIZE[0] - left - right, _SIZE[1] - top - bottom
    (x_start, x_end), (y_start, y_end) = (
        (ticks[0][0], ticks[-1][0]) for ticks in (plane.x_ticks, plane.y_ticks)
    )

    def across(value: float) -> float:
        share = (value - x_start) / ((x_end - x_start) or 1.0)
        return left + width * min(max(share, 0.0), 1.0)

    def up(value: float) -> float:
        share = (value - y_start) / ((y_end - y_start) or 1.0)
        return top + height * (1 - min(max(share, 0.0), 1.0))

    shapes = [f'<path class="axis" d="M{left} {top}V{top + height}H{left + width}"/>']
    for value, words in plane.x_ticks:
        at = f'x="{across(value):.1f}" y="{top + height + 16}"'
        shapes.append(f'<text {at} text-anchor="middle">{escape(words)}</text>')
    for value, words in plane.y_ticks:
        shapes.append(
            f'<text x="{left - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{escape(words)}</text>'
        )
    middle = left + width / 2
    shapes.append(f'<text x="{middle}" y="{_SIZE[1] - 8}" text-anchor="middle">{escape(plane.x)}</text>')
    shapes.append(
        f'<text transform="translate(14 {top + height / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(plane.y)}</text>"
    )
    drawn = [
        (k, point)
        for k, point in enumerate(plane.points)
        if math.isfinite(point.x) and math.isfinite(point.y)
    ]
    path = "L".join(f"{across(point.x):.1f} {up(point.y):.1f}" for _, point in drawn)
    if path:
        shapes.append(f'<path class="path" d="M{path}"/>')
    for k, point in drawn:
        x, y = across(point.x), up(point.y)
        line = ""
        if math.isfinite(point.low) and math.isfinite(point.high):
            ends = f'x1="{across(point.low):.1f}" x2="{across(point.high):.1f}"'
            line = f'<line class="interval" {ends} y1="{y:.1f}" y2="{y:.1f}"/>'
        ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="11"/>' * (k == chosen)
        shapes.append(
            f'<g data-choice="{k}">{line}{ring}<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>'
        )
    return (
        f'<svg class="frontier" viewBox="0 0 {_SIZE[0]} {_SIZE[1]}" aria-hidden="true" focusable="false">'
        + "".join(shapes)
        + "</svg>"
    )
