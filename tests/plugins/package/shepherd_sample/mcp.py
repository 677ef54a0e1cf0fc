"""What other agents get from `shepherd mcp serve`, beside Shepherd's own tools."""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer

NOTES = {"milk": "Buy milk."}


def add_notes(server: MCPServer[Any]) -> None:
    """A prompt, a resource whose readers hear of changes, and a tool."""

    @server.prompt()
    def summarize(note: str) -> str:
        """Summarize a note."""
        return f"Summarize the note {note}: {NOTES[note]}"

    @server.resource("note://{name}")
    def note(name: str) -> str:
        """A note."""
        return NOTES[name]

    @server.tool()
    async def change_note(name: str, text: str, context: Context[Any, Any]) -> str:
        """Change a note."""
        NOTES[name] = text
        await context.notify_resource_updated(f"note://{name}")
        return "Changed."
