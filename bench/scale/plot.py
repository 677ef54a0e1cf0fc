"""A plot of hit rates."""

import math
from collections.abc import Mapping, Sequence

from bench.svg import COLOURS, GRID, line, picture, text

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, LEGEND = 640, 360, 56, 40, 16, 150


def draw(values: Mapping[tuple[str, int], float], names: Sequence[str]) -> str:
    """Hit rates over the number of replicas, one line for each router."""
    replicas = sorted({number for _, number in values})
    top = math.log10(max(replicas)) or 1.0

    def place(number: int, value: float) -> tuple[float, float]:
        x = LEFT + math.log10(number) / top * (WIDTH - LEFT - LEGEND)
        return x, TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)

    shapes: list[str] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = place(1, share)
        shapes += [
            line([(x, y), (WIDTH - LEGEND, y)], GRID, 1),
            text(x - 6, y + 4, f"{share:.0%}", "end"),
        ]
    for number in replicas:
        x, y = place(number, 0.0)
        shapes.append(text(x, y + 18, f"{number:,}", "middle"))
    ends = sorted(names, key=lambda name: -values[name, replicas[-1]])
    for name, colour in zip(names, COLOURS, strict=True):
        shapes.append(line([place(number, values[name, number]) for number in replicas], colour))
        row = TOP + 20 + 20 * ends.index(name)
        shapes.append(text(WIDTH - LEGEND + 16, row, name, colour=colour))
    shapes.append(text((LEFT + WIDTH - LEGEND) / 2, HEIGHT - 4, "replicas", "middle"))
    return picture(WIDTH, HEIGHT, shapes)
