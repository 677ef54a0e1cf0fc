"""The updates of a shared session, and their conversion to and from events."""

import json
from enum import StrEnum
from typing import TypeAlias, cast

from shepherd.errors import ShepherdError
from shepherd.events import CallbackEvent, Topic
from shepherd.messages import JsonObject

CLIENT_HEADER = "X-Client-ID"
REQUEST_HEADER = "X-Shepherd-Request"
RESUME_HEADER = "Last-Event-ID"

Event: TypeAlias = tuple[CallbackEvent, str, str, str]
"""The arguments of an `EventCallback`."""


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


def from_event(
    event: CallbackEvent, content: str, name: str = "", id: str = ""
) -> tuple[UpdateKind, JsonObject] | None:
    """An event as an update; None for events that other clients do not need.

    These are the prompt, which is sent as a message, and the progress of reading it.
    """
    match event:
        case CallbackEvent.CONTENT:
            return UpdateKind.DELTA, {"text": content}
        case CallbackEvent.THINKING:
            return UpdateKind.THINKING, {"text": content}
        case CallbackEvent.CODEBLOCK:
            return UpdateKind.CODEBLOCK, {"text": content, "language": name}
        case CallbackEvent.TOOL_CALL | CallbackEvent.TOOL_RESULT:
            return _tool_update(event, content, name, id)
        case CallbackEvent.SYSTEM if name != Topic.PREFILL:
            return UpdateKind.NOTICE, {"topic": name, "text": content, **_of_call(id)}
        case CallbackEvent.STATS | CallbackEvent.STOP | CallbackEvent.ERROR:
            return _end_update(event, content, name, id)
        case _:
            return None


def to_event(kind: UpdateKind, data: JsonObject) -> Event | None:
    """The original event of `from_event`; None for an update without an event.

    Raises KeyError for data of another kind.
    """
    match kind:
        case UpdateKind.DELTA:
            return CallbackEvent.CONTENT, str(data["text"]), "", ""
        case UpdateKind.THINKING:
            return CallbackEvent.THINKING, str(data["text"]), "", ""
        case UpdateKind.CODEBLOCK:
            return CallbackEvent.CODEBLOCK, str(data["text"]), str(data["language"]), ""
        case UpdateKind.TOOL_CALL | UpdateKind.TOOL_RESULT:
            return _tool_event(kind, data)
        case UpdateKind.NOTICE:
            text, topic = str(data["text"]), str(data["topic"])
            return CallbackEvent.SYSTEM, text, topic, str(data.get("id", ""))
        case UpdateKind.STATS | UpdateKind.STOP | UpdateKind.ERROR:
            return _end_event(kind, data)
        case _:
            return None


def _of_call(id: str) -> JsonObject:
    """The id of the call that an event is about, if there is one."""
    return {"id": id} if id else {}


def _tool_update(
    event: CallbackEvent, content: str, name: str, id: str
) -> tuple[UpdateKind, JsonObject]:
    if event is CallbackEvent.TOOL_CALL:
        return UpdateKind.TOOL_CALL, {"id": id, "name": name, "arguments": json.loads(content)}
    return UpdateKind.TOOL_RESULT, {"id": id, "name": name, "content": content}


def _tool_event(kind: UpdateKind, data: JsonObject) -> Event:
    name, call_id = str(data["name"]), str(data["id"])
    if kind is UpdateKind.TOOL_CALL:
        arguments = json.dumps(data["arguments"], ensure_ascii=False)
        return CallbackEvent.TOOL_CALL, arguments, name, call_id
    return CallbackEvent.TOOL_RESULT, str(data["content"]), name, call_id


def _end_update(
    event: CallbackEvent, content: str, name: str, id: str
) -> tuple[UpdateKind, JsonObject]:
    match event:
        case CallbackEvent.STATS:
            stats = cast(JsonObject, json.loads(content))
            provider = {"provider": name} if name else {}
            return UpdateKind.STATS, {"stats": stats, **provider, **_of_call(id)}
        case CallbackEvent.STOP:
            return UpdateKind.STOP, {"finish_reason": content}
        case _:
            return UpdateKind.ERROR, {"error": name, "message": content}


def _end_event(kind: UpdateKind, data: JsonObject) -> Event:
    match kind:
        case UpdateKind.STATS:
            provider, call_id = str(data.get("provider", "")), str(data.get("id", ""))
            return CallbackEvent.STATS, json.dumps(data["stats"]), provider, call_id
        case UpdateKind.STOP:
            return CallbackEvent.STOP, str(data["finish_reason"]), "", ""
        case _:
            return CallbackEvent.ERROR, str(data["message"]), str(data["error"]), ""


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
