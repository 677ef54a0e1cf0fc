"""The table of all numbers, with ratios and goals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.table import markdown, ratio

Rounds = Mapping[str, Sequence[Mapping[str, float]]]
"""The results of each round, by the name of a side."""

OURS, SERVER, PYTHON_SERVER = "Shepherd", "llama.cpp", "llama-cpp-python"
HEADER = (
    "what", "Shepherd", "llama.cpp's server", "ratio", "llama-cpp-python's server", "ratio",
    "goal", "met",
)  # fmt: skip


def tokens_per_second(value: float) -> str:
    return f"{value:.1f} tokens/s"


def seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 10 else f"{value:.2f} s"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def times(value: float) -> str:
    return f"{value:.1f} ×"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio to another side, or, without one, on the number itself."""

    against: str
    bound: float
    is_minimum: bool

    @property
    def text(self) -> str:
        sign = "≥" if self.is_minimum else "≤"
        return f"{sign} {self.bound} ×" + (f" {self.against}" if self.against else "")

    def met(self, values: Mapping[str, float | None]) -> bool | None:
        """None if the other side was not measured."""
        ours, base = values[OURS], values[self.against] if self.against else 1.0
        if ours is None or not base:
            return None
        value = ours / base
        return value >= self.bound if self.is_minimum else value <= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """A number of the results, its format, and its goals."""

    name: str
    what: str
    show: Callable[[float], str]
    goals: tuple[Goal, ...] = ()


ROWS = (
    Row("decode", "one stream", tokens_per_second, (Goal(SERVER, 1.0, is_minimum=True),)),
    Row(
        "streams",
        "8 streams at once",
        tokens_per_second,
        (Goal(SERVER, 1.2, is_minimum=True), Goal(PYTHON_SERVER, 2.0, is_minimum=True)),
    ),
    Row("cold 1", "first token, cold, turn 1", seconds, (Goal(SERVER, 1.0, is_minimum=False),)),
    Row("cold 10", "first token, cold, turn 10", seconds, (Goal(SERVER, 1.0, is_minimum=False),)),
    Row("warm", "first token, warm, turns 2–10", seconds, (Goal(SERVER, 0.6, is_minimum=False),)),
    Row("warm 10", "first token, warm, turn 10", seconds),
    Row("cold/warm 10", "cold over warm, turn 10", times, (Goal("", 25.0, is_minimum=True),)),
    Row(
        "alternate",
        "two clients alternating, first token",
        seconds,
        (Goal(SERVER, 1.0, is_minimum=False),),
    ),
    Row("alternate worst", "the slowest of these", seconds),
    Row("alternate cached", "the least that was cached of these", percent),
    Row(
        "gap",
        "longest gap in 7 streams beside a long prompt",
        seconds,
        (Goal(SERVER, 0.5, is_minimum=False),),
    ),
    Row("beside", "that prompt's first token", seconds),
    Row("restart", "first token after a restart", seconds),
)


def table(rounds: Rounds) -> str:
    """Medians over the rounds, as Markdown."""
    return markdown(HEADER, [_line(row, rounds) for row in ROWS])


def _line(row: Row, rounds: Rounds) -> tuple[str, ...]:
    values = {side: _median(row.name, rounds.get(side, ())) for side in _SIDES}
    cells = {side: "–" if v is None else row.show(v) for side, v in values.items()}
    goals = [(goal.text, goal.met(values)) for goal in row.goals]
    return (
        row.what,
        cells[OURS],
        cells[SERVER],
        _ratio(values[OURS], values[SERVER]),
        cells[PYTHON_SERVER],
        _ratio(values[OURS], values[PYTHON_SERVER]),
        ", ".join(text for text, _ in goals),
        ", ".join({True: "yes", False: "no", None: "–"}[met] for _, met in goals),
    )


def _median(name: str, results: Sequence[Mapping[str, float]]) -> float | None:
    values = [result[name] for result in results if name in result]
    return median(values) if values else None


def _ratio(ours: float | None, theirs: float | None) -> str:
    return "–" if ours is None or theirs is None else ratio(ours, theirs)


_SIDES = (OURS, SERVER, PYTHON_SERVER)
