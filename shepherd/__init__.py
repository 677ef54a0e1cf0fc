"""Shepherd: a terminal agent with an embedded OpenAI-compatible server.

The names below are the public Python interface; each loads its modules at the first use.
"""

from shepherd.version import __version__

TYPE_CHECKING = False  # as in typing, which takes longer to load than `shepherd --version`
if TYPE_CHECKING:
    from typing import Any

    from shepherd.backends.api.adapter import Adapter
    from shepherd.backends.base import Backend
    from shepherd.conversation.compaction import Compaction
    from shepherd.conversation.context_use import ContextPart, ContextUse
    from shepherd.conversation.own_commands import OwnCommand
    from shepherd.errors import (
        AccessError,
        BackendError,
        BusyError,
        ConfigError,
        ContextFullError,
        ImageError,
        InvalidRequestError,
        ModelLoadError,
        SessionError,
        ShepherdError,
        ToolError,
        UndoError,
        UnreachableError,
    )
    from shepherd.events import CodeBlock, FinishReason, Notice, Stats, Text, Thinking, ToolResult
    from shepherd.images import Image
    from shepherd.messages import Message, ToolCall
    from shepherd.sdk.chat import Chat
    from shepherd.sdk.opening import ApprovalCallback, ask
    from shepherd.sdk.opening import open_chat as open  # noqa: A004 - read as shepherd.open
    from shepherd.sdk.turn import Answer, End, Event, Turn
    from shepherd.tools.access import Access, AccessKind
    from shepherd.tools.function import Field, tool
    from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
    from shepherd.tools.shell.background import BackgroundCommand
    from shepherd.tools.tool import Arguments, Tool, ToolContext, ToolOutput
    from shepherd.undo.log import MoveResult

__all__ = [
    "Access",
    "AccessError",
    "AccessKind",
    "Adapter",
    "Answer",
    "Approval",
    "ApprovalCallback",
    "ApprovalRequest",
    "Arguments",
    "Backend",
    "BackendError",
    "BackgroundCommand",
    "BusyError",
    "Chat",
    "Choice",
    "CodeBlock",
    "Compaction",
    "ConfigError",
    "ContextFullError",
    "ContextPart",
    "ContextUse",
    "End",
    "Event",
    "Field",
    "FinishReason",
    "Image",
    "ImageError",
    "InvalidRequestError",
    "Message",
    "ModelLoadError",
    "MoveResult",
    "Notice",
    "OwnCommand",
    "SessionError",
    "ShepherdError",
    "Stats",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "Turn",
    "UndoError",
    "UnreachableError",
    "__version__",
    "ask",
    "open",
    "tool",
]

_MODULES = {
    "backends.api.adapter": "Adapter",
    "backends.base": "Backend",
    "conversation.compaction": "Compaction",
    "conversation.context_use": "ContextPart ContextUse",
    "conversation.own_commands": "OwnCommand",
    "errors": (
        "AccessError BackendError BusyError ConfigError ContextFullError ImageError "
        "InvalidRequestError ModelLoadError SessionError ShepherdError ToolError UndoError "
        "UnreachableError"
    ),
    "events": "CodeBlock FinishReason Notice Stats Text Thinking ToolResult",
    "images": "Image",
    "messages": "Message ToolCall",
    "sdk.chat": "Chat",
    "sdk.opening": "ApprovalCallback ask",
    "sdk.turn": "Answer End Event Turn",
    "tools.access": "Access AccessKind",
    "tools.function": "Field tool",
    "tools.tool": "Arguments Tool ToolContext ToolOutput",
    "tools.shell.background": "BackgroundCommand",
    "tools.permissions.approval": "Approval ApprovalRequest Choice",
    "undo.log": "MoveResult",
}
_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names.split()}
_PLACES["open"] = ("sdk.opening", "open_chat")


def __getattr__(name: str) -> "Any":
    """A public name at its first use, which imports its module and keeps it here."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES[name]
    value = getattr(import_module(f"{__name__}.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
