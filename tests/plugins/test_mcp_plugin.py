"""What a plugin adds to `shepherd mcp serve`, for clients of both protocols."""

import asyncio
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, types

from tests.forked import SHEPHERD, start_forked
from tests.mcp.pipes import streams
from tests.patience import PATIENCE

RULE = '[permissions]\nrules = [{ decision = "allow", tool = "tool", pattern = "change_*" }]\n'
CHANGE = {"name": "milk", "text": "Buy two."}


@dataclass
class Received:
    """What the server tells a client of the older protocol."""

    log: list[object] = field(default_factory=list[object])
    updated: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])

    async def take(self, message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updated.put_nowait(str(message.params.uri))
        if isinstance(message, types.LoggingMessageNotification):
            self.log.append(message.params.data)


@asynccontextmanager
async def client(
    env: dict[str, str], mode: str, received: Received | None = None, *options: str
) -> AsyncGenerator[Client]:
    pipe = subprocess.PIPE
    process: subprocess.Popen[str] = start_forked(
        [SHEPHERD, "mcp", "serve", *options],
        env,
        stdin=pipe,
        stdout=pipe,
        text=True,
        cwd=env["HOME"],
    )
    handler: Any = received.take if received else None
    with process:
        opened = Client(
            streams(process), mode=mode, message_handler=handler, read_timeout_seconds=PATIENCE
        )
        async with opened:
            yield opened
            process.terminate()


def allow(env: dict[str, str]) -> None:
    folder = Path(env["HOME"], ".config", "shepherd")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(RULE)


def text_of(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_prompts_and_resources_are_offered(env: dict[str, str], mode: str) -> None:
    async with client(env, mode) as opened:
        assert [prompt.name for prompt in (await opened.list_prompts()).prompts] == ["summarize"]
        answer = await opened.get_prompt("summarize", {"note": "milk"})
        assert isinstance(answer.messages[0].content, types.TextContent)
        assert answer.messages[0].content.text == "Summarize the note milk: Buy milk."
        content = (await opened.read_resource("note://milk")).contents[0]
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "Buy milk."


async def test_a_tool_of_a_plugin_runs_only_by_a_rule(env: dict[str, str]) -> None:
    async with client(env, "auto") as opened:
        assert "change_note" in [tool.name for tool in (await opened.list_tools()).tools]
        denied = await opened.call_tool("change_note", CHANGE)
        assert denied.is_error
        assert "allow tool change_note" in text_of(denied)
        content = (await opened.read_resource("note://milk")).contents[0]
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "Buy milk."
    allow(env)
    async with client(env, "auto", None, "--tools", "read_file") as opened:
        assert [tool.name for tool in (await opened.list_tools()).tools] == ["read_file"]
        assert "unknown tool" in text_of(await opened.call_tool("change_note", CHANGE))


async def test_older_clients_hear_of_changes_until_they_unsubscribe(env: dict[str, str]) -> None:
    allow(env)
    received = Received()
    async with client(env, "legacy", received) as opened:
        await opened.session.send_request(
            types.SubscribeRequest(params=types.SubscribeRequestParams(uri="note://milk")),
            types.EmptyResult,
        )
        assert text_of(await opened.call_tool("change_note", CHANGE)) == "Changed."
        assert await asyncio.wait_for(received.updated.get(), PATIENCE) == "note://milk"
        await opened.call_tool("change_note", {"name": "eggs", "text": "Buy eggs."})
        await opened.session.send_request(
            types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri="note://milk")),
            types.EmptyResult,
        )
        await opened.call_tool("change_note", CHANGE)
        await opened.list_tools()
        assert received.updated.empty()
