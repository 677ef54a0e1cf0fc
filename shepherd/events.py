"""The one vocabulary in which everything that happens travels from a backend to its consumers."""

from collections.abc import Callable
from enum import StrEnum


class CallbackEvent(StrEnum):
    """What an `EventCallback` is told; the value is the name used in JSON lines and logs.

    The meaning of `content`, `name` and `id` per kind:

    ===========  ==========================  ===================  ============
    kind         content                     name                 id
    ===========  ==========================  ===================  ============
    CONTENT      text of the answer          ""                   ""
    THINKING     text of the reasoning       ""                   ""
    CODEBLOCK    fenced code, fence lines    language or ""       ""
                 included
    TOOL_CALL    arguments as JSON object    tool name            call id
    TOOL_RESULT  the result's text           tool name            call id
    USER_PROMPT  what the user sent          ""                   ""
    SYSTEM       a notice                    topic (see `Topic`)  ""
    ERROR        what went wrong             error class name     ""
    STOP         finish reason               ""                   ""
    STATS        `GenerationStats` as JSON   "", or the provider  ""
                                             that a tool asked
    ===========  ==========================  ===================  ============
    """

    CONTENT = "content"
    THINKING = "thinking"
    CODEBLOCK = "codeblock"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    USER_PROMPT = "user_prompt"
    SYSTEM = "system"
    ERROR = "error"
    STOP = "stop"
    STATS = "stats"


class Topic(StrEnum):
    """What a SYSTEM event is about, in its `name`."""

    NOTICE = "notice"
    WARNING = "warning"
    PREFILL = "prefill"  # content: "done/total" in tokens; id: those that were in memory before
    EVICTION = "eviction"
    HINT = "hint"  # the model was told that its call was not understood
    PROGRESS = "progress"  # what a tool that is running does


class FinishReason(StrEnum):
    """Why a generation ended; the content of a STOP event."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


TEXT_EVENTS = frozenset({CallbackEvent.CONTENT, CallbackEvent.THINKING, CallbackEvent.CODEBLOCK})

EventCallback = Callable[[CallbackEvent, str, str, str], bool]
"""`callback(event, content, name, id)`; returning False cancels the work that sent the event.

Order within one generation: text events, STATS, STOP(finish reason), then one TOOL_CALL per call.
Callbacks run on the event loop's thread. Once one has returned False, the sender sends no more.
"""


def ignore_events(_event: CallbackEvent, _content: str, _name: str, _id: str) -> bool:
    """A callback that drops every event and lets the work go on."""
    return True
