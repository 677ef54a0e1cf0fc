"""Shepherd as the provider of another one, in Anthropic's language."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from shepherd.backends.api.backend import ApiBackend
from shepherd.errors import ContextFullError
from shepherd.events import CallbackEvent, FinishReason
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.backends.api.support import Events
from tests.server.anthropic.support import HI, READ, THINK, ask, client_of, stream
from tests.server.harness import RunningServer
from tests.upstreams.asking import Files, asking, provider
from tests.upstreams.chain import Innermost

MODEL = "claude-opus-4-1"
"""A model that is known to think."""

LOOK = """context: 50000
think: hm
text: So ö.
call: list_directory {"path": "a"}
call: list_directory {"path": "b ü"}
---
text: That is all.
"""


@asynccontextmanager
async def behind(innermost: Innermost) -> AsyncGenerator[ApiBackend]:
    innermost.name = MODEL
    with RunningServer(innermost) as server:
        backend = await provider("anthropic", server.url, model=MODEL)
        try:
            yield backend
        finally:
            await backend.aclose()


async def test_a_turn_with_thoughts_and_calls() -> None:
    innermost, session, events = Innermost(LOOK), asking(tools=True, thinking=True), Events()
    async with behind(innermost) as backend:
        assert (backend.info.id, backend.info.context_size) == (MODEL, 50000)
        files = Files()
        outcome = await run_turn(session, "Which files?", backend, files, events)
    asked, first, second, answer = session.messages[1:]
    assert (asked.content, asked.reasoning) == ("So ö.", "hm")
    assert [c.arguments["path"] for c in files.calls] == ["a", "b ü"]
    assert (first.tool_call_id, second.tool_call_id) == tuple(c.id for c in asked.tool_calls)
    assert answer.content == "That is all."
    assert events.of(CallbackEvent.THINKING) == ["hm"]
    assert [s.prompt_tokens for s in outcome.stats] == innermost.counted
    came = innermost.sessions[1].messages
    assert came[1] == replace(asked, extra={})
    assert [m.content for m in came[2:]] == [first.content, second.content]


async def test_the_stop_string_is_told() -> None:
    session = Session(messages=[Message.user("hi")])
    session.sampling = replace(session.sampling, stop=("END",))
    async with behind(Innermost("text: one END two")) as backend:
        generation = await backend.generate_from_session(session, Events())
    assert generation.message.content == "one "
    assert (generation.finish_reason, generation.stop_string) == (FinishReason.STOP, "END")


async def test_a_conversation_that_does_not_fit_is_known() -> None:
    session = Session(messages=[Message.user("word " * 500)])
    async with behind(Innermost("context: 300\ntext: Fine.")) as backend:
        with pytest.raises(ContextFullError):
            await backend.generate_from_session(session, Events())


def test_what_a_provider_signed_comes_back_to_it_through_a_server() -> None:
    innermost = Innermost(LOOK)
    innermost.name = MODEL
    loop = asyncio.new_event_loop()
    with RunningServer(innermost) as inner:
        backend = loop.run_until_complete(provider("anthropic", inner.url, model=MODEL))
        with RunningServer(backend, loop=loop) as outer, client_of(outer) as client:
            first = ask(client, tools=[READ], thinking=THINK, max_tokens=4096)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "seen"}
                for block in first.content
                if block.type == "tool_use"
            ]
            history = [*HI, first.to_param(), {"role": "user", "content": results}]
            options = {"tools": [READ], "thinking": THINK, "max_tokens": 4096}
            streamed = stream(client, messages=history, **options)
    kinds = [block.type for block in first.content]
    assert kinds == ["thinking", "text", "redacted_thinking", "tool_use", "tool_use"]
    assert innermost.sessions[1].messages[1].reasoning == "hm"
    assert [block.type for block in streamed.content] == ["text"]
