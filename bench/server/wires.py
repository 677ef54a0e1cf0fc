"""Each API on the built-in model, beside llama.cpp's own server where it has the same path."""

import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.peers import Load, llama_server, shepherd_server
from bench.server.load import Post, answered
from bench.table import markdown, milliseconds, ratio
from shepherd.models import BUILTIN_NAME, builtin_model

OURS, THEIRS = "Shepherd", "llama.cpp"
_CONTEXT = 4096
_ANIMALS = ("sheep", "dog", "goat", "cow", "horse", "hen", "fox")
_PLACES = ("hills", "valley", "old mill", "meadow by the river", "village", "forest", "harbour",
           "barn", "market square", "garden behind the house", "snow")  # fmt: skip


def question(number: int) -> str:
    """A question that no other number below 77 has."""
    animal, place = _ANIMALS[number % len(_ANIMALS)], _PLACES[number % len(_PLACES)]
    return f"Tell me about the {animal} in the {place}, and about the dog that watches it."


@dataclass(frozen=True, slots=True)
class Sizes:
    """Alternating rounds of so many requests, each answered with about `tokens`.

    No question is asked twice.
    """

    rounds: int = 10
    requests: int = 5
    tokens: int = 64


QUICK = Sizes(rounds=1, requests=1, tokens=8)


@dataclass(frozen=True, slots=True)
class Path:
    """A path, its request by question and number of tokens, and the tokens of an answer."""

    path: str
    body: Callable[[str, int], Mapping[str, Any]]
    tokens: Callable[[dict[str, Any]], int]


@dataclass
class Figures:
    """The seconds and the tokens of each answer; `missing` is why there are none."""

    seconds: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])
    missing: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """Tokens per second, the median of all answers."""
        pairs = zip(self.tokens, self.seconds, strict=True)
        return statistics.median(tokens / seconds for tokens, seconds in pairs)


def _messages(asked: str, tokens: int, limit: str, **more: Any) -> Mapping[str, Any]:
    messages = [{"role": "user", "content": asked}]
    return {"model": BUILTIN_NAME, "messages": messages, limit: tokens, "ignore_eos": True, **more}


def _prompt(asked: str, tokens: int, limit: str) -> Mapping[str, Any]:
    body = _messages(asked, tokens, limit).items()
    return {**{key: value for key, value in body if key != "messages"}, "prompt": asked}


def _responses(asked: str, tokens: int) -> Mapping[str, Any]:
    body = _messages(asked, tokens, "max_output_tokens", store=False)
    return {key: value for key, value in body.items() if key != "messages"} | {"input": asked}


def _anthropic(asked: str, tokens: int) -> Mapping[str, Any]:
    """Without `ignore_eos`, which this API does not have."""
    body = _messages(asked, tokens, "max_tokens")
    return {key: value for key, value in body.items() if key != "ignore_eos"}


PATHS = (
    Path(
        "/v1/chat/completions",
        lambda asked, tokens: _messages(asked, tokens, "max_tokens"),
        lambda answer: answer["usage"]["completion_tokens"],
    ),
    Path(
        "/v1/completions",
        lambda asked, tokens: _prompt(asked, tokens, "max_tokens"),
        lambda answer: answer["usage"]["completion_tokens"],
    ),
    Path(
        "/completion",
        lambda asked, tokens: _prompt(asked, tokens, "n_predict"),
        lambda answer: answer["tokens_predicted"],
    ),
    Path(
        "/v1/messages",
        _anthropic,
        lambda answer: answer["usage"]["output_tokens"],
    ),
    Path("/v1/responses", _responses, lambda answer: answer["usage"]["output_tokens"]),
)
"""The paths that both servers have for a model that writes text."""


def main(sizes: Sizes) -> str:
    """The table."""
    load = Load(builtin_model(), _CONTEXT)
    with shepherd_server(load) as ours, llama_server(load) as theirs:
        figures = asyncio.run(measure({OURS: ours, THEIRS: theirs}, sizes))
    return table(figures)


async def measure(urls: Mapping[str, str], sizes: Sizes) -> dict[tuple[str, str], Figures]:
    """Alternating rounds of both sides, by path and side."""
    found: dict[tuple[str, str], Figures] = {}
    for path in PATHS:
        for side in urls:
            found[path.path, side] = Figures()
        for number in range(sizes.rounds):
            for side, url in urls.items():
                await _round(found[path.path, side], url, path, sizes, number)
        print(f"measured {path.path}", file=sys.stderr, flush=True)
    return found


async def _round(figures: Figures, url: str, path: Path, sizes: Sizes, number: int) -> None:
    """Measure one round of a side, unless it does not have the path."""
    numbers = range(number * sizes.requests, (number + 1) * sizes.requests)
    bodies = [path.body(question(each), sizes.tokens) for each in numbers]
    if figures.missing:
        return
    try:
        answers = await answered([Post(url, path.path, body) for body in bodies])
    except ConnectionError as error:
        figures.missing = str(error).partition("\r\n")[0]
        return
    figures.seconds += [answer.seconds for answer in answers]
    figures.tokens += [path.tokens(json.loads(answer.body)) for answer in answers]


def table(figures: Mapping[tuple[str, str], Figures]) -> str:
    """One row for each path."""
    rows: list[list[str]] = []
    for path in PATHS:
        ours, theirs = figures[path.path, OURS], figures[path.path, THEIRS]
        beside = "–" if ours.missing or theirs.missing else ratio(ours.speed, theirs.speed)
        rows.append([path.path, *_cells(ours), *_cells(theirs), beside])
    header = ["path", OURS, "tokens/s", THEIRS, "tokens/s", "tokens/s beside it"]
    return markdown(header, rows)


def _cells(figures: Figures) -> list[str]:
    if figures.missing:
        return [figures.missing, "–"]
    return [milliseconds(figures.median), f"{figures.speed:.0f}"]
