"""What happens in a shared conversation, on a terminal."""

import json
from dataclasses import dataclass

from shepherd.backends.cliclient.vocabulary import Event
from shepherd.cli.repl.render import Renderer
from shepherd.events import CallbackEvent
from shepherd.messages import ToolCall


@dataclass(frozen=True, slots=True)
class ReplViewer:
    """Shows the turns of all clients, with a line before those of others."""

    renderer: Renderer

    def event(self, event: Event, *, mine: bool) -> None:
        """Show an event."""
        self.renderer(*event)
        kind, content, name, call_id = event
        if kind is CallbackEvent.TOOL_CALL:
            self.renderer.tool_started(ToolCall(call_id, name, json.loads(content)))

    def prompt(self, text: str) -> None:
        """Show what another client has sent."""
        self.renderer.notice(f"another client: {text}", "user")

    def waiting(self, position: int) -> None:
        """Tell how many requests go first."""
        self.renderer.activity.start(f"waiting, position {position} in the queue")

    def ended(self, *, mine: bool) -> None:
        """The turn is over."""
        self.renderer.turn_over()

    def notice(self, text: str) -> None:
        """Show a line."""
        self.renderer.notice(text, "warn")
