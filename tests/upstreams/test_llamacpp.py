"""llama.cpp's own server behind us, in each of the languages that it speaks."""

import asyncio
from typing import Any

import httpx
import pytest

from shepherd.errors import AccessError
from shepherd.events import CallbackEvent, FinishReason, Topic
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.turn import TurnLimits, run_turn
from tests.backends.api.support import Events
from tests.patience import PATIENCE
from tests.upstreams.asking import Files, asking, provider
from tests.upstreams.llama_servers import CONTEXT, KEY, LlamaServers

KINDS = {
    "openai": "llama.cpp's /props",
    "openai-responses": "the list of models (meta.n_ctx)",
    "anthropic": "the server's /props",
}
SHORT = TurnLimits(max_tokens=100)
FEW = 16
"""Tokens; the fewest that may be asked for in the responses API."""

each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
async def test_the_model_and_its_context_are_asked_for(kind: str, llama: LlamaServers) -> None:
    backend = await provider(kind, llama.keyed, KEY)
    await backend.aclose()
    assert backend.info.id.endswith("pup.gguf")
    assert (backend.window.size, backend.window.source) == (CONTEXT, KINDS[kind])


@each_kind
async def test_text_comes_in_pieces_and_is_counted(kind: str, llama: LlamaServers) -> None:
    backend, session, events = await provider(kind, llama.keyed, KEY), asking(), Events()
    await run_turn(session, "Hello! Who are you?", backend, Files(), events, SHORT)
    pieces = events.of(CallbackEvent.CONTENT)
    said = session.messages[-1]
    assert len(pieces) > 1
    assert said.content == "".join(pieces)
    first = await backend.generate_from_session(session_with(session, "And now?"), Events(), FEW)
    again = await backend.generate_from_session(session_with(session, "And now?"), Events(), FEW)
    await backend.aclose()
    assert 0 < again.stats.completion_tokens <= FEW
    assert again.stats.prompt_tokens == first.stats.prompt_tokens > 0
    assert 0 < again.stats.cached_tokens <= again.stats.prompt_tokens
    assert (backend.info.count_error or 0) < 1


@each_kind
@pytest.mark.parametrize("server", ["keyed", "pure"])
@pytest.mark.parametrize("mode", ["thinking", "at once"])
async def test_a_tool_is_called(kind: str, server: str, mode: str, llama: LlamaServers) -> None:
    """By the server's parser or, where it hands on the text as it is, by ours."""
    backend = await provider(kind, getattr(llama, server), KEY)
    session, events, files = asking(tools=True, thinking=mode == "thinking"), Events(), Files()
    await run_turn(session, "Which files are here?", backend, files, events, SHORT)
    await backend.aclose()
    assert events.of(CallbackEvent.ERROR) == []
    [call] = files.calls
    assert call.name == "list_directory"
    asked, result = session.messages[1:3]
    assert asked.tool_calls == (call,)
    assert result.tool_call_id == call.id
    assert session.messages[-1].content
    shown = "".join(events.of(CallbackEvent.CONTENT))
    assert "tool_call" not in shown
    if server == "keyed":
        assert "think>" not in shown


@each_kind
async def test_a_cancel_frees_the_slot(kind: str, llama: LlamaServers) -> None:
    backend, session = await provider(kind, llama.endless, context_size=100_000), asking()
    session.add(Message.user("Tell me a story."))
    stopped = await backend.generate_from_session(session, Events(stop_at=0))
    assert stopped.finish_reason is FinishReason.CANCELLED
    async with asyncio.timeout(60):
        while (slot := await slot_of(llama.endless))["is_processing"]:
            await asyncio.sleep(0.02)
        again = await backend.generate_from_session(session, Events(), FEW)
    await backend.aclose()
    assert slot["next_token"][0]["n_decoded"] < 8000
    assert again.stats.completion_tokens == FEW


@each_kind
async def test_a_full_context_is_made_room_in(kind: str, llama: LlamaServers) -> None:
    """Nobody knew how small it is, so that the server had to say no."""
    backend = await provider(kind, llama.pure, context_size=100_000)
    session, events = asking(), Events()
    for number in range(12):
        session.add(Message.user(f"Question {number}: " + "what is a file? " * 20))
        session.add(Message.assistant(f"Answer {number}: a thing with a name."))
    outcome = await run_turn(session, "And a directory?", backend, Files(), events, SHORT)
    await backend.aclose()
    assert outcome.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    evicted = [e for e in events.all if e[0] is CallbackEvent.SYSTEM and e[2] == Topic.EVICTION]
    assert evicted
    assert events.of(CallbackEvent.ERROR) == []
    assert session.messages[-2].content == "And a directory?"
    assert 2 < len(session.messages) < 26
    assert backend.window.size == CONTEXT
    assert "the context was full" in backend.window.source
    assert outcome.stats[-1].context_used <= CONTEXT


@each_kind
async def test_a_wrong_key_is_told(kind: str, llama: LlamaServers) -> None:
    with pytest.raises(AccessError) as refused:
        await provider(kind, llama.keyed, "not-the-key-9876")
    assert "up refuses the API key" in str(refused.value)
    assert "9876" not in str(refused.value)


@each_kind
async def test_a_model_that_is_not_listed_answers(kind: str, llama: LlamaServers) -> None:
    """The server has one model, whatever it is asked for."""
    backend = await provider(kind, llama.pure, model="no-such-model")
    session = session_with(asking(), "Hello!")
    generation = await backend.generate_from_session(session, Events(), 20)
    await backend.aclose()
    assert backend.info.id == "no-such-model"
    assert generation.message.content


def session_with(session: Session, text: str) -> Session:
    """The session with one more question."""
    messages = [*session.messages, Message.user(text)]
    return Session(session.system_message, messages, sampling=session.sampling)


async def slot_of(url: str) -> dict[str, Any]:
    """The only slot of a server."""
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        slots = (await client.get(f"{url}/slots", timeout=60)).json()
    return slots[0]
