"""Each API on the built-in model, beside llama.cpp's own server where it has the same path."""

import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.peers import Load, llama_server, shepherd_server
from bench.server.load import Post, body_of, latencies
from bench.table import markdown, milliseconds, ratio
from shepherd.models import BUILTIN_NAME, builtin_model

OURS, THEIRS = "Shepherd", "llama.cpp"
_CONTEXT = 4096
_QUESTION = "Tell me about the sheep in the hills, and about the dog that watches them."


@dataclass(frozen=True, slots=True)
class Sizes:
    """Alternating rounds of so many requests, each answered with about `tokens`."""

    rounds: int = 10
    requests: int = 5
    tokens: int = 64


QUICK = Sizes(rounds=1, requests=1, tokens=8)


@dataclass(frozen=True, slots=True)
class Path:
    """A path, its request for a number of tokens, and the tokens that an answer says it has."""

    path: str
    body: Callable[[int], Mapping[str, Any]]
    tokens: Callable[[dict[str, Any]], int]


@dataclass
class Figures:
    """The seconds of requests, and the tokens of each answer; `missing` is why there are none."""

    tokens: int = 0
    seconds: list[float] = field(default_factory=list[float])
    missing: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return self.tokens / self.median


def _messages(tokens: int, limit: str, **more: Any) -> Mapping[str, Any]:
    messages = [{"role": "user", "content": _QUESTION}]
    greedy = {"temperature": 0, "ignore_eos": True}
    return {"model": BUILTIN_NAME, "messages": messages, limit: tokens, **greedy, **more}


def _prompt(tokens: int, limit: str) -> Mapping[str, Any]:
    body = {key: value for key, value in _messages(tokens, limit).items() if key != "messages"}
    return {**body, "prompt": _QUESTION}


def _responses(tokens: int) -> Mapping[str, Any]:
    body = _messages(tokens, "max_output_tokens", store=False)
    return {key: value for key, value in body.items() if key != "messages"} | {"input": _QUESTION}


def _anthropic(tokens: int) -> Mapping[str, Any]:
    """Without `ignore_eos`, which this API does not have."""
    body = _messages(tokens, "max_tokens")
    return {key: value for key, value in body.items() if key != "ignore_eos"}


PATHS = (
    Path(
        "/v1/chat/completions",
        lambda tokens: _messages(tokens, "max_tokens"),
        lambda answer: answer["usage"]["completion_tokens"],
    ),
    Path(
        "/v1/completions",
        lambda tokens: _prompt(tokens, "max_tokens"),
        lambda answer: answer["usage"]["completion_tokens"],
    ),
    Path(
        "/completion",
        lambda tokens: _prompt(tokens, "n_predict"),
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
        posts = {side: Post(url, path.path, path.body(sizes.tokens)) for side, url in urls.items()}
        for side, post in posts.items():
            found[path.path, side] = await _begun(path, post)
        for _ in range(sizes.rounds):
            for side, post in posts.items():
                figures = found[path.path, side]
                if not figures.missing:
                    figures.seconds += await latencies(post, sizes.requests)
        print(f"measured {path.path}", file=sys.stderr, flush=True)
    return found


async def _begun(path: Path, post: Post) -> Figures:
    """The tokens of an answer, or the reason why the side has none."""
    try:
        answer = json.loads(await body_of(post))
    except ConnectionError as error:
        return Figures(missing=str(error).partition("\r\n")[0])
    return Figures(path.tokens(answer))


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
