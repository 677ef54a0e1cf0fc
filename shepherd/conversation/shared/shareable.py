"""What a shared session needs of the conversation that it shares."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from shepherd.backends.base import Backend
from shepherd.knowledge.knowledge import Knowledge
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.tools.permissions.approval import Approver
from shepherd.transcript import SessionSummary
from shepherd.turn import ToolExecutor, TurnLimits


class SharedConversation(Protocol):
    """What a shared session needs of the conversation that it shares."""

    @property
    def session(self) -> Session: ...

    @property
    def limits(self) -> TurnLimits: ...

    @property
    def knowledge(self) -> Knowledge: ...

    async def prompt(self, text: Message) -> Message:
        """The message to send, in which a custom command is expanded; raises ShepherdError."""
        ...

    def clear(self) -> None:
        """Forget all messages."""
        ...

    def saved_sessions(self, limit: int) -> list[SessionSummary]:
        """The newest saved sessions of the directory."""
        ...

    def resume(self, id: str) -> None:
        """Continue with a saved session in place of this one; raises SessionError."""
        ...

    async def reload(self) -> Backend:
        """Open the model again, after it has failed for good; raises ShepherdError."""
        ...

    async def before_turn(self) -> None:
        """Prepare a turn: the tools of servers can change between two."""
        ...


@dataclass(frozen=True, slots=True)
class SessionActions:
    """How a shared session runs tools and commands.

    `tool_runner` makes the runner of calls that an approver allows. `command` returns the output of
    a command, such as `/undo`; it raises ShepherdError.
    """

    tool_runner: Callable[[Approver], ToolExecutor]
    command: Callable[[str], Awaitable[str]]
