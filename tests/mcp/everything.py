"""A server with one of each, made with the SDK; tests start it as a process."""

import asyncio
import os
from base64 import b64encode
from pathlib import Path
from typing import Annotated, Any

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from tests.pictures import png

server = MCPServer("everything", instructions="Use add for sums.")


class Sum(BaseModel):
    """A structured result."""

    total: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def picture() -> Image:
    """A small picture."""
    return Image(data=png(4, 3), format="png")


@server.tool()
async def slow(seconds: float, ctx: Context[Any, Any]) -> str:
    """Wait, and report progress."""
    try:
        await ctx.report_progress(1, 2, "half way")
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        os.close(os.open("cancelled", os.O_CREAT))
        raise
    return "done"


@server.tool()
def variables() -> dict[str, str]:
    """The environment."""
    return dict(os.environ)


@server.tool()
def write(path: str) -> str:
    """Write a file."""
    Path(path).write_text("written")
    return "written"


@server.tool()
def long(characters: int) -> str:
    """A long text."""
    return "x" * characters


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("this went wrong")


class Answer(BaseModel):
    """The fields of a form."""

    name: str
    age: int = 7


def who() -> Elicit[Answer]:
    """Ask the user."""
    return Elicit("Who are you?", Answer)


@server.tool()
def ask(answer: Annotated[ElicitationResult[Answer], Resolve(who)]) -> str:
    """Ask the user."""
    return f"{answer.action}: {getattr(answer, 'data', None)}"


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """Add another tool."""
    server.add_tool(lambda: "new", name="extra", description="Came later.")
    await ctx.notify_tools_changed()
    return "grown"


@server.prompt()
def review(topic: str, style: str = "short") -> str:
    """Review a topic."""
    return f"Review {topic} in a {style} way."


@server.resource("note://hello")
def hello() -> str:
    """A note."""
    return "hello from the server"


@server.resource("note://by-name/{name}")
def by_name(name: str) -> str:
    """A note for a name."""
    return f"a note for {name}"


@server.resource("data://bytes", mime_type="application/octet-stream")
def data() -> bytes:
    """Bytes."""
    return b64encode(b"bytes")


if __name__ == "__main__":
    server.run("stdio")
