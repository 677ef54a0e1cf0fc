"""Plays sessions back to a server that must give exactly the recorded answers."""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import httpx

from bench.chat_stream import ChatStream
from bench.replay.sessions import Session
from bench.table import milliseconds

TIMEOUT = 600.0
_ROOM = 1024


@dataclass(frozen=True, slots=True)
class Step:
    """One answer: seconds to its first text and its end, and tokens."""

    first: float
    total: float
    prompt: int
    cached: int
    answer: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a side needed for all sessions."""

    side: str
    seconds: float
    steps: list[Step]

    def with_more(self, seconds: float, steps: Sequence[Step]) -> "Result":
        """The result with further sessions."""
        return Result(self.side, self.seconds + seconds, [*self.steps, *steps])

    def row(self, best: float) -> list[str]:
        """The row of a table; `best` are the seconds of the best other server."""
        firsts = sorted(step.first for step in self.steps)
        read = sum(step.prompt - step.cached for step in self.steps)
        return [
            self.side,
            f"{self.seconds:.1f} s",
            f"{self.seconds / best:.2f} ×" if best else "–",
            milliseconds(statistics.median(firsts)),
            milliseconds(firsts[int(len(firsts) * 0.9)]),
            f"{read:,}",
            f"{sum(step.cached for step in self.steps):,}",
            f"{sum(step.answer for step in self.steps):,}",
        ]

    @property
    def share_until_first(self) -> float:
        """The share of the answers' time that passes before their first text."""
        return sum(step.first for step in self.steps) / sum(step.total for step in self.steps)


async def play(url: str, sessions: Sequence[Session], agents: int) -> tuple[float, list[Step]]:
    """The seconds of all sessions, so many of them at a time, and their answers."""
    waiting = list(reversed(sessions))
    steps: list[Step] = []
    # one connection per request: cpp-httplib ends a connection after a stream
    headers = {"Connection": "close"}
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT, headers=headers) as client:

        async def agent() -> None:
            while waiting:
                steps.extend(await _session(client, waiting.pop()))

        started = perf_counter()
        await asyncio.gather(*(agent() for _ in range(agents)))
        return perf_counter() - started, steps


async def _session(client: httpx.AsyncClient, session: Session) -> list[Step]:
    messages = [{"role": "system", "content": session.system}]
    steps: list[Step] = []
    for turn in session.turns:
        messages.append({"role": "user", "content": turn.user})
        steps.append(await _answer(client, messages, turn.assistant))
        messages.append({"role": "assistant", "content": turn.assistant})
    return steps


async def _answer(client: httpx.AsyncClient, messages: list[dict[str, str]], expected: str) -> Step:
    """Ask for an answer that a grammar fixes; raises RuntimeError if another one comes."""
    body: dict[str, Any] = {
        "model": "default",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": len(expected.encode()) + _ROOM,
        "grammar": literal(expected),
        "chat_template_kwargs": {"enable_thinking": False},
    }
    answer = ChatStream()
    await answer.read(client, body)
    if answer.text != expected:
        raise RuntimeError(
            f"the server wrote {answer.text[-200:]!r} instead of {expected[-200:]!r}"
        )
    return Step(
        answer.first_token,
        answer.total,
        answer.prompt_tokens,
        answer.cached_tokens,
        answer.completion_tokens,
    )


def literal(text: str) -> str:
    """A grammar in GBNF that allows exactly this text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f'root ::= "{"".join(escapes.get(char, char) for char in text)}"'
