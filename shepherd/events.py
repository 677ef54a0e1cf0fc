"""The events that report all progress of a backend to its consumers."""

from collections.abc import Callable
from enum import StrEnum


class CallbackEvent(StrEnum):
    """The kinds of events; the value is the name in JSON lines and logs.

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
    USER_PROMPT  the user's message          ""                   ""
    SYSTEM       a notice                    topic (see `Topic`)  "", or the id of
                                                                  the call
    ERROR        error message               error class name     ""
    STOP         finish reason               ""                   ""
    STATS        `GenerationStats` as JSON   "", or the provider  "", or the id of
                                             behind a tool, or    the call
                                             `task`
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
    """The subject of a SYSTEM event, in its `name`."""

    NOTICE = "notice"
    WARNING = "warning"
    PREFILL = "prefill"  # content: "done/total" in tokens; id: those that were in memory before
    EVICTION = "eviction"
    HINT = "hint"  # the model got a hint that its call was not understood
    PROGRESS = "progress"  # the progress of a running tool
    STEERING = "steering"  # a message of the user that joined the running turn
    PLAN = "plan"  # content: the plan as JSON, see `shepherd.tools.plan`
    MODE = "mode"  # content: the approval mode from now on
    OUTPUT = "output"  # the last lines of a running command
    TASK = "task"  # the work of a running sub-agent, in one line


class FinishReason(StrEnum):
    """The reason why a generation ended; the content of a STOP event."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


def tokens_read(content: str) -> int:
    """The tokens of a prompt that are read so far, from the content of a PREFILL event."""
    done = content.partition("/")[0]
    return int(done) if done.isdecimal() else 0


TEXT_EVENTS = frozenset({CallbackEvent.CONTENT, CallbackEvent.THINKING, CallbackEvent.CODEBLOCK})

EventCallback = Callable[[CallbackEvent, str, str, str], bool]
"""`callback(event, content, name, id)`; returning False cancels the work that sent the event.

Order within one generation: text events, STATS, STOP(finish reason), then one TOOL_CALL per call.
Callbacks run on the event loop's thread. Once one has returned False, the sender sends no more.
"""


def ignore_events(_event: CallbackEvent, _content: str, _name: str, _id: str) -> bool:
    """A callback that drops every event and lets the work go on."""
    return True
