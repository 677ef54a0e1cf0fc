"""The events that report all progress of a backend to its consumers.

Everything that happens in a turn travels as one stream of these classes. Consumers `match` on them.
`event_to_json` is their one encoding; each wire format is made from it or from a match.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeAlias, cast

from msgspec import Struct, structs

from shepherd.messages import JsonObject, ToolCall

MIN_SPEED_TOKENS = 4
MIN_SPEED_SECONDS = 0.05
"""The minimum of seconds from which a speed is computed."""


class CallbackEvent(StrEnum):
    """The kinds of events; the value is the name in JSON lines and logs."""

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
    """The subject of a SYSTEM event."""

    NOTICE = "notice"
    WARNING = "warning"
    PREFILL = "prefill"  # a `PrefillProgress`
    EVICTION = "eviction"
    HINT = "hint"  # the model got a hint that its call was not understood
    PROGRESS = "progress"  # the progress of a running tool
    STEERING = "steering"  # a message of the user that joined the running turn
    PLAN = "plan"  # a `PlanUpdate`
    MODE = "mode"  # text: the approval mode from now on
    OUTPUT = "output"  # the last lines of a running command
    TASK = "task"  # the work of a running sub-agent, in one line


class FinishReason(StrEnum):
    """The reason why a generation ended; that of a STOP event."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


CUT = "The answer was cut: it reached the limit of tokens."
"""What a user reads after an answer that ended with LENGTH."""


class Text(Struct, frozen=True):
    """A piece of the answer."""

    text: str


class CodeBlock(Text, frozen=True):
    """A piece of the answer that is fenced code, with its fences."""

    language: str = ""


class Thinking(Struct, frozen=True):
    """A piece of the model's reasoning."""

    text: str


class ToolResult(Struct, frozen=True):
    """The result of the call `id` of the tool `name`, as the model reads it."""

    id: str
    name: str
    text: str

    @property
    def ok(self) -> bool:
        """Whether the call was run without an error."""
        return not self.text.startswith("Error: ")


class UserPrompt(Struct, frozen=True):
    """The user's message, with which a turn begins."""

    text: str


class Notice(Struct, frozen=True):
    """A sentence for the user; `topic` is one of `shepherd.events.Topic`.

    `id` is that of the call that it is about, "" for none.
    """

    text: str
    topic: str
    id: str = ""


_WAITS = re.compile(r"waiting, position ([0-9]{1,6}) in the queue(?:, about ([0-9]{1,9}) s)?")


class PrefillProgress(Struct, frozen=True):
    """Of `total` tokens of a prompt `done` are in memory, and `cached` were there before.

    With a `place` the prompt is not read yet: it waits there (the first one is 1) and will probably
    begin in `seconds`, 0 if that is unknown. A `Notice` does not have these two.
    """

    done: int
    total: int
    cached: int = 0
    place: int = 0
    seconds: float = 0.0

    @property
    def waits(self) -> str:
        """That it waits, as a text; "" if it is being read."""
        if not self.place:
            return ""
        begin = f", about {self.seconds:.0f} s" if self.seconds >= 1 else ""
        return f"waiting, position {self.place} in the queue{begin}"

    @classmethod
    def waiting(cls, waits: str, total: int) -> "PrefillProgress | None":
        """That of a text of `waits`, for a prompt of `total` tokens; None for another text."""
        match = _WAITS.fullmatch(waits)
        return match and cls(0, total, 0, int(match[1]), float(match[2] or 0))

    @property
    def notice(self) -> Notice:
        """The same for programs that only know notices."""
        return Notice(f"{self.done}/{self.total}", Topic.PREFILL, str(self.cached))

    @classmethod
    def parse(cls, notice: Notice) -> "PrefillProgress":
        """That of its notice; raises ValueError for another one."""
        done, _, total = notice.text.partition("/")
        return cls(int(done), int(total), int(notice.id or 0))


class StepStatus(StrEnum):
    """The state of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanStep(Struct, frozen=True):
    """One step of the model's plan."""

    step: str
    status: StepStatus = StepStatus.PENDING


class PlanUpdate(Struct, frozen=True):
    """All steps of the model's plan from now on, or the text of a plan that the user may accept.

    `id` is that of the call.
    """

    steps: tuple[PlanStep, ...] = ()
    proposal: str = ""
    id: str = ""

    @property
    def notice(self) -> Notice:
        """The same for programs that only know notices; its text is JSON."""
        if self.proposal:
            data: JsonObject = {"proposal": self.proposal}
        else:
            data = {"steps": [{"step": s.step, "status": s.status.value} for s in self.steps]}
        return Notice(json.dumps(data, ensure_ascii=False), Topic.PLAN, self.id)

    @classmethod
    def parse(cls, notice: Notice) -> "PlanUpdate":
        """That of its notice; without steps if the text is not that of a plan."""
        try:
            data = cast(JsonObject, json.loads(notice.text))
            if "proposal" in data:
                return cls(proposal=str(data["proposal"]), id=notice.id)
            steps = cast(list[JsonObject], data["steps"])
            read = tuple(PlanStep(str(s["step"]), StepStatus(s["status"])) for s in steps)
        except (ValueError, TypeError, KeyError):
            read = ()
        return cls(read, id=notice.id)


class Failure(Struct, frozen=True):
    """An error that ends the turn; `error` is the name of its class."""

    message: str
    error: str


class Stop(Struct, frozen=True):
    """The end of a generation."""

    reason: FinishReason


class Stats(Struct, frozen=True):
    """The measures of one generation: tokens, seconds, and the context after it.

    `restored_tokens` are cached tokens that came from host memory or disk. `drafted_tokens` were
    computed ahead; `accepted_tokens` of them are in the answer. `cost` is in US dollars, None if
    the price is unknown. `provider` is set if another model worked for a tool: its name, or `task`.
    `id` is then that of the call.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    context_used: int = 0
    context_size: int = 0
    restored_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    cost: float | None = None
    provider: str = ""
    id: str = ""

    @property
    def prefill_speed(self) -> float:
        """Prompt tokens decoded per second, without the cached ones."""
        return _rate(self.prompt_tokens - self.cached_tokens, self.prefill_seconds)

    @property
    def decode_speed(self) -> float:
        """Generated tokens per second; 0.0 if the measurement is too short to be meaningful.

        An answer in one piece, or of a few tokens, has no speed.
        """
        if self.completion_tokens < MIN_SPEED_TOKENS or self.decode_seconds < MIN_SPEED_SECONDS:
            return 0.0
        return _rate(self.completion_tokens, self.decode_seconds)

    def measures(self) -> JsonObject:
        """The known measures for programs; speeds in tokens per second."""
        values: JsonObject = {name: getattr(self, name) for name in MEASURES}
        values["prefill_speed"] = round(self.prefill_speed, 1)
        values["decode_speed"] = round(self.decode_speed, 1)
        return {name: value for name, value in values.items() if value is not None}


MEASURES = tuple(f.name for f in structs.fields(Stats) if f.name not in ("provider", "id"))
"""The names of the measures, without the speeds."""

TextEvent: TypeAlias = Text | Thinking
"""A piece of text; a `CodeBlock` is a `Text`."""

Event: TypeAlias = (
    Text
    | Thinking
    | ToolCall
    | ToolResult
    | UserPrompt
    | Notice
    | PrefillProgress
    | PlanUpdate
    | Failure
    | Stop
    | Stats
)
"""Everything that a callback may receive; a `CodeBlock` is a `Text`."""

KINDS: Mapping[type[Event], CallbackEvent] = {
    Text: CallbackEvent.CONTENT,
    Thinking: CallbackEvent.THINKING,
    CodeBlock: CallbackEvent.CODEBLOCK,
    ToolCall: CallbackEvent.TOOL_CALL,
    ToolResult: CallbackEvent.TOOL_RESULT,
    UserPrompt: CallbackEvent.USER_PROMPT,
    Notice: CallbackEvent.SYSTEM,
    PrefillProgress: CallbackEvent.SYSTEM,
    PlanUpdate: CallbackEvent.SYSTEM,
    Failure: CallbackEvent.ERROR,
    Stop: CallbackEvent.STOP,
    Stats: CallbackEvent.STATS,
}
"""The kind of each class of events."""

EventCallback: TypeAlias = Callable[[Event], bool]
"""Returning False cancels the work that sent the event.

Order within one generation: text events, STATS, STOP(finish reason), then one TOOL_CALL per call.
Callbacks run on the event loop's thread. Once one has returned False, the sender sends no more.
"""


def ignore_events(_event: Event) -> bool:
    """A callback that drops every event and lets the work go on."""
    return True


def text_event(kind: CallbackEvent, text: str, language: str = "") -> TextEvent:
    """A piece of text of the kind CONTENT, THINKING or CODEBLOCK."""
    if kind is CallbackEvent.THINKING:
        return Thinking(text)
    return CodeBlock(text, language) if kind is CallbackEvent.CODEBLOCK else Text(text)


def event_to_json(event: Event) -> JsonObject:
    """The event as a JSON object with its `kind`; `event_from_json` is the inverse.

    Progress and plans are notices in it, because programs that read them know them as such.
    """
    match event:
        case PrefillProgress() | PlanUpdate():
            return {**event_to_json(event.notice), **_place(event)}
        case CodeBlock():
            data: JsonObject = {"text": event.text, "language": event.language}
        case Text() | Thinking() | UserPrompt():
            data = {"text": event.text}
        case ToolCall():
            data = {"id": event.id, "name": event.name, "arguments": event.arguments}
        case ToolResult():
            data = {"id": event.id, "name": event.name, "content": event.text}
        case Notice():
            data = {"topic": event.topic, "text": event.text, **_known(id=event.id)}
        case Failure():
            data = {"error": event.error, "message": event.message}
        case Stop():
            data = {"finish_reason": event.reason.value}
        case Stats():
            data = {"stats": event.measures(), **_known(provider=event.provider, id=event.id)}
    return {"kind": KINDS[type(event)].value, **data}


def _place(event: PrefillProgress | PlanUpdate) -> JsonObject:
    """Where a prompt waits, if it does."""
    if isinstance(event, PrefillProgress) and event.place:
        return {"place": event.place, "seconds": event.seconds}
    return {}


def event_from_json(data: JsonObject) -> Event:
    """The event that `event_to_json` encoded; raises KeyError or ValueError for other data."""
    kind = CallbackEvent(data["kind"])
    match kind:
        case CallbackEvent.CONTENT | CallbackEvent.THINKING | CallbackEvent.CODEBLOCK:
            return text_event(kind, str(data["text"]), str(data.get("language", "")))
        case CallbackEvent.USER_PROMPT:
            return UserPrompt(str(data["text"]))
        case CallbackEvent.TOOL_CALL:
            return ToolCall(str(data["id"]), str(data["name"]), dict(data["arguments"]))
        case CallbackEvent.TOOL_RESULT:
            return ToolResult(str(data["id"]), str(data["name"]), str(data["content"]))
        case CallbackEvent.SYSTEM:
            return _notice(data)
        case CallbackEvent.ERROR:
            return Failure(str(data["message"]), str(data["error"]))
        case CallbackEvent.STOP:
            return Stop(FinishReason(data["finish_reason"]))
        case CallbackEvent.STATS:
            return _stats(data)


def _notice(data: JsonObject) -> Event:
    """The notice, or what stands in it: the progress of a prompt, or a plan."""
    notice = Notice(str(data["text"]), str(data["topic"]), str(data.get("id", "")))
    if notice.topic == Topic.PREFILL:
        progress = PrefillProgress.parse(notice)
        place, seconds = int(data.get("place", 0)), float(data.get("seconds", 0))
        return structs.replace(progress, place=place, seconds=seconds)
    return PlanUpdate.parse(notice) if notice.topic == Topic.PLAN else notice


def _stats(data: JsonObject) -> Stats:
    """The measures, without speeds, which follow from them; what is missing has its default."""
    measures = cast(JsonObject, data["stats"])
    known = {name: measures[name] for name in MEASURES if name in measures}
    return Stats(**known, provider=str(data.get("provider", "")), id=str(data.get("id", "")))


def _known(**texts: str) -> JsonObject:
    """Those of the fields that are not empty."""
    return {name: text for name, text in texts.items() if text}


def _rate(tokens: int, seconds: float) -> float:
    """Tokens per second; 0.0 for a time that is too short to be one."""
    # clocks count nanoseconds; a shorter time would give a speed that JSON can't hold
    return tokens / seconds if seconds >= 1e-9 else 0.0
