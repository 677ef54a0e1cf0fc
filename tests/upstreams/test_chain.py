"""Our own server as upstream, two and three deep: nothing is lost, nothing is told twice."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from shepherd.backends.api.backend import ApiBackend
from shepherd.backends.base import Backend, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.errors import (
    AccessError,
    BackendError,
    BusyError,
    InvalidRequestError,
    UnreachableError,
)
from shepherd.events import CallbackEvent, EventCallback, FinishReason, Topic
from shepherd.messages import Message
from shepherd.sampling import Sampling
from shepherd.session import OutputFormat, Session, ToolChoice
from shepherd.turn import TurnLimits, run_turn
from tests.backends.api.support import Events
from tests.server.held import HeldBackend
from tests.upstreams.asking import Files, asking, provider
from tests.upstreams.chain import Chain, Innermost, chain, programs

LOOK = """context: 500
think: hm
text: So ö.
call: list_directory {"path": "a"}
call: list_directory {"path": "b ü"}
---
text: "Two:\\n```sh\\nls\\n```\\nThat is all."
"""

FULL = {
    "counted": "context: 300\ntext: Fine.",
    "told": "context: 300\nfull: 90\n---\ntext: Fine.",
}
THREE = 3

each_depth = pytest.mark.parametrize("servers", [2, 3])


@asynccontextmanager
async def behind(innermost: Backend, servers: int) -> AsyncGenerator[tuple[ApiBackend, Chain]]:
    """What asks the outermost of so many servers."""
    with chain(innermost, servers) as running:
        backend = await provider("shepherd", running[-1].url)
        try:
            yield backend, running
        finally:
            await backend.aclose()


@each_depth
async def test_a_turn_with_thoughts_and_calls(servers: int) -> None:
    innermost, session, events = Innermost(LOOK), asking(tools=True, thinking=True), Events()
    async with behind(innermost, servers) as (backend, running):
        assert (backend.info.id, backend.info.context_size) == ("script", 500)
        files = Files()
        outcome = await run_turn(session, "Which files?", backend, files, events)
        async with httpx.AsyncClient(timeout=60) as client:
            health = [await client.get(f"{server.url}/health") for server in running]
    asked, first, second, answer = session.messages[1:]
    assert (asked.content, asked.reasoning) == ("So ö.", "hm")
    assert [c.id for c in asked.tool_calls] == ["call_1_0", "call_1_1"]
    assert [c.arguments["path"] for c in files.calls] == ["a", "b ü"]
    assert (first.tool_call_id, second.tool_call_id) == ("call_1_0", "call_1_1")
    assert answer.content == "Two:\n```sh\nls\n```\nThat is all."
    assert events.of(CallbackEvent.CODEBLOCK)
    assert [(s.prompt_tokens, s.context_size) for s in outcome.stats] == [
        (tokens, 500) for tokens in innermost.counted
    ]
    assert [(h.status_code, h.json()["model"]) for h in health] == [(200, "script")] * servers


async def test_the_innermost_gets_the_session_as_it_is() -> None:
    """With its calls, results, thoughts, tools and parameters, and as it was asked for."""
    innermost = Innermost(LOOK)
    session = asking(tools=True, thinking=True)
    session.sampling = Sampling(
        temperature=0.3, top_k=7, top_p=0.8, min_p=0.02, seed=11, stop=("STOP",), penalty_repeat=1.1
    )
    async with behind(innermost, THREE) as (backend, _):
        await run_turn(session, "Which files?", backend, Files(), Events())
        forced = replace(session, tool_choice=ToolChoice("list_directory"))
        await backend.generate_from_session(forced, Events(), 33)
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        shaped = replace(session, output_format=OutputFormat(schema), tools=[])
        await backend.generate_from_session(shaped, Events())
    _, second, third, fourth = innermost.sessions
    assert second.messages == session.messages[:-1]
    assert second.system_message == session.system_message
    assert second.tools == session.tools
    assert second.sampling == session.sampling
    assert second.thinking
    assert third.tool_choice is not None
    assert third.tool_choice.name == "list_directory"
    assert fourth.output_format == shaped.output_format


@each_depth
@pytest.mark.parametrize("how", ["counted", "told"])
async def test_a_full_context_is_made_room_in_at_the_outermost(servers: int, how: str) -> None:
    """By the numbers of the innermost; a second time at most, for the answer's share."""
    innermost, session, events = Innermost(FULL[how]), asking(), Events()
    words = {"counted": "! ? " * 20, "told": "a b "}[how]
    for number in range(6):
        session.add(Message.user(f"{number} {words}"))
        session.add(Message.assistant("Yes, yes."))
    async with behind(innermost, servers) as (backend, _):
        outcome = await run_turn(session, "And now?", backend, Files(), events)
    told = [e[1] for e in events.all if e[0] is CallbackEvent.SYSTEM and e[2] == Topic.EVICTION]
    assert outcome.finish_reason is FinishReason.STOP
    assert 1 <= len(told) <= 2
    assert events.of(CallbackEvent.ERROR) == []
    assert session.messages[-1].content == "Fine."
    assert 2 <= len(session.messages) < 14
    assert len(innermost.sessions) == 2
    assert len(innermost.counted) == 1


@each_depth
@pytest.mark.parametrize("how", ["callback", "task"])
async def test_a_cancel_reaches_the_innermost(servers: int, how: str) -> None:
    innermost = HeldBackend(hold_generation=True)
    async with behind(innermost, servers) as (backend, running):
        session = asking()
        session.add(Message.user("hi"))
        if how == "callback":
            stopped = await backend.generate_from_session(session, Events(stop_at=0))
            assert stopped.finish_reason is FinishReason.CANCELLED
        else:
            events = Events()
            task = asyncio.create_task(backend.generate_from_session(session, events))
            async with asyncio.timeout(60):
                while not events.all:
                    await asyncio.sleep(0.005)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(running[0].until, lambda: innermost.stopped == 1)
        await asyncio.to_thread(running[0].until, lambda: innermost.holding == 0)


class Raising(ScriptedBackend):
    """Raises what it is given, and counts how often."""

    def __init__(self, error: BackendError) -> None:
        super().__init__(parse_script("text: never"))
        self.error = error
        self.asked = 0

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.asked += 1
        raise self.error


def of_a_provider(error: BackendError) -> BackendError:
    """As if an API had said so."""
    error.from_provider = True
    return error


ERRORS = [
    AccessError("acme refuses the API key (401). Store a valid one."),
    UnreachableError("acme can't be reached: connection refused. Is it running?"),
    InvalidRequestError("acme refuses the request: no such voice", "voice"),
    BusyError("acme limits the rate of requests (429); try again later.", 7.0),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
async def test_a_provider_s_error_comes_through_as_it_is(error: BackendError) -> None:
    """The innermost Shepherd has tried and has said what to do: no more of either."""
    innermost = Raising(of_a_provider(error))
    async with behind(innermost, THREE) as (backend, _):
        with pytest.raises(type(error)) as raised:
            await backend.generate_from_session(asked(), Events())
    assert str(raised.value) == str(error)
    assert innermost.asked == 1
    if isinstance(error, BusyError) and isinstance(raised.value, BusyError):
        assert raised.value.retry_after == error.retry_after
    if isinstance(error, InvalidRequestError) and isinstance(raised.value, InvalidRequestError):
        assert raised.value.param == error.param


async def test_a_model_that_fails_is_told_once() -> None:
    innermost = Raising(BackendError("the cable is out"))
    async with behind(innermost, THREE) as (backend, _):
        with pytest.raises(UnreachableError) as raised:
            await backend.generate_from_session(asked(), Events())
    assert str(raised.value) == "up (script) fails (500: the cable is out); try again later."
    assert innermost.asked == 1


async def test_an_answer_that_breaks_off_is_no_whole_one() -> None:
    innermost, events = Innermost("text: Half an\nerror: the cable is out"), Events()
    async with behind(innermost, THREE) as (backend, running):
        generation = await backend.generate_from_session(asked(), events)
        body = {"messages": [{"role": "user", "content": "hi"}]}
        async with httpx.AsyncClient(timeout=60) as client:
            whole = await client.post(f"{running[-1].url}/v1/chat/completions", json=body)
    assert generation.finish_reason is FinishReason.ERROR
    assert generation.message.content == "Half an"
    assert events.of(CallbackEvent.SYSTEM) == ["The answer was cut off: the cable is out."]
    assert whole.status_code >= 500
    assert "the cable is out" in whole.json()["error"]["message"]


async def test_three_programs_in_front_of_a_model(tmp_path: Path) -> None:
    """A turn with a call, the model's cache, and a context that fills up."""
    with programs(tmp_path, THREE, "--context-size", "1024") as urls:
        backend = await provider("shepherd", urls[-1])
        assert (backend.info.id, backend.info.context_size) == ("pup", 1024)
        session, events, files = asking(tools=True), Events(), Files()
        limits = TurnLimits(max_tokens=60)
        outcome = await run_turn(session, "Which files are here?", backend, files, events, limits)
        assert [call.name for call in files.calls] == ["list_directory"]
        assert outcome.stats[1].cached_tokens >= outcome.stats[0].prompt_tokens
        for number in range(10):
            session.add(Message.user(f"{number}: " + "what is a file? " * 25))
            session.add(Message.assistant("A thing with a name."))
        await run_turn(session, "And a directory?", backend, files, events, limits)
        await backend.aclose()
        async with httpx.AsyncClient(timeout=60) as client:
            health = await client.get(f"{urls[-1]}/health")
    assert events.of(CallbackEvent.ERROR) == []
    assert any(name == Topic.EVICTION for _, _, name, _ in events.all)
    assert (health.status_code, health.json()["model"]) == (200, "pup")


def asked() -> Session:
    session = asking()
    session.add(Message.user("hi"))
    return session
