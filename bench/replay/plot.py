"""A plot of how long each server needs for the sessions."""

from collections.abc import Mapping, Sequence

from bench.replay.drive import Result
from bench.svg import COLOURS, GRID, bar, line, picture, text

WIDTH, LEFT, RIGHT, ROW, BAR = 720, 300, 60, 22, 14
_READING, _WRITING = COLOURS[2], COLOURS[1]


def draw(groups: Mapping[str, Sequence[Result]]) -> str:
    """A group of bars for each model and number of agents, a bar for each server.

    A bar is split by the shares of the answers' time before and after their first text.
    """
    longest = max(result.seconds for results in groups.values() for result in results)
    scale = (WIDTH - LEFT - RIGHT) / longest
    shapes = [
        text(LEFT, 16, "until the first text", colour=_READING),
        text(LEFT + 130, 16, "until the end of the answer", colour=_WRITING),
    ]
    y = 24.0
    for title, results in groups.items():
        y += ROW
        shapes += [text(8, y, title), line([(8, y + 5), (WIDTH - 8, y + 5)], GRID, 1)]
        for result in results:
            y += ROW
            reading = result.seconds * result.share_until_first * scale
            writing = result.seconds * scale - reading
            shapes += [
                text(LEFT - 8, y, result.side, "end"),
                bar(LEFT, y - BAR + 3, reading, BAR, _READING),
                bar(LEFT + reading, y - BAR + 3, writing, BAR, _WRITING),
                text(LEFT + reading + writing + 6, y, f"{result.seconds:.0f} s"),
            ]
    return picture(WIDTH, round(y) + 12, shapes)
