"""Conversations over a backend that somebody else owns, such as those of an editor."""

import asyncio
import gc
import weakref
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from shepherd.backends.base import Backend, ModelInfo, Prefilled
from shepherd.backends.failover import Candidate, FallbackBackend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider import LOCAL, Provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import open_borrowing, unsaved
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.errors import UnreachableError
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import Role
from shepherd.models import BUILTIN_TOOLS
from shepherd.session import Session
from shepherd.turn import run_turn

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


def borrowing(
    backend: Backend, config: Config, env: Mapping[str, str], work: Path
) -> AbstractAsyncContextManager[Conversation]:
    async def lend(_config: Config) -> Backend:
        return backend

    book = ProviderBook(Paths.from_env(env), env)
    return open_borrowing(lend, unsaved(config), env, work, SessionStart(), book)


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
        borrowing(backend, config, env, work) as one,
        borrowing(backend, config, env, work) as other,
    ):
        sessions = await asyncio.gather(turn(one, "what now?"), turn(other, "and now?"))
        assert one.session.id != other.session.id
        assert one.memory is one.transcript is None
    assert [s.messages[0].content for s in sessions] == ["what now?", "and now?"]
    assert all(s.messages[-1].content == "Buy milk." for s in sessions)
    assert all(s.messages[2].role is Role.TOOL for s in sessions)
    assert not backend.closed
    assert files(env) == []


async def test_a_model_that_was_switched_away_from_stays_open_for_others(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    lent = {"": Owned("text: hi"), "work": Owned("text: there")}
    book = ProviderBook(Paths.from_env(env), env)
    book.store.save(Provider(name="work", type="openai", model="m"))

    async def lend(config: Config) -> Backend:
        if config.model.provider not in lent:
            raise UnreachableError("It can't be reached.")
        return lent[config.model.provider]

    start = SessionStart()
    async with open_borrowing(lend, unsaved(config), env, work, start, book) as conversation:
        assert await conversation.slot.switch_provider("work") is lent["work"]
        del lent["work"]
        book.store.save(Provider(name="gone", type="openai", model="m"))
        with pytest.raises(UnreachableError):
            await conversation.slot.switch_provider("gone")
        assert conversation.slot.loaded_backend is not None
        assert await conversation.slot.switch_provider(LOCAL) is lent[""]
        assert not lent[""].closed
    assert not lent[""].closed


@pytest.mark.parametrize("fails", [False, True])
async def test_of_two_choices_at_once_the_last_one_stays(
    env: Mapping[str, str], work: Path, config: Config, *, fails: bool
) -> None:
    """Whether the first one can be opened or not; it is still being opened."""
    lent = {"": Owned("text: hi"), "slow": Owned("text: late"), "work": Owned("text: there")}
    book = ProviderBook(Paths.from_env(env), env)
    for name in ("slow", "work"):
        book.store.save(Provider(name=name, type="openai", model="m"))
    opening, may_open = asyncio.Event(), asyncio.Event()

    async def lend(config: Config) -> Backend:
        if config.model.provider == "slow":
            opening.set()
            await may_open.wait()
            if fails:
                raise UnreachableError("It can't be reached.")
        return lent[config.model.provider]

    start = SessionStart()
    async with open_borrowing(lend, unsaved(config), env, work, start, book) as conversation:
        slot = conversation.slot
        await slot.backend()
        first = asyncio.create_task(slot.switch_provider("slow"))
        await opening.wait()
        second = asyncio.create_task(slot.switch_provider("work"))
        await asyncio.wait([second], timeout=0.1)
        may_open.set()
        chosen, last = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(chosen, UnreachableError) if fails else chosen is lent["slow"]
        assert last is await slot.backend() is lent["work"]
        assert slot.config.model.provider == "work"


async def test_each_conversation_follows_a_fallback_until_it_ends(
    env: Mapping[str, str], work: Path, config: Config
) -> None:
    first, last = Owned("text: no", "big"), Owned("text: yes", "pup")

    def candidate(backend: Backend) -> Candidate:
        async def opened() -> Backend:
            return backend

        return Candidate(backend.info.id, opened)

    backend = await FallbackBackend.open([candidate(first), candidate(last)])
    async with borrowing(backend, config, env, work) as ended:
        forgotten = weakref.ref(ended)
    del ended
    async with (
        borrowing(backend, config, env, work) as one,
        borrowing(backend, config, env, work) as other,
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
