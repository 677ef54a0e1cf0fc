"""The MCP server: lists tools and runs calls, over stdin and stdout, which nothing else reaches."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from msgspec import Struct, field

from shepherd import errors, messages
from shepherd.cli.commands.output import warn
from shepherd.cli.mcpserver.agent import ASK, ServedAgent, default_names, root_of
from shepherd.cli.mcpserver.work import Calls, Context
from shepherd.cli.terminal.lines import read_lines, take_streams
from shepherd.config import provider_book, settings
from shepherd.conversation.build import backend_opener, build_conversation, unsaved
from shepherd.conversation.session_start import SessionStart
from shepherd.tools.registry import traits_of
from shepherd.tools.tool import ToolResult
from shepherd.version import __version__

INSTRUCTIONS = (
    "Tools of Shepherd, an agent with its own model. They work in one directory under the user's "
    "rules; a call that needs approval is shown to the user or denied."
)


class McpService(Struct, eq=False):
    """One connection to a client.

    `read` returns the settings for a directory. `names` are the chosen tools, none for the default.
    `_at_roots` tells whether the client was asked for its directory.
    """

    read: Callable[[Path], settings.Config]
    cwd: Path
    names: Sequence[str] = ()
    _calls: Calls = field(default_factory=Calls)
    _agent: ServedAgent | None = None
    _at_roots: bool = False
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def server(self) -> Server[dict[str, Any]]:
        """The server with its handlers."""
        return Server(
            "shepherd",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def open(self) -> None:
        """Open the conversation in the working directory; raises ShepherdError."""
        self._agent = self._opened(self.cwd)

    async def aclose(self) -> None:
        """Stop the calls and close the conversation."""
        await self._calls.aclose()
        await self._close()

    async def _list(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """Answer `tools/list`."""
        agent = await self._agent_of(context)
        return types.ListToolsResult(tools=[_tool(spec) for spec in agent.tools()])

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Answer `tools/call`, with a question if the user must decide first."""
        agent = await self._agent_of(context)
        result = await self._calls.run(context, params, agent.call)
        return result if isinstance(result, types.InputRequiredResult) else _result(result)

    async def _agent_of(self, context: Context) -> ServedAgent:
        """The agent in the client's directory; the first request asks the client for that."""
        async with self._opening:  # of two first requests, one opens it
            root = self.cwd if self._at_roots else await root_of(context, self.cwd)
            if self._agent is None or root != self.cwd:
                await self._close()
                self._agent, self.cwd = self._opened(root), root
            self._at_roots = True
            return self._agent

    async def _close(self) -> None:
        """Close the conversation, if one is open."""
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.conversation.aclose()

    def _opened(self, cwd: Path) -> ServedAgent:
        """The agent in a directory; raises ConfigError, UsageError."""
        config = without_servers(unsaved(self.read(cwd)))
        book = provider_book.ProviderBook.from_env(os.environ)
        conversation = build_conversation(
            config, os.environ, cwd, SessionStart(), backend_opener(book), book
        )
        conversation.notices.listen(warn)
        registry = conversation.registry
        for name in self.names:
            if name != ASK and registry.get(name) is None:
                known = ", ".join([*registry.names, ASK])
                raise errors.UsageError(f"--tools: there is no tool {name!r}; there are {known}.")
        return ServedAgent(conversation, tuple(self.names) or default_names(registry))


async def serve_stdio(service: McpService) -> int:
    """Serve one client on stdin and stdout until it closes stdin; raises ShepherdError."""
    service.open()
    server = service.server()
    try:
        async with protocol_streams() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    finally:
        await service.aclose()
    return 0


def without_servers(config: settings.Config) -> settings.Config:
    """The settings without MCP servers, of which this process may be one."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"enabled": False})})


def _tool(spec: messages.ToolSpec) -> types.Tool:
    """A tool as the client lists it, with hints of whether it only reads."""
    reads = traits_of(spec.name).reads_only
    annotations = types.ToolAnnotations(read_only_hint=reads, open_world_hint=not reads)
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema={"type": "object", **spec.parameters},
        annotations=annotations,
    )


def _result(result: ToolResult) -> types.CallToolResult:
    """A result for the client: its text, then its images."""
    content: list[types.ContentBlock] = [types.TextContent(text=result.content)]
    content += [
        types.ImageContent(data=image.base64, mime_type=image.media_type) for image in result.images
    ]
    return types.CallToolResult(content=content, is_error=not result.ok)


MAX_MESSAGE_BYTES = 64 << 20
"""Maximum length of one message; a longer one ends the connection."""

ANSWER_SECONDS = 10.0
"""The longest wait for the answers to open requests after the end of stdin."""


class OpenRequests(Struct):
    """The ids of the client's requests that have no answer yet."""

    ids: set[str] = field(default_factory=set[str])
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)

    def received(self, line: str) -> None:
        """Note a message of the client: a request, or the end of one by cancelling."""
        message = _object(line)
        if message.get("method") == "notifications/cancelled":
            params: object = message.get("params")
            if isinstance(params, dict):
                self._note_answer(cast(dict[str, Any], params).get("requestId"))
        elif "method" in message and "id" in message:
            self.ids.add(json.dumps(message["id"]))

    def sent(self, line: str) -> None:
        """Note a message to the client, which may be an answer."""
        message = _object(line)
        if "method" not in message:
            self._note_answer(message.get("id"))

    async def answered(self) -> None:
        """Wait until no request is open, up to ANSWER_SECONDS."""
        if self.ids:
            self.all_answered.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_answered.wait(), ANSWER_SECONDS)

    def _note_answer(self, id: object) -> None:
        """Note that a request has its answer; ids are kept as JSON, because 1 is not "1"."""
        self.ids.discard(json.dumps(id))
        if not self.ids:
            self.all_answered.set()


async def _messages(
    lines: asyncio.Queue[bytes | None], requests: OpenRequests
) -> AsyncGenerator[str]:
    """The client's messages; at their end it waits for the answers to open requests.

    The SDK drops the answers under way when its input ends.
    """
    while (data := await lines.get()) is not None:
        line = data.decode("utf-8", "replace")
        requests.received(line)
        yield line
    await requests.answered()


class Wire:
    """The output, which notes the answers."""

    def __init__(self, file: IO[str], requests: OpenRequests) -> None:
        self._file = anyio.wrap_file(file)
        self._requests = requests
        self._last_message = ""

    async def write(self, text: str) -> None:
        """Write one message."""
        await self._file.write(text)
        self._last_message = text

    async def flush(self) -> None:
        """Send what was written."""
        await self._file.flush()
        self._requests.sent(self._last_message)


@asynccontextmanager
async def protocol_streams() -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of the SDK's server; see `take_streams`."""
    if sys.stdin.isatty():
        warn("waiting for an MCP client on stdin; Ctrl+C stops.")
    source, target = take_streams()
    requests = OpenRequests()
    with os.fdopen(target, "w", encoding="utf-8") as file:
        lines: Any = _messages(read_lines(source, MAX_MESSAGE_BYTES), requests)
        wire: Any = Wire(file, requests)
        async with stdio_server(lines, wire) as streams:
            yield streams


def _object(line: str) -> dict[str, Any]:
    """The message; empty if it is not an object, which the SDK reports."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
