"""What two hundred added tools cost: tokens of the prompt, and nothing of the KV cache."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.load import load_config
from shepherd.config.settings import Config
from shepherd.conversation.build import build_conversation, unsaved
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.conversation.toolbox import add_tool_search, build_registry, offered_tools
from shepherd.events import ignore_events
from shepherd.messages import Message, ToolCall, ToolSpec
from shepherd.models import BUILTIN_TOOLS, builtin_model
from shepherd.session import Session
from shepherd.tools.deferred import (
    FIND_TOOLS,
    RESERVED_NAMES,
    USE_TOOL,
    FindTools,
    SearchResults,
    open_call,
)
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.tool import AnyTool
from tests.tools.deferred.many import remote_tools
from tests.tools.workshop import open_workshop

MAX_GROWTH = 300
ISSUE = "github__create_issue"
MODEL = ModelInfo("other", "llamacpp", 0)


def registry(directory: Path, number: int) -> tuple[ToolRegistry, list[ToolSpec]]:
    """The tools of a user with `number` added ones, and those that a model is offered."""
    config = load_config(directory, {"HOME": str(directory)})
    tools = build_registry(config)
    for tool in remote_tools()[:number]:
        tools.add(tool)
    add_tool_search(tools, config)
    return tools, offered_tools(tools, config, MODEL)


async def test_200_tools_cost_few_tokens_and_no_cache(tmp_path: Path) -> None:
    section = LlamaCppSection(threads=1, context_size=4096)
    backend = await LlamaCppBackend.load(builtin_model(), section, name="other")
    try:
        await check_tokens(tmp_path, backend)
        await check_cache(tmp_path, backend)
    finally:
        await backend.aclose()


async def check_tokens(directory: Path, backend: LlamaCppBackend) -> None:
    counts = {
        number: await backend.count_session_tokens(
            Session("You are Shepherd.", [Message.user("hi")], registry(directory, number)[1])
        )
        for number in (0, 200)
    }
    assert 0 < counts[200] - counts[0] < MAX_GROWTH
    # Pup's template writes only the names; others write the schemas as JSON
    added = [spec for spec in registry(directory, 200)[1] if spec.name in RESERVED_NAMES]
    assert len(added) == 2
    lines = [json.dumps({"type": "function", "function": function_of(spec)}) for spec in added]
    text = Message.user("\n".join(lines))
    assert await backend.count_message_tokens(Session(), text) < MAX_GROWTH


def function_of(spec: ToolSpec) -> dict[str, object]:
    return {"name": spec.name, "description": spec.description, "parameters": spec.parameters}


async def check_cache(directory: Path, backend: LlamaCppBackend) -> None:
    """A search, and a call of what it found, leave everything before them in the cache."""
    tools, offered = registry(directory, 200)
    workshop = open_workshop(directory, registry=tools)
    session = Session("You are Shepherd.", tools=offered, deferred=SearchResults(tools))
    session.add(Message.user("Report the bug."))
    prompts: list[int] = []
    for call in (
        ToolCall("1", FIND_TOOLS, {"query": "create github issue"}),
        ToolCall("2", USE_TOOL, {"name": ISSUE, "arguments": {"owner": "me", "title": "bug"}}),
    ):
        async with await backend.prefill_session(session, ignore_events) as prefilled:
            prompts.append(prefilled.prompt_tokens)
            assert prefilled.cached_tokens >= (prompts[-2] if len(prompts) > 1 else 0)
        result = await workshop.runner.run(open_call(call))
        assert result.ok
        session.add(Message.assistant("", tool_calls=(call,)))
        session.add(Message.tool(call, result.content))
    assert ISSUE in [spec.name for spec in session.callable_tools]
    async with await backend.prefill_session(session, ignore_events) as prefilled:
        assert prefilled.cached_tokens >= prompts[-1]


def test_a_model_with_fixed_tools_gets_neither(tmp_path: Path) -> None:
    tools, _ = registry(tmp_path, 200)
    config = load_config(tmp_path, {"HOME": str(tmp_path)})
    trained = ModelInfo("pup", "llamacpp", 0, trained_tools=BUILTIN_TOOLS)
    for model in (None, trained):
        assert {spec.name for spec in offered_tools(tools, config, model)} == BUILTIN_TOOLS


def test_a_search_that_is_disabled_offers_all(tmp_path: Path) -> None:
    config = load_config(tmp_path, {"HOME": str(tmp_path)})
    config.tools.disabled.append(FIND_TOOLS)
    tools = ToolRegistry(remote_tools())
    add_tool_search(tools, config)
    names = [spec.name for spec in offered_tools(tools, config, MODEL)]
    assert len(names) == 200
    assert not {FIND_TOOLS, USE_TOOL} & {*names}


def test_the_same_tools_in_another_order_give_the_same_prompt(tmp_path: Path) -> None:
    config = load_config(tmp_path, {"HOME": str(tmp_path)})
    orders = [remote_tools(), remote_tools()[::-1]]
    prompts = {
        json.dumps(
            [spec.description for spec in offered_tools([*tools, FindTools()], config, MODEL)]
        )
        for tools in orders
    }
    assert len(prompts) == 1


@dataclass
class LateServers:
    """Servers whose tools come when a test says so."""

    arriving: list[AnyTool] = field(default_factory=list[AnyTool])
    is_starting: bool = False

    async def ask(self, approver: object) -> None:
        """Nothing needs consent."""

    async def settled(self) -> None:
        """Nothing starts."""

    async def aclose(self) -> None:
        """Nothing runs."""

    def update(self, registry: ToolRegistry) -> bool:
        arrived, self.arriving = self.arriving, []
        for tool in arrived:
            registry.add(tool)
        return bool(arrived)


@asynccontextmanager
async def conversing(home: Path, servers: Any) -> AsyncGenerator[Conversation]:
    async def scripted(_config: Config) -> Backend:
        return ScriptedBackend(parse_script("text: hi"))

    env = {"HOME": str(home)}
    config = unsaved(load_config(home, env))
    conversation = build_conversation(config, env, home, SessionStart(), scripted)
    conversation.servers = servers
    add_tool_search(conversation.registry, config, more=True)
    try:
        await conversation.backend()
        yield conversation
    finally:
        await conversation.aclose()


def offered_names(conversation: Conversation) -> list[str]:
    names = [spec.name for spec in conversation.session.tools]
    return [name for name in names if "__" in name or name in (FIND_TOOLS, USE_TOOL)]


async def test_tools_that_come_late_leave_the_prompt_as_it_is(tmp_path: Path) -> None:
    servers = LateServers(is_starting=True)
    async with conversing(tmp_path, servers) as conversation:
        await conversation.before_turn()
        before = list(conversation.session.tools)
        assert offered_names(conversation) == [FIND_TOOLS, USE_TOOL]
        conversation.session.add(Message.user("hello"))
        servers.arriving, servers.is_starting = [*remote_tools()[:1]], False
        await conversation.before_turn()
        assert conversation.session.tools == before
        assert conversation.registry.get(ISSUE) is not None
        conversation.clear()
        await conversation.before_turn()
        assert offered_names(conversation) == [ISSUE]


async def test_listed_tools_are_extended_once_and_never_shortened(tmp_path: Path) -> None:
    servers = LateServers([*remote_tools()[:1]])
    async with conversing(tmp_path, servers) as conversation:
        await conversation.before_turn()
        assert offered_names(conversation) == [ISSUE]
        conversation.session.add(Message.user("hello"))
        servers.is_starting = True
        await conversation.before_turn()
        assert offered_names(conversation) == [ISSUE]
        servers.arriving = [*remote_tools()[1:]]
        await conversation.before_turn()
        assert offered_names(conversation) == [FIND_TOOLS, USE_TOOL]
