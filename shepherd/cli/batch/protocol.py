"""The objects that a program sends to a JSON lines conversation, and those that it receives."""

import json
from collections.abc import Callable
from typing import Any, BinaryIO, Self, TypeAlias, cast

from msgspec import Struct, ValidationError, convert, field

from shepherd import errors, events, messages
from shepherd.cli.render.status import Totals
from shepherd.config.section import ApproveMode
from shepherd.conversation.shared import approvals, updates
from shepherd.images import Image, check_count, decode_image
from shepherd.tools.permissions.approval import NO_TERMINAL, Approval, ApprovalRequest, Choice
from shepherd.tools.text import valid_json, valid_text
from shepherd.transcript.records import json_line


class InputError(Exception):
    """A line that can't be used; the message gives the reason."""


class UserInput(Struct, frozen=True):
    """A prompt: `content`, and `images` as objects with `data` (base64) and `name`."""

    content: str
    images: tuple[Image, ...] = ()

    @classmethod
    def parse(cls, data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        return cls(_text(data, "content"), _images(data.get("images", [])))

    @property
    def message(self) -> messages.Message:
        """The message to send."""
        return messages.Message.user(self.content, self.images)


class SteeringInput(UserInput, frozen=True):
    """A message that joins the running turn at its next step, as `user` does without a turn."""


class Interrupt(Struct, frozen=True):
    """Ends the running turn, or the user's own command."""

    @classmethod
    def parse(cls, _data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        return cls()


class CommandInput(Struct, frozen=True):
    """A command: `command`, such as `/clear` or `!ls`; it waits for its place like a prompt."""

    command: str

    @classmethod
    def parse(cls, data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        return cls(_text(data, "command"))


class ModeInput(Struct, frozen=True):
    """Changes the approval mode from the next call on: `mode`."""

    mode: ApproveMode

    @classmethod
    def parse(cls, data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        return cls(ApproveMode(_one_of(data, "mode", [mode.value for mode in ApproveMode])))


class ApprovalsInput(Struct, frozen=True):
    """Whether calls that need approval are asked about (`ask`); they are denied otherwise."""

    ask: bool

    @classmethod
    def parse(cls, data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        if not isinstance(data.get("ask"), bool):
            raise InputError('"approvals" needs true or false as its "ask"')
        return cls(bool(data["ask"]))


class DecisionInput(Struct, frozen=True):
    """The answer to an `approval`: its `id`, `decision`, and a `reason` for the model.

    `values` are the texts for its `fields`, in their order. `parts` are the numbers of its `parts`
    that `once` keeps, counted from 1; without it, that is all.
    """

    id: str
    approval: Approval

    @classmethod
    def parse(cls, data: messages.JsonObject) -> Self:
        """The input of a line's object; raises InputError."""
        choice = Choice(_one_of(data, "decision", [choice.value for choice in Choice]))
        reason = data.get("reason", "")
        if not isinstance(reason, str):
            raise InputError('the "reason" of a "decision" must be a text')
        values = _values(data.get("values", []))
        parts = _parts(data.get("parts"))
        return cls(_text(data, "id"), Approval(choice, reason.strip(), values=values, parts=parts))


Input: TypeAlias = UserInput | Interrupt | CommandInput | ModeInput | ApprovalsInput | DecisionInput


INPUT_TYPES: dict[str, type[Input]] = {
    "user": UserInput,
    "steer": SteeringInput,
    "interrupt": Interrupt,
    "command": CommandInput,
    "mode": ModeInput,
    "approvals": ApprovalsInput,
    "decision": DecisionInput,
}
"""Each type of input; the docstring of its class describes it in the reference."""


def parse_input(line: bytes) -> Input | None:
    """The parsed line, None if it is blank; raises InputError."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8") from error
    if not text.startswith("{"):  # a prompt may come as a plain line
        return UserInput(text) if text else None
    try:
        data = cast(messages.JsonObject, valid_json(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise InputError(f"begins with {{ and is not JSON: {error}") from error
    kind = INPUT_TYPES.get(str(data.get("type")))
    if kind is None:
        raise InputError(f'"type" must be one of {", ".join(INPUT_TYPES)}')
    return kind.parse(data)


def _values(data: object) -> tuple[str, ...]:
    """The values of a form, which may be a text alone; raises InputError for other types."""
    values = cast(list[object], data) if isinstance(data, list) else [data]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise InputError('the "values" of a "decision" must be a list of texts')
    return (*texts,)


def _parts(data: object) -> tuple[int, ...] | None:
    """The numbers of parts; raises InputError for other values."""
    try:
        return convert(data, tuple[int, ...] | None)
    except ValidationError as error:
        raise InputError('the "parts" of a "decision" must be a list of numbers') from error


def _text(data: messages.JsonObject, name: str) -> str:
    """A text of an object; raises InputError if it is missing or blank."""
    value = data.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f'a "{data["type"]}" needs a non-empty text as its "{name}"')
    return valid_text(value)


def _one_of(data: messages.JsonObject, name: str, values: list[str]) -> str:
    """A text of an object; raises InputError, which lists `values`, for any other text."""
    value = data.get(name)
    if value not in values:
        raise InputError(f'the "{name}" of a "{data["type"]}" must be one of {", ".join(values)}')
    return str(value)


def _images(value: object) -> tuple[Image, ...]:
    """The images of a prompt; raises InputError for the first that can't be read."""
    if not isinstance(value, list):
        raise InputError('"images" must be a list of objects with "data" and "name"')
    try:
        check_count(cast(list[object], value))
        return tuple(_image(item) for item in cast(list[Any], value))
    except errors.ImageError as error:
        raise InputError(str(error)) from error


def _image(value: object) -> Image:
    """The image of an object such as `{"data": "iVBOR…", "name": "cat.png"}`."""
    match value:
        case {"data": str(data), "name": str(name)}:
            return decode_image(data, name)
        case {"data": str(data)}:
            return decode_image(data)
        case _:
            raise InputError('an image needs its bytes in base64 as its "data"')


class JsonApprover:
    """Writes a question and waits for its `decision`; denies as long as `asks` is False."""

    def __init__(self, write: Callable[[messages.JsonObject], bool]) -> None:
        self.asks = False
        self._write = write
        self._open_questions: dict[str, approvals.OpenQuestion] = {}

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The program's answer."""
        if not self.asks:
            return Approval(Choice.DENY, reason=NO_TERMINAL, unanswered=True)
        question = approvals.OpenQuestion(request)
        self._open_questions[question.id] = question
        try:
            is_written = self._write({"type": "approval", **question.to_json()})
            if not is_written:  # the output is closed, and with it the program that could answer
                return Approval(Choice.DENY, reason=NO_TERMINAL, unanswered=True)
            return await question.answer
        finally:
            del self._open_questions[question.id]

    def decide(self, decision: DecisionInput) -> None:
        """Set an answer; raises InputError if no such question waits, or it lacks this choice."""
        question = self._open_questions.get(decision.id)
        try:
            if question is None:
                raise InputError("No such question waits for an answer.")
            question.decide(decision.approval)
        except updates.SharedSessionError as error:
            raise InputError(str(error)) from error

    def close(self) -> None:
        """Deny all questions: no answer can follow."""
        self.asks = False
        for question in self._open_questions.values():
            if not question.answer.done():
                question.decide(Approval(Choice.DENY, reason=NO_TERMINAL, unanswered=True))


MAX_ECHOED = 200

_TOPICS = ", ".join(f"`{topic}`" for topic in events.Topic if topic is not events.Topic.PREFILL)
OUTPUT_TYPES = {
    "text": "`content`: the next piece of the answer",
    "thinking": "`content`: the next piece of the reasoning",
    "tool_use": "`id`, `name`, `input` (object)",
    "tool_result": "`id`, `name`, `content`; exactly one for each `tool_use`",
    "stats": "tokens, seconds, speeds and context after each generation; `cost` in US dollars if "
    "the price is known; `provider` if a tool asked another model",
    "system": f"`topic` ({_TOPICS}) and `content`, which is JSON for `plan`; with a call its `id`",
    "approval": "a question: `id`, `tool`, `call_id`, `arguments`, `preview`, `detail` (the diff "
    "of what a command changed), `accesses`, `cause`, `asker`, `sandbox`, the rules that `session` "
    "and `always` would add, and `fields` to fill in",
    "command_result": "`command`, and its output as `content`",
    "error": "`error` (kind) and `message`; also `line` and `input` for a line that is not valid",
    "end_turn": "`reason` (`stop`, `length`, `error`, `cancelled`), `session` (id), and `denied`: "
    "the number of denials in the turn; if a price is known, `cost` of the turn and `total_cost` "
    "since the start, in US dollars",
}
"""Each type of output with its fields, for the reference."""


class EventWriter(Struct):
    """Writes one object per line, each flushed; `broken` is True once the output is closed."""

    file: BinaryIO
    broken: bool = False
    turn: Totals = field(default_factory=Totals)
    session: Totals = field(default_factory=Totals)
    _open_calls: dict[str, str] = field(default_factory=dict[str, str])

    def receive(self, event: events.Event) -> bool:
        """Write an event; the callback of a turn."""
        match event:
            case events.Text():
                self.write({"type": "text", "content": event.text})
            case events.Thinking():
                self.write({"type": "thinking", "content": event.text})
            case messages.ToolCall(id=id, name=name, arguments=arguments):
                self._open_calls[id] = name
                self.write({"type": "tool_use", "id": id, "name": name, "input": arguments})
            case events.ToolResult():
                self._result(event.id, event.name, event.text)
            case events.Stats():
                self._stats(event)
            case events.Failure():
                self.error(event.error, event.message)
            case events.Notice():
                self._notice(event)
            case events.PlanUpdate():
                self._notice(event.notice)
            case _:
                pass
        return not self.broken

    def system(self, topic: events.Topic, text: str) -> None:
        """Write a `system` object without a call."""
        self.write({"type": "system", "topic": topic, "content": text})

    def notice(self, text: str) -> None:
        """A sentence for the user."""
        self.system(events.Topic.NOTICE, text)

    def error(self, kind: str, message: str, **more: object) -> bool:
        """Report an error; the conversation continues."""
        return self.write({"type": "error", "error": kind, "message": message, **more})

    def bad_input(self, number: int, line: bytes, error: InputError) -> None:
        """Report that line `number` is invalid; its beginning is sent back."""
        excerpt = line.decode("utf-8", "replace")[:MAX_ECHOED]
        self.error("InputError", f"line {number}: {error}", line=number, input=excerpt)

    def end_turn(self, reason: str, session: str, denied: int) -> None:
        """Report the end of the turn; calls without a result get one."""
        for call_id, name in list(self._open_calls.items()):  # a copy: each result removes one
            self._result(call_id, name, messages.INTERRUPTED)
        end = {"type": "end_turn", "reason": reason, "session": session, "denied": denied}
        costs = {"cost": self.turn.cost, "total_cost": self.session.cost}
        known_costs = {name: cost for name, cost in costs.items() if cost is not None}
        self.write({**end, **known_costs})
        self.turn = Totals()

    def write(self, data: dict[str, object]) -> bool:
        """Write an object; False if the output is closed."""
        if not self.broken:
            try:
                self.file.write(json_line(data))
                self.file.flush()
            except BrokenPipeError:
                self.broken = True
        return not self.broken

    def _notice(self, notice: events.Notice) -> None:
        """Write a `system` object, with the id of the call that it is about, if there is one."""
        of_call = {"id": notice.id} if notice.id else {}
        data = {"topic": notice.topic, "content": notice.text}
        self.write({"type": "system", **data, **of_call})

    def _stats(self, stats: events.Stats) -> None:
        """Add the measures of a generation to the sums, and write them."""
        for totals in (self.turn, self.session):
            totals.add(stats)
        origin = {"provider": stats.provider, "id": stats.id}
        known = {name: text for name, text in origin.items() if text}
        self.write({"type": "stats", **stats.measures(), **known})

    def _result(self, id: str, name: str, content: str) -> None:
        """Write the result of a call, which is no longer open."""
        self._open_calls.pop(id, None)
        self.write({"type": "tool_result", "id": id, "name": name, "content": content})
