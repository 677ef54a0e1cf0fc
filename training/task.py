"""One request that one tool call fulfils: its text, the call, and what the tool may answer."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from training.dialogue import Scene
from training.phrasing import fill, load

REQUESTS = load("requests", more="everyday")


class Style(Enum):
    """Whether a request stands alone, or is joined with another by "and"."""

    ALONE = auto()
    JOINED = auto()


@dataclass(frozen=True)
class Task:
    """A request and its one call; `path` is the file or folder that it is about."""

    kind: str
    text: str
    args: dict[str, object]
    want: str
    answer: Callable[[], str]  # the tool's result
    path: str = ""


Maker = Callable[[Scene, Style], Task]


def ask(s: Scene, intent: str, style: Style = Style.ALONE, **values: str) -> str:
    """A request with this intent."""
    phrases = REQUESTS[intent]
    say = phrases.bare if style is Style.JOINED else phrases.pick
    return fill(say(s.rng, held=s.held), **values)


def shown(rng: random.Random, path: str) -> str:
    """A path as users type it: quoted now and then, always if it has spaces."""
    if rng.random() < 0.08 or " " in path:
        quote = rng.choice("`'\"")
        return f"{quote}{path}{quote}"
    return path


def quoted(rng: random.Random, text: str) -> str:
    """A text in quotes that it does not contain."""
    marks = [mark for mark in "'\"`" if mark not in text]
    mark = rng.choice(marks[:2]) if rng.random() < 0.9 else marks[-1]
    return mark + text + mark


def set_off(rng: random.Random, text: str) -> str:
    """A text in quotes now and then, bare mostly."""
    return text if rng.random() < 0.75 else quoted(rng, text)
