"""The conversation: backend in the background, switching, what is offered."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shepherd.backends.base import Backend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.provider import make_provider
from shepherd.config.settings import Config
from shepherd.conversation.build import build_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.conversation.toolbox import build_registry
from shepherd.errors import ModelLoadError, SessionError, ShepherdError, UnreachableError
from shepherd.events import CallbackEvent, Event
from shepherd.messages import ToolCall
from shepherd.models import BUILTIN_TOOLS
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.rules import Decision
from shepherd.turn import run_turn
from tests.flat_events import flat

Opener = Callable[[Config], Awaitable[Backend]]


async def open_scripted(config: Config) -> Backend:
    if config.model.name == "missing":
        raise ModelLoadError("no such model")
    return ScriptedBackend(parse_script("text: hi\n---\ntext: again"), config.model.name)


def saved(tmp_path: Path) -> list[Path]:
    return list(tmp_path.glob("home/**/*.jsonl"))


def build(tmp_path: Path, opener: Opener = open_scripted, **flags: object) -> Conversation:
    env = {"HOME": str(tmp_path / "home")}
    overrides = {key.replace("__", "."): value for key, value in flags.items()}
    config = load_config(tmp_path, env, overrides)
    start = SessionStart(latest=bool(saved(tmp_path)))
    return build_conversation(config, env, tmp_path, start, opener)


async def ask(conversation: Conversation, prompt: str) -> str:
    said: list[str] = []

    def listen(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        if kind is CallbackEvent.CONTENT:
            said.append(content)
        return True

    backend = await conversation.backend()
    await run_turn(conversation.session, prompt, backend, conversation.tool_runner(), listen)
    return "".join(said)


async def test_the_backend_loads_once_in_the_background(tmp_path: Path) -> None:
    opened = asyncio.Event()
    count = 0

    async def opener(config: Config) -> Backend:
        nonlocal count
        count += 1
        await opened.wait()
        return await open_scripted(config)

    conversation = build(tmp_path, opener)
    assert (conversation.slot.model_name, conversation.slot.loaded_backend) == ("pup", None)
    task = conversation.slot.start()
    waiting = [asyncio.ensure_future(conversation.backend()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    opened.set()
    backends = await asyncio.gather(*waiting[1:], task)
    assert count == 1
    assert backends == [conversation.slot.loaded_backend] * 3
    await conversation.aclose()


async def test_a_backend_that_failed_is_tried_again(tmp_path: Path) -> None:
    outcomes = [ModelLoadError("first"), None]

    async def opener(config: Config) -> Backend:
        error = outcomes.pop(0)
        if error is not None:
            raise error
        return await open_scripted(config)

    conversation = build(tmp_path, opener)
    with pytest.raises(ModelLoadError, match="first"):
        await conversation.backend()
    assert conversation.slot.loaded_backend is None
    assert await conversation.backend() is conversation.slot.loaded_backend
    await conversation.aclose()


class Mortal(ScriptedBackend):
    """Is dead, and knows when it is closed."""

    closed = False

    @property
    def alive(self) -> bool:
        return False

    async def aclose(self) -> None:
        self.closed = True


async def test_one_that_has_failed_for_good_is_closed_before_it_is_opened_again(
    tmp_path: Path,
) -> None:
    dead = Mortal(parse_script("text: never"))
    opens: list[Backend] = [dead, ScriptedBackend(parse_script("text: hi"), "new")]

    async def opener(config: Config) -> Backend:
        assert len(opens) == 2 or dead.closed
        return opens.pop(0)

    conversation = build(tmp_path, opener)
    assert not (await conversation.backend()).alive
    assert (await conversation.slot.live_backend()).alive
    assert await conversation.slot.live_backend() is conversation.slot.loaded_backend
    assert (await conversation.backend(), conversation.slot.model_name) == (
        conversation.slot.loaded_backend,
        "new",
    )
    assert await ask(conversation, "one") == "hi"
    await conversation.aclose()


async def test_closing_ends_what_is_loading(tmp_path: Path) -> None:
    async def opener(config: Config) -> Backend:
        await asyncio.sleep(60)
        raise AssertionError

    conversation = build(tmp_path, opener)
    task = conversation.slot.start()
    await asyncio.sleep(0)
    await conversation.aclose()
    assert task.cancelled()


async def test_switching_keeps_the_conversation(tmp_path: Path) -> None:
    conversation = build(tmp_path)
    await ask(conversation, "one")
    messages = list(conversation.session.messages)
    await conversation.slot.switch_model("other", conversation.cwd)
    assert (conversation.slot.model_name, conversation.session.messages) == ("other", messages)
    with pytest.raises(ModelLoadError):
        await conversation.slot.switch_model("missing", conversation.cwd)
    await conversation.backend()
    assert conversation.slot.model_name == "other"
    await conversation.aclose()
    resumed = build(tmp_path)
    assert resumed.session.messages == messages
    assert resumed.transcript is not None
    await resumed.aclose()


async def test_a_resumed_session_keeps_its_system_message(tmp_path: Path) -> None:
    first = build(tmp_path)
    assert str(tmp_path) in first.session.system_message
    await ask(first, "one")
    first.change_system_message("Be brief.")
    await first.aclose()
    second = build(tmp_path)
    assert (second.session.system_message, second.session.id) == ("Be brief.", first.session.id)
    await second.aclose()
    third = build(tmp_path, model__system_message="Be long.")
    assert third.session.system_message == "Be long."
    await third.aclose()


async def test_another_session_is_taken_up_and_the_first_is_free_again(tmp_path: Path) -> None:
    first = build(tmp_path)
    await ask(first, "one")
    await first.aclose()
    env = {"HOME": str(tmp_path / "home")}
    second = build_conversation(first.config, env, tmp_path, SessionStart(), open_scripted)
    await ask(second, "two")
    second.session.thinking = True
    left, tools = second.session, second.session.tools
    for wrong in ("no-such-id", left.id):
        with pytest.raises(SessionError):
            second.resume(wrong)
        assert second.session is left
    second.resume(first.session.id)
    assert [m.content for m in second.session.messages][:1] == ["one"]
    assert (second.session.tools, second.session.thinking) == (tools, True)
    spilled = Access(AccessKind.READ, str(second.paths.spill.resolve() / "output.txt"))
    decision = second.policy.decide("read_file", [spilled]).decision
    assert decision is Decision.ALLOW, "the model may still read its own cut output"
    await ask(second, "three")
    third = build_conversation(
        second.config, env, tmp_path, SessionStart(id=left.id), open_scripted
    )
    with pytest.raises(SessionError):
        third.resume(first.session.id)
    await second.aclose()
    third.resume(first.session.id)
    assert [m.content for m in third.session.messages][2:3] == ["three"]
    await third.aclose()


async def test_tools_can_be_switched_off(tmp_path: Path) -> None:
    everything = build(tmp_path)
    registry = build_registry(everything.config)
    names = [name for name in registry.names if name in BUILTIN_TOOLS]  # no model is loaded yet
    assert [spec.name for spec in everything.session.tools] == names
    fewer = build(tmp_path, tools__disabled=["http_get", "no_such_tool"])
    assert [s.name for s in fewer.session.tools] == [n for n in names if n != "http_get"]
    none = build(tmp_path, model__tools=False)
    assert none.session.tools == []
    assert "Use the tools" not in none.session.system_message
    result = await none.tool_runner().run(ToolCall("c", "get_date", {}))
    assert result.content == "Error: unknown tool: get_date"


async def test_runners_leave_the_rules_as_they_are(tmp_path: Path) -> None:
    conversation = build(tmp_path)
    rules = conversation.policy.rules()
    for _ in range(50):
        conversation.tool_runner()
    assert conversation.policy.rules() == rules
    await conversation.aclose()


async def test_sessions_need_not_be_saved(tmp_path: Path) -> None:
    conversation = build(tmp_path, terminal__save_sessions=False)
    await ask(conversation, "one")
    await conversation.aclose()
    assert conversation.session.id
    assert saved(tmp_path) == []


async def test_warnings_wait_for_a_listener(tmp_path: Path) -> None:
    (tmp_path / ".shepherd.toml").write_text("[server]\nport = 1\n")
    conversation = build(tmp_path)
    heard: list[str] = []
    conversation.notices.listen(heard.append)
    conversation.notices.tell("later")
    assert "server.port ignored" in heard[0]
    assert heard[1:] == ["later"]


@pytest.mark.parametrize("path", ["keys.json", "config.toml", "permissions.toml"])
async def test_the_model_can_not_change_its_own_settings(tmp_path: Path, path: str) -> None:
    conversation = build(tmp_path, permissions__approve="all")
    target = conversation.paths.config / path
    call = ToolCall("c", "write_file", {"path": str(target), "content": "x"})
    result = await conversation.tool_runner().run(call)
    assert result.content.startswith("Error: denied by rule")
    assert not conversation.paths.config.exists()


async def test_switching_the_provider_keeps_the_conversation(tmp_path: Path) -> None:
    opened: list[str] = []

    async def opener(config: Config) -> Backend:
        opened.append(config.model.label)
        if config.model.provider.startswith("gone"):
            raise UnreachableError("gone can't be reached")
        return await open_scripted(config)

    conversation = build(tmp_path, opener)
    for name in ("work", "gone"):
        conversation.providers.store.save(make_provider(name, {"type": "openai", "model": "m"}))
    await ask(conversation, "one")
    local = await conversation.backend()
    conversation.session.ledger.counts[:] = [5] * len(conversation.session.messages)
    await conversation.slot.switch_provider("work")
    assert conversation.session.ledger.counts == [None] * len(conversation.session.messages)
    remote = await conversation.backend()
    for failing in ("gone", "nobody"):
        with pytest.raises(ShepherdError):
            await conversation.slot.switch_provider(failing)
        assert await conversation.backend() is remote
    await conversation.slot.switch_model("other", conversation.cwd)
    assert conversation.config.model.provider == "work/other"
    await conversation.slot.switch_provider("local")
    assert (conversation.config.model.label, await conversation.backend() is local) == (
        "pup",
        False,
    )
    await conversation.slot.switch_provider("work")
    await conversation.slot.switch_model("pup", conversation.cwd)
    assert conversation.config.model.label == "pup"
    assert opened == ["pup", "work", "gone", "work/other", "pup", "work", "pup"]
    await ask(conversation, "two")
    assert [m.content for m in conversation.session.messages][::2] == ["one", "two"]
    await conversation.aclose()
