"""Shepherd as the provider of another Shepherd, by the APIs of Google, Ollama and OpenAI."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from shepherd.backends.api.backend import ApiBackend
from shepherd.errors import ContextFullError
from shepherd.messages import Message
from shepherd.turn import run_turn
from tests.backends.api.support import Events
from tests.server.harness import RunningServer
from tests.upstreams.asking import Files, asking, provider
from tests.upstreams.chain import Innermost

LOOK = r"""
context: 500
think: hm
text: "So ö."
call: list_directory {"path": "a"}
call: list_directory {"path": "b ü"}
---
chunk: 3
text: "Two:\n```sh\nls\n```\nThat is all."
"""

MODELS = {"gemini": "gemini-2.5-flash", "ollama": "script", "openai-responses": "gpt-5-mini"}
"""Google's and OpenAI's models are known by their names; the server takes any."""

each_kind = pytest.mark.parametrize("kind", sorted(MODELS))


@asynccontextmanager
async def by_api(kind: str, innermost: Innermost) -> AsyncGenerator[ApiBackend]:
    """What asks a server by the API of this vendor."""
    with RunningServer(innermost) as server:
        backend = await provider(kind, server.url, model=MODELS[kind], effort="high")
        try:
            yield backend
        finally:
            await backend.aclose()


@each_kind
async def test_a_turn_with_thoughts_and_calls(kind: str) -> None:
    innermost, session, files = Innermost(LOOK), asking(tools=True, thinking=True), Files()
    async with by_api(kind, innermost) as backend:
        outcome = await run_turn(session, "Which files?", backend, files, Events())
    asked, first, second, answer = session.messages[1:]
    assert (asked.content, asked.reasoning) == ("So ö.", "hm")
    assert [c.arguments["path"] for c in files.calls] == ["a", "b ü"]
    assert [first.tool_call_id, second.tool_call_id] == [call.id for call in asked.tool_calls]
    assert answer.content == "Two:\n```sh\nls\n```\nThat is all."
    assert [stats.prompt_tokens for stats in outcome.stats] == innermost.counted
    sent = innermost.sessions[-1]
    assert [m.content for m in sent.messages] == [m.content for m in session.messages[:-1]]
    assert [m.reasoning for m in sent.messages] == [m.reasoning for m in session.messages[:-1]]
    assert [m.name for m in sent.messages] == [m.name for m in session.messages[:-1]]
    assert sent.system_message == session.system_message
    assert [tool.name for tool in sent.tools] == ["list_directory"]
    assert sent.thinking


@each_kind
async def test_a_full_context_is_known_with_its_numbers(kind: str) -> None:
    session = asking()
    session.add(Message.user("word " * 600))
    async with by_api(kind, Innermost(LOOK)) as backend:
        with pytest.raises(ContextFullError) as caught:
            await backend.generate_from_session(session, Events())
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 600
