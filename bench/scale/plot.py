"""A plot as SVG, without a library."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, LEGEND = 640, 360, 56, 40, 16, 150
_FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = ("#999999", "#d08770", "#5e81ac", "#a3be8c", "#b4305f")


def draw(values: Mapping[tuple[str, int], float], names: Sequence[str]) -> str:
    """Hit rates over the number of replicas, one line for each router."""
    replicas = sorted({number for _, number in values})
    top = math.log10(max(replicas)) or 1.0

    def place(number: int, value: float) -> tuple[float, float]:
        x = LEFT + math.log10(number) / top * (WIDTH - LEFT - LEGEND)
        return x, TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {_FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = place(1, share)
        end = WIDTH - LEGEND
        parts.append(f'<path d="M{x:.0f} {y:.1f}H{end}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for number in replicas:
        x, y = place(number, 0.0)
        parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{number:,}</text>')
    ends = sorted(names, key=lambda name: -values[name, replicas[-1]])
    for name, colour in zip(names, COLOURS, strict=True):
        points = [place(number, values[name, number]) for number in replicas]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        row = TOP + 20 + 20 * ends.index(name)
        text = f'<text x="{WIDTH - LEGEND + 16}" y="{row}" fill="{colour}">{name}</text>'
        parts.append(text)
    middle = (LEFT + WIDTH - LEGEND) // 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">replicas</text>')
    return "\n".join([*parts, "</svg>", ""])
