"""Plays sessions back to a server that must give exactly the recorded answers."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import httpx

from bench.replay.sessions import Session

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
    usage: dict[str, Any] = {}
    started, first, text = perf_counter(), 0.0, ""
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.is_error:
            raise RuntimeError(f"{response.status_code}: {(await response.aread())[:400]!r}")
        async for line in response.aiter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices", []):
                piece = choice["delta"].get("content") or ""
                first = first or (perf_counter() if piece else 0.0)
                text += piece
    ended = perf_counter()
    if text != expected:
        raise RuntimeError(f"the server wrote {text[-200:]!r} instead of {expected[-200:]!r}")
    details: dict[str, int] = usage.get("prompt_tokens_details") or {}
    return Step(
        (first or ended) - started,
        ended - started,
        usage.get("prompt_tokens", 0),
        details.get("cached_tokens", 0),
        usage.get("completion_tokens", 0),
    )


def literal(text: str) -> str:
    """A grammar in GBNF that allows exactly this text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f'root ::= "{"".join(escapes.get(char, char) for char in text)}"'
