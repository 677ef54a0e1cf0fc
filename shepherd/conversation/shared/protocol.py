"""The updates of a shared session, and their conversion to and from events."""

from enum import StrEnum

from shepherd.errors import ShepherdError
from shepherd.events import (
    CallbackEvent,
    Event,
    PrefillProgress,
    UserPrompt,
    event_from_json,
    event_to_json,
)
from shepherd.messages import JsonObject

CLIENT_HEADER = "X-Client-ID"
REQUEST_HEADER = "X-Shepherd-Request"
RESUME_HEADER = "Last-Event-ID"


class UpdateKind(StrEnum):
    """The name of an update in the protocol.

    The first two belong to a connection. The others belong to the session and have increasing ids.
    """

    CONNECTED = "connected"
    SNAPSHOT = "snapshot"

    QUEUED = "queued"
    STARTED = "started"
    RESPONSE_COMPLETE = "response_complete"

    MESSAGE_ADDED = "message_added"
    EVICTION = "eviction"
    CLEARED = "cleared"

    DELTA = "delta"
    THINKING = "thinking"
    CODEBLOCK = "codeblock"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    NOTICE = "notice"
    STATS = "stats"
    STOP = "stop"
    ERROR = "error"

    APPROVAL_NEEDED = "approval_needed"
    APPROVAL_DECIDED = "approval_decided"


_UPDATES = {
    CallbackEvent.CONTENT: UpdateKind.DELTA,
    CallbackEvent.THINKING: UpdateKind.THINKING,
    CallbackEvent.CODEBLOCK: UpdateKind.CODEBLOCK,
    CallbackEvent.TOOL_CALL: UpdateKind.TOOL_CALL,
    CallbackEvent.TOOL_RESULT: UpdateKind.TOOL_RESULT,
    CallbackEvent.SYSTEM: UpdateKind.NOTICE,
    CallbackEvent.STATS: UpdateKind.STATS,
    CallbackEvent.STOP: UpdateKind.STOP,
    CallbackEvent.ERROR: UpdateKind.ERROR,
}
"""The update that an event becomes; their data is the same."""
_KINDS = {update: kind for kind, update in _UPDATES.items()}


def from_event(event: Event) -> tuple[UpdateKind, JsonObject] | None:
    """An event as an update; None for events that other clients do not need.

    These are the prompt, which is sent as a message, and the progress of reading it.
    """
    if isinstance(event, UserPrompt | PrefillProgress):
        return None
    data = event_to_json(event)
    return _UPDATES[data.pop("kind")], data


def to_event(kind: UpdateKind, data: JsonObject) -> Event | None:
    """The original event of `from_event`; None for an update without an event.

    Raises KeyError for data of another kind.
    """
    return event_from_json({**data, "kind": _KINDS[kind]}) if kind in _KINDS else None


class RefusalCode(StrEnum):
    """The reason for a refusal; a part of the protocol."""

    REQUEST_ENDED = "request_ended"
    REQUEST_NOT_FOUND = "request_not_found"
    SESSION_NOT_FOUND = "session_not_found"
    CONVERSATION_BUSY = "conversation_busy"
    APPROVAL_NOT_FOUND = "approval_not_found"
    NOT_YOUR_REQUEST = "not_your_request"
    INVALID_DECISION = "invalid_value"


class SharedSessionError(ShepherdError):
    """The session can't do this now, or not for this client."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code
