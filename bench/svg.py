"""Shapes of plots as SVG, without a library."""

from collections.abc import Sequence

COLOURS = ("#999999", "#d08770", "#5e81ac", "#a3be8c", "#b4305f")
GRID = "#dddddd"
_FONT = 'font-family="sans-serif" font-size="12"'


def picture(width: int, height: int, shapes: Sequence[str]) -> str:
    """A whole file: the shapes on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>'
    ground = f'<rect width="{width}" height="{height}" fill="white"/>'
    return "\n".join([head, ground, *shapes, "</svg>", ""])


def text(x: float, y: float, content: str, anchor: str = "start", colour: str = "black") -> str:
    """A line of text; `anchor` is the part of it that is at `x`: start, middle or end."""
    escaped = content.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.0f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escaped}</text>'


def line(points: Sequence[tuple[float, float]], colour: str, width: int = 2) -> str:
    """A line through points."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'
