"""Plays sessions, each by an agent of its own, and notes what is computed."""

import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx

from bench.table import milliseconds, ratio
from bench.traces.sessions import Request, Session, tokens
from shepherd.errors import ShepherdError

TIMEOUT = 900.0

Ask = Callable[[str, Request, Request | None], Awaitable[None]]
"""Asks a request of the session of this name, which the third one follows."""


@dataclass(slots=True)
class Result:
    """What a side computed and how long its agents waited."""

    side: str
    computed: int = 0
    """Tokens of prompts."""
    firsts: list[float] = field(default_factory=list[float])
    failures: int = 0
    seconds: float = 0.0
    order: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """The session and the number of each request, as they ended."""
    token_bytes: float = 0.0
    """Of the state of a token, if it is known."""

    def row(self, optimum: int, foreseen: int) -> list[str]:
        """The row of a table.

        `optimum` tokens must be computed with room for all, `foreseen` by a cache that knows the
        future.
        """
        firsts = sorted(self.firsts)
        whole = not self.failures
        return [
            self.side,
            ratio(self.computed, optimum) if whole else "–",
            ratio(self.computed, foreseen) if whole and foreseen else "–",
            milliseconds(statistics.median(firsts)) if firsts else "–",
            milliseconds(firsts[int(len(firsts) * 0.95)]) if firsts else "–",
            f"{self.seconds:.1f} s" if self.seconds else "–",
            str(self.failures),
        ]


async def play(result: Result, ask: Ask, sessions: Sequence[Session]) -> None:
    """Play all sessions at once."""
    started = perf_counter()
    await asyncio.gather(*(_agent(ask, s, n, result) for n, s in enumerate(sessions)))
    result.seconds = perf_counter() - started


async def _agent(ask: Ask, session: Session, number: int, result: Result) -> None:
    requests = session.requests
    for place, request in enumerate(requests):
        await asyncio.sleep(request.wait)
        following = requests[place + 1] if place + 1 < len(requests) else None
        try:
            await ask(session.name, request, following)
        except (httpx.HTTPError, RuntimeError, ShepherdError):
            result.failures += 1
        result.order.append((number, place))


async def play_to_server(result: Result, url: str, sessions: Sequence[Session], size: int) -> None:
    """Play all sessions to a server, with `size` tokens for a block."""
    # one connection per request: cpp-httplib ends a connection after a stream
    headers = {"Connection": "close"}
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, headers=headers) as client:

        async def ask(_name: str, request: Request, _following: Request | None) -> None:
            await _answer(client, request, size, result)

        await play(result, ask, sessions)


async def _answer(client: httpx.AsyncClient, request: Request, size: int, result: Result) -> None:
    """Ask for an answer, whose tokens the next prompt replaces by those of the trace."""
    body: dict[str, Any] = {
        "prompt": tokens(request.blocks, size),
        "n_predict": max(2, request.answer * size // 64),
        "ignore_eos": True,
        "stream": True,
        "temperature": 0,
        "cache_prompt": True,
    }
    started = perf_counter()
    first, last = 0.0, dict[str, Any]()
    async with client.stream("POST", "/completion", json=body) as response:
        if response.is_error:
            raise RuntimeError(f"{response.status_code}: {(await response.aread())[:400]!r}")
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                first = first or perf_counter() - started
                last = json.loads(line[6:])
    timings: dict[str, Any] | None = last.get("timings")
    if timings is None:
        raise RuntimeError(f"the answer ended with {last}")
    result.firsts.append(first)
    result.computed += int(timings["prompt_n"])
