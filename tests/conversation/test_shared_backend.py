"""Conversations over a backend that somebody else owns, such as one for each HTTP request."""

import asyncio
import gc
import json
import weakref
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter
from starlette.requests import Request

from shepherd.backends.base import Backend, ModelInfo, Prefilled
from shepherd.backends.fallback import Candidate, FallbackBackend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.build import open_shared
from shepherd.conversation.conversation import Conversation
from shepherd.errors import ConfigError, UnreachableError
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import Message, Role
from shepherd.models import BUILTIN_TOOLS
from shepherd.server.api import Api
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import session_from_request
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.errors import OpenAiErrors
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

READ = 'call: read_file {"path": "notes.txt"}\n'


class Owned(ScriptedBackend):
    """Knows whether it was closed, and can be made unavailable."""

    def __init__(self, script: str, name: str = "script") -> None:
        super().__init__(parse_script(script), name)
        self.closed = False
        self.available = True

    @property
    def info(self) -> ModelInfo:
        tools = BUILTIN_TOOLS if self.name == "pup" else None
        return ModelInfo(self.name, "scripted", 4096, trained_tools=tools)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        if not self.available:
            raise UnreachableError("It can't be reached.")
        return await super().prefill_session(session, callback)

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    return {"HOME": str(tmp_path / "home")}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("Buy milk.\n")
    return work


@pytest.fixture
def config(env: Mapping[str, str], work: Path) -> Config:
    return load_config(work, env)


def files(env: Mapping[str, str]) -> list[Path]:
    return [path for path in Path(env["HOME"]).rglob("*") if path.is_file()]


async def turn(conversation: Conversation, prompt: str) -> Session:
    backend = await conversation.backend()
    tools = conversation.tool_runner()
    await run_turn(conversation.session, prompt, backend, tools, ignore_events)
    return conversation.session


async def test_conversations_share_a_backend_and_keep_nothing(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    backend = Owned(f"{READ}---\n{READ}---\ntext: Buy milk.\n---\ntext: Buy milk.\n")
    async with (
        open_shared(backend, config, env, work) as one,
        open_shared(backend, config, env, work) as other,
    ):
        sessions = await asyncio.gather(turn(one, "what now?"), turn(other, "and now?"))
        assert one.session.id != other.session.id
        assert one.memory is one.transcript is None
    assert [s.messages[0].content for s in sessions] == ["what now?", "and now?"]
    assert all(s.messages[-1].content == "Buy milk." for s in sessions)
    assert all(s.messages[2].role is Role.TOOL for s in sessions)
    assert not backend.closed
    assert files(env) == []


async def test_a_session_of_the_caller_goes_on(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    session = Session("Be short.", [Message.user("hi"), Message.assistant("hello")])
    async with open_shared(Owned("text: fine"), config, env, work, session) as conversation:
        assert conversation.session is session
        await turn(conversation, "how are you?")
    assert [m.content for m in session.messages] == ["hi", "hello", "how are you?", "fine"]


async def test_the_model_is_not_changed(env: Mapping[str, str], work: Path, config: Config) -> None:
    backend = Owned("text: hi")
    async with open_shared(backend, config, env, work) as conversation:
        with pytest.raises(ConfigError, match="shares its model"):
            await conversation.slot.switch_model("pup", work)
        with pytest.raises(ConfigError, match="shares its model"):
            await conversation.slot.reload()
        assert await conversation.backend() is backend
    assert not backend.closed


async def test_each_conversation_follows_a_fallback_until_it_ends(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    first, last = Owned("text: no", "big"), Owned("text: yes", "pup")

    def candidate(backend: Backend) -> Candidate:
        async def opened() -> Backend:
            return backend

        return Candidate(backend.info.id, opened)

    backend = await FallbackBackend.open([candidate(first), candidate(last)])
    async with open_shared(backend, config, env, work) as ended:
        forgotten = weakref.ref(ended)
    del ended
    async with (
        open_shared(backend, config, env, work) as one,
        open_shared(backend, config, env, work) as other,
    ):
        one.registry.remove("grep")
        first.available = False
        assert (await turn(one, "hi")).messages[-1].content == "yes"
        for conversation in (one, other):
            offered = {tool.name for tool in conversation.session.tools}
            assert offered == {*conversation.registry.names} & BUILTIN_TOOLS
    gc.collect()
    assert forgotten() is None
    await backend.aclose()
    assert first.closed
    assert last.closed


def agent(config: Config, env: Mapping[str, str], work: Path) -> Api:
    """An API whose answers come from an agent with the server's tools."""

    def router(context: ServerContext) -> APIRouter:
        routes, bodies = APIRouter(), context.bodies

        @routes.post("/agent")
        async def answer(request: Request) -> JsonResponse:
            body = await bodies.read(request, ChatRequest)
            session = session_from_request(body, thinking=False)
            prompt = session.pop_last()
            async with open_shared(context.backend, config, env, work, session) as conversation:
                await turn(conversation, prompt.content)
            return JsonResponse({"messages": [m.content for m in session.messages]})

        return routes

    return Api(("/agent",), OpenAiErrors(), lambda context: [router(context)])


def test_an_agent_behind_an_api_opens_one_conversation_a_request(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    backend = Owned(f"{READ}---\ntext: Buy milk.\n")
    settings = ServerSettings(port=0)
    with RunningServer(backend, settings, apis=[agent(config, env, work)]) as server:
        for _ in range(2):
            body = {"messages": [{"role": "user", "content": "what now?"}]}
            answer = httpx.post(f"{server.url}/agent", json=body, timeout=PATIENCE)
            assert "Buy milk." in json.dumps(answer.json()["messages"][2])
            assert answer.json()["messages"][-1] == "Buy milk."
        assert not backend.closed
