"""A server's tool as one of the model's."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from shepherd.errors import ToolError
from shepherd.events import CallbackEvent, Topic
from shepherd.mcp.tools.names import access_target, tool_names
from shepherd.mcp.tools.results import tool_result
from shepherd.mcp.tools.schema import JsonArguments, arguments_model, model_schema
from shepherd.messages import ToolSpec
from shepherd.tools.base import Access, AccessKind, Tool, ToolContext, ToolResult
from shepherd.tools.invisible import reveal
from shepherd.tools.text import plain_text, valid_json, valid_text

if TYPE_CHECKING:
    from shepherd.mcp.connection import Connection

MAX_DESCRIPTION = 1024
"""The maximum length of a description in characters."""

_NO_LIMIT = 86_400.0
"""Seconds of the SDK's own limit, which would count the time for answers of the user."""
_HINTS = (
    ("read_only_hint", True, "only reads"),
    ("destructive_hint", True, "may destroy"),
    ("idempotent_hint", True, "can be repeated"),
    ("open_world_hint", True, "reaches other systems"),
)


class ServerTool(Tool[JsonArguments]):
    """A tool of an MCP server; each call needs approval, unless a rule allows it."""

    is_extension = True

    def __init__(self, connection: "Connection", tool: types.Tool, name: str) -> None:
        self.name = name
        self.description = valid_text(_described(tool))
        self.target = access_target(connection.server.name, tool.name)
        self._connection = connection
        self._tool = tool
        schema = model_schema(valid_json(tool.input_schema))
        self.arguments = arguments_model(name, schema)

    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.arguments.checked_schema)

    def accesses(self, arguments: JsonArguments, context: ToolContext) -> list[Access]:
        return [Access(AccessKind.MCP, self.target)]

    def preview(self, arguments: JsonArguments, context: ToolContext) -> str:
        server = self._connection.server
        place = server.definition.url or server.definition.command
        lines = [f"Tool {self._tool.name} of the MCP server {server.name} ({place})"]
        if claims := _claims(self._tool.annotations):
            lines.append(f"The server claims, unproven: it {claims}")
        return "\n".join(lines)

    def deadline(self, arguments: JsonArguments, context: ToolContext) -> float | None:
        return None  # `run` has the server's own

    async def run(self, arguments: JsonArguments, context: ToolContext) -> ToolResult:
        server = self._connection.server

        async def report(progress: float, total: float | None, message: str | None) -> None:
            share = f"{progress:g}" + (f"/{total:g}" if total else "")
            text = " ".join(filter(None, [share, reveal(message or "")[:200]]))
            context.on_event(CallbackEvent.SYSTEM, text, Topic.PROGRESS, "")

        client = await self._connection.client()
        seconds = server.definition.timeout
        try:
            async with self._connection.questions.during(context, seconds):
                result = await client.call_tool(
                    self._tool.name,
                    arguments.values,
                    read_timeout_seconds=_NO_LIMIT,
                    progress_callback=report,
                )
        except TimeoutError:
            raise ToolError(
                f"the MCP server {server.name} did not answer in {seconds:g} s"
            ) from None
        except MCPError as error:
            self._connection.note_failure(error)
            raise ToolError(plain_text(f"the MCP server {server.name} refuses: {error}")) from error
        except (ValidationError, RuntimeError) as error:
            raise ToolError(f"the answer of the MCP server {server.name} is not valid") from error
        return await asyncio.to_thread(self._presented, result, context)

    def _presented(self, result: types.CallToolResult, context: ToolContext) -> ToolResult:
        """The result, in which the server's secrets are replaced by their names."""
        presented = tool_result(result, context.output_bytes, context.spill_dir)
        text = presented.content
        for name, secret in self._connection.secrets().items():
            text = text.replace(secret, f"[{name}]")
        return replace(presented, content=text)


def server_tools(connection: "Connection") -> list[ServerTool]:
    """The tools that a server offers now."""
    tools = connection.catalogue.tools
    names = tool_names(connection.server.name, [tool.name for tool in tools])
    return [ServerTool(connection, *pair) for pair in zip(tools, names, strict=True)]


def _described(tool: types.Tool) -> str:
    text = " ".join(plain_text(tool.description or tool.title or tool.name).split())
    return text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + "…"


def _claims(annotations: types.ToolAnnotations | None) -> str:
    """The annotations of a server, in words."""
    if annotations is None:
        return ""
    return ", ".join(
        text for name, value, text in _HINTS if getattr(annotations, name, None) is value
    )
