"""Plays sessions to a server, each by an agent of its own, and notes what it computes."""

import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx

from bench.table import milliseconds, ratio
from bench.traces.sessions import Request, Session, tokens

TIMEOUT = 900.0


@dataclass(slots=True)
class Result:
    """What a side computed and how long its agents waited."""

    side: str
    computed: int = 0
    """Tokens of prompts."""
    firsts: list[float] = field(default_factory=list[float])
    failures: int = 0
    seconds: float = 0.0

    def row(self, least: int) -> list[str]:
        """The row of a table; `least` are the tokens that must be computed."""
        firsts = sorted(self.firsts) or [0.0]
        return [
            self.side,
            ratio(self.computed, least) if not self.failures else "–",
            milliseconds(statistics.median(firsts)) if self.firsts else "–",
            milliseconds(firsts[int(len(firsts) * 0.95)]) if self.firsts else "–",
            f"{self.seconds:.1f} s" if self.seconds else "–",
            str(self.failures),
        ]


async def play(side: str, url: str, sessions: Sequence[Session], size: int) -> Result:
    """Play all sessions at once, with `size` tokens for a block."""
    result = Result(side)
    # one connection per request: cpp-httplib ends a connection after a stream
    headers = {"Connection": "close"}
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, headers=headers) as client:
        started = perf_counter()
        await asyncio.gather(*(_agent(client, session, size, result) for session in sessions))
        result.seconds = perf_counter() - started
    return result


async def _agent(client: httpx.AsyncClient, session: Session, size: int, result: Result) -> None:
    for request in session.requests:
        await asyncio.sleep(request.wait)
        try:
            await _answer(client, request, size, result)
        except (httpx.HTTPError, RuntimeError):
            result.failures += 1


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
