"""The MCP server: lists tools and runs calls."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server import Server

from shepherd.cli.mcpserver.agent import ASK, ServedAgent, default_names, root_of
from shepherd.cli.mcpserver.stdio import protocol_streams
from shepherd.cli.mcpserver.work import Calls, Context
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import backend_opener, build_conversation, unsaved
from shepherd.conversation.session_start import SessionStart
from shepherd.errors import UsageError
from shepherd.messages import ToolSpec
from shepherd.tools.base import ToolResult
from shepherd.tools.registry import traits_of
from shepherd.version import __version__

INSTRUCTIONS = (
    "Tools of Shepherd, an agent with its own model. They work in one directory under the user's "
    "rules; a call that needs approval is shown to the user or denied."
)


@dataclass(slots=True, eq=False)
class McpService:
    """One connection to a client.

    `read` returns the settings for a directory. `names` are the chosen tools, none for the default.
    """

    read: Callable[[Path], Config]
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
        agent = await self._agent_of(context)
        return types.ListToolsResult(tools=[_tool(spec) for spec in agent.tools()])

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        agent = await self._agent_of(context)
        result = await self._calls.run(context, params, agent.call)
        return result if isinstance(result, types.InputRequiredResult) else _result(result)

    async def _agent_of(self, context: Context) -> ServedAgent:
        """The agent in the client's directory, which the first request of the client tells."""
        async with self._opening:
            root = self.cwd if self._at_roots else await root_of(context, self.cwd)
            if self._agent is None or root != self.cwd:
                await self._close()
                self._agent, self.cwd = self._opened(root), root
            self._at_roots = True
            return self._agent

    async def _close(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.conversation.aclose()

    def _opened(self, cwd: Path) -> ServedAgent:
        """The agent in a directory; raises ConfigError, UsageError."""
        config = without_servers(unsaved(self.read(cwd)))
        book = ProviderBook.from_env(os.environ)
        conversation = build_conversation(
            config, os.environ, cwd, SessionStart(), backend_opener(book), book
        )
        conversation.notices.listen(_note)
        registry = conversation.registry
        for name in self.names:
            if name != ASK and registry.get(name) is None:
                known = ", ".join([*registry.names, ASK])
                raise UsageError(f"--tools: there is no tool {name!r}; there are {known}.")
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


def without_servers(config: Config) -> Config:
    """The settings without MCP servers, of which this process may be one."""
    return config.model_copy(update={"mcp": config.mcp.model_copy(update={"enabled": False})})


def _tool(spec: ToolSpec) -> types.Tool:
    reads = traits_of(spec.name).reads_only
    annotations = types.ToolAnnotations(read_only_hint=reads, open_world_hint=not reads)
    schema: Mapping[str, object] = {"type": "object", **spec.parameters}
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema=dict(schema),
        annotations=annotations,
    )


def _result(result: ToolResult) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=result.content)]
    content += [
        types.ImageContent(data=image.base64, mime_type=image.media_type) for image in result.images
    ]
    return types.CallToolResult(content=content, is_error=not result.ok)


def _note(text: str) -> None:
    sys.stderr.write(f"shepherd: {sanitize(text)}\n")
