"""The memory in a conversation: kept when the context is full, and found again by the model."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.build import build_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.events import CallbackEvent, Event, Topic
from shepherd.memory.store import OWN_TOOLS, Place
from shepherd.models import BUILTIN_TOOLS, builtin_model
from shepherd.transcript import SessionStore
from shepherd.turn import run_turn
from tests.cli.program import Program
from tests.flat_events import flat
from tests.patience import PATIENCE

PLAIN = "context: 120\ntext: one two three four five six seven eight nine ten"
SEARCHING = (
    'context: 120\ncall: search_memory {"query": "staging database"}\n---\ntext: It is heron-7.\n'
)
FILLING = ["the staging database is heron-7", *(f"filler number {n}" for n in range(12))]


class Trained(ScriptedBackend):
    """A model that was trained on certain tools."""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self.name, "scripted", 120, trained_tools=BUILTIN_TOOLS)


@dataclass
class Heard:
    """What turns told: notices of evictions, warnings from elsewhere, results of tools."""

    evictions: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    results: list[str] = field(default_factory=list[str])

    def __call__(self, event: Event) -> bool:
        kind, content, name, _ = flat(event)
        if kind is CallbackEvent.SYSTEM and name == Topic.EVICTION:
            self.evictions.append(content)
        if kind is CallbackEvent.TOOL_RESULT:
            self.results.append(content)
        return True


def build(
    base: Path,
    script: str = PLAIN,
    kind: Callable[..., ScriptedBackend] = ScriptedBackend,
    **flags: object,
) -> Conversation:
    async def opener(config: Config) -> Backend:
        return kind(parse_script(script), config.model.name)

    (base / "work").mkdir(exist_ok=True)
    env = {"HOME": str(base / "home")}
    overrides = {key.replace("__", "."): value for key, value in flags.items()}
    config = load_config(base / "work", env, overrides)
    saved = any(base.glob("home/**/*.jsonl"))
    return build_conversation(config, env, base / "work", SessionStart(latest=saved), opener)


async def say(conversation: Conversation, *prompts: str) -> Heard:
    heard = Heard()
    conversation.notices.listen(heard.warnings.append)
    backend, tools = await conversation.backend(), conversation.tool_runner()
    for prompt in prompts:
        await run_turn(conversation.session, prompt, backend, tools, heard)
    return heard


def offers_memory(conversation: Conversation) -> bool:
    offered = OWN_TOOLS & {spec.name for spec in conversation.session.tools}
    assert offered in (set(), OWN_TOOLS)
    return bool(offered)


async def test_the_model_finds_again_what_left_the_context(tmp_path: Path) -> None:
    first = build(tmp_path, model__system_message="")
    heard = await say(first, *FILLING)
    assert heard.evictions
    assert all("Kept: search_memory finds them" in text for text in heard.evictions)
    assert not any("heron" in m.content for m in first.session.messages)
    await first.aclose()
    second = build(tmp_path, SEARCHING, model__system_message="")
    assert second.session.id == first.session.id
    heard = await say(second, "which database is it?")
    (result,) = heard.results
    assert result.endswith("user] the staging database is heron-7")
    assert second.session.messages[-1].content == "It is heron-7."
    assert heard.warnings == []
    await second.aclose()


async def test_session_file_and_archive_agree_after_restarts(tmp_path: Path) -> None:
    prompts = [f"question{number} please" for number in range(20)]
    for start in range(0, 20, 5):
        conversation = build(tmp_path, model__system_message="")
        await say(conversation, *prompts[start : start + 5])
        await conversation.aclose()
    last = build(tmp_path)
    live = list(last.session.messages)
    assert list(SessionStore(last.paths.sessions).read(last.session.id).messages) == live
    memory = last.memory
    assert memory is not None
    stayed = {m.content for m in live}
    for prompt in prompts:
        found = await memory.search(prompt.split()[0], Place.of(last.cwd).project, 5)
        assert [f.text for f in found] == ([] if prompt in stayed else [prompt])
    counts = await memory.counts()
    assert (counts.messages, counts.sessions) == (40 - len(live), 1)
    await last.aclose()


async def test_times_are_those_when_it_was_said(tmp_path: Path) -> None:
    first = build(tmp_path)
    await say(first, "early")
    said = first.session.times[0]
    await first.aclose()
    second = build(tmp_path)
    restored = second.session.times[0]
    assert said is not None
    assert restored is not None
    assert (
        abs((restored - said).total_seconds()) <= PATIENCE
    )  # whole seconds, written a moment later
    await second.aclose()


@pytest.mark.parametrize(
    "off", [{"terminal__save_sessions": False}, {"memory__enabled": False}], ids=str
)
async def test_nothing_is_kept_unless_wanted(tmp_path: Path, off: dict[str, Any]) -> None:
    conversation = build(tmp_path, **off)
    heard = await say(conversation, *FILLING)
    assert heard.evictions
    assert not any("Kept" in text for text in heard.evictions)
    assert not offers_memory(conversation)
    await conversation.aclose()
    assert not conversation.paths.memory_file.exists()


@pytest.mark.parametrize(
    ("kind", "setting", "offered"),
    [
        (ScriptedBackend, "auto", True),
        (ScriptedBackend, "off", False),
        (Trained, "auto", False),
        (Trained, "on", True),
    ],
)
async def test_who_is_offered_the_tools(
    tmp_path: Path, kind: Callable[..., ScriptedBackend], setting: str, *, offered: bool
) -> None:
    conversation = build(tmp_path, kind=kind, memory__tools=setting)
    heard = await say(conversation, *FILLING)
    assert offers_memory(conversation) == offered
    finder = "search_memory" if offered else "`shepherd memory search`"
    assert heard.evictions[0].endswith(f"Kept: {finder} finds them.")
    await conversation.aclose()


async def test_a_switched_model_is_offered_what_it_knows(tmp_path: Path) -> None:
    kinds = iter([Trained, ScriptedBackend, Trained])

    def kind(*arguments: Any) -> ScriptedBackend:
        return next(kinds)(*arguments)

    conversation = build(tmp_path, kind=kind)
    await conversation.backend()
    offers = [offers_memory(conversation)]
    for name in ("a", "b"):
        await conversation.slot.switch_model(name, conversation.cwd)
        offers.append(offers_memory(conversation))
    assert offers == [False, True, False]
    await conversation.aclose()


async def test_a_memory_that_can_not_be_written_ends_no_conversation(tmp_path: Path) -> None:
    conversation = build(tmp_path)
    conversation.paths.memory_file.mkdir(parents=True)
    heard = await say(conversation, *FILLING)
    assert len(heard.evictions) > 2
    await conversation.aclose()
    (warning,) = heard.warnings
    assert str(conversation.paths.memory_file) in warning
    assert conversation.session.messages[-1].content.startswith("one two")


def test_all_tools_together_are_small(tmp_path: Path) -> None:
    from llama_cpp import Llama

    functions = [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in build(tmp_path).registry.specs()
    ]
    model = Llama(str(builtin_model()), vocab_only=True, verbose=False)
    tokens = model.tokenize(json.dumps(functions).encode(), add_bos=False)
    model.close()
    assert {str(function["name"]) for function in functions} >= OWN_TOOLS
    assert len(tokens) < 2100  # about half as many with the vocabularies of bigger models


def test_the_command_line_shows_and_clears_it(program: Program) -> None:
    lines = "".join(json.dumps({"type": "user", "content": p}) + "\n" for p in FILLING)
    done = program.run_scripted(PLAIN, "--system", "", "--json", stdin=lines)
    assert "Kept: search_memory finds them" in done.stdout
    remember = 'call: set_fact {"key": "bird", "value": "heron"}\n---\ntext: x\n'
    program.run_scripted(remember, "-e", "go")
    assert program.run("memory", "facts").stdout == "bird: heron\n"
    found = program.run("memory", "search", "staging", "heron").stdout.splitlines()
    assert found[0] == "[fact] bird: heron"
    assert found[1].endswith("user] the staging database is heron-7")
    kept = program.run("memory", "clear", stdin="n\n")
    assert kept.returncode == 1
    assert "1 fact" in kept.stdout
    assert program.run("memory", "clear", "--yes").returncode == 0
    assert program.run("memory", "search", "staging").stdout == "(no matches)\n"
