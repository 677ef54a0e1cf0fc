"""The objects that a program sends to a JSON lines conversation."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from shepherd.config.choices import ApproveMode
from shepherd.conversation.shared.approvals import OpenQuestion
from shepherd.conversation.shared.updates import SharedSessionError
from shepherd.errors import ImageError
from shepherd.images import Image, check_count, decode_image
from shepherd.messages import JsonObject, Message
from shepherd.tools.permissions.approval import NO_TERMINAL, Approval, ApprovalRequest, Choice
from shepherd.tools.text import valid_json, valid_text


class InputError(Exception):
    """A line that can't be used; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class UserInput:
    """A prompt: `content`, and `images` as objects with `data` (base64) and `name`."""

    content: str
    images: tuple[Image, ...] = ()

    @property
    def message(self) -> Message:
        """The message to send."""
        return Message.user(self.content, self.images)


@dataclass(frozen=True, slots=True)
class SteeringInput(UserInput):
    """A message that joins the running turn at its next step, as `user` does without a turn."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ends the running turn, or the user's own command."""


@dataclass(frozen=True, slots=True)
class CommandInput:
    """A command: `command`, such as `/clear` or `!ls`; it waits for its place like a prompt."""

    command: str


@dataclass(frozen=True, slots=True)
class ModeInput:
    """Changes the approval mode from the next call on: `mode`."""

    mode: ApproveMode


@dataclass(frozen=True, slots=True)
class ApprovalsInput:
    """Whether calls that need approval are asked about (`ask`); they are denied otherwise."""

    ask: bool


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """The answer to an `approval`: its `id`, `decision`, and a `reason` for the model.

    `values` are the texts for its `fields`, in their order.
    """

    id: str
    approval: Approval


Input: TypeAlias = UserInput | Interrupt | CommandInput | ModeInput | ApprovalsInput | DecisionInput


def parse_input(line: bytes) -> Input | None:
    """The parsed line, None if it is blank; raises InputError."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8") from error
    if not text.startswith("{"):
        return UserInput(text) if text else None
    try:
        data = cast(JsonObject, valid_json(json.loads(text)))
    except (ValueError, RecursionError) as error:
        raise InputError(f"begins with {{ and is not JSON: {error}") from error
    parse = _PARSERS.get(str(data.get("type")))
    if parse is None:
        raise InputError(f'"type" must be one of {", ".join(_PARSERS)}')
    return parse(data)


def _user(data: JsonObject) -> UserInput:
    return UserInput(_text(data, "content"), _images(data.get("images", [])))


def _steering(data: JsonObject) -> SteeringInput:
    return SteeringInput(_text(data, "content"), _images(data.get("images", [])))


def _interrupt(_: JsonObject) -> Interrupt:
    return Interrupt()


def _command(data: JsonObject) -> CommandInput:
    return CommandInput(_text(data, "command"))


def _mode(data: JsonObject) -> ModeInput:
    return ModeInput(ApproveMode(_one_of(data, "mode", [mode.value for mode in ApproveMode])))


def _approvals(data: JsonObject) -> ApprovalsInput:
    if not isinstance(data.get("ask"), bool):
        raise InputError('"approvals" needs true or false as its "ask"')
    return ApprovalsInput(bool(data["ask"]))


def _decision(data: JsonObject) -> DecisionInput:
    choice = Choice(_one_of(data, "decision", [choice.value for choice in Choice]))
    reason = data.get("reason", "")
    if not isinstance(reason, str):
        raise InputError('the "reason" of a "decision" must be a text')
    return DecisionInput(
        _text(data, "id"), Approval(choice, reason.strip(), values=_values(data.get("values", [])))
    )


def _values(data: object) -> tuple[str, ...]:
    values = cast(list[object], data) if isinstance(data, list) else [data]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise InputError('the "values" of a "decision" must be a list of texts')
    return (*texts,)


_PARSERS: dict[str, Callable[[JsonObject], Input]] = {
    "user": _user,
    "steer": _steering,
    "interrupt": _interrupt,
    "command": _command,
    "mode": _mode,
    "approvals": _approvals,
    "decision": _decision,
}

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


def _text(data: JsonObject, name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f'a "{data["type"]}" needs a non-empty text as its "{name}"')
    return valid_text(value)


def _one_of(data: JsonObject, name: str, values: list[str]) -> str:
    value = data.get(name)
    if value not in values:
        raise InputError(f'the "{name}" of a "{data["type"]}" must be one of {", ".join(values)}')
    return str(value)


def _images(value: object) -> tuple[Image, ...]:
    if not isinstance(value, list):
        raise InputError('"images" must be a list of objects with "data" and "name"')
    try:
        check_count(cast(list[object], value))
        return tuple(_image(item) for item in cast(list[Any], value))
    except ImageError as error:
        raise InputError(str(error)) from error


def _image(value: object) -> Image:
    match value:
        case {"data": str(data), "name": str(name)}:
            return decode_image(data, name)
        case {"data": str(data)}:
            return decode_image(data)
        case _:
            raise InputError('an image needs its bytes in base64 as its "data"')


class JsonApprover:
    """Writes a question and waits for its `decision`; denies as long as `asks` is False."""

    def __init__(self, write: Callable[[JsonObject], bool]) -> None:
        self.asks = False
        self._write = write
        self._open: dict[str, OpenQuestion] = {}

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The program's answer."""
        if not self.asks:
            return Approval(Choice.DENY, reason=NO_TERMINAL)
        question = OpenQuestion(request)
        self._open[question.id] = question
        try:
            if not self._write({"type": "approval", **question.to_json()}):
                return Approval(Choice.DENY, reason=NO_TERMINAL)
            return await question.answer
        finally:
            del self._open[question.id]

    def decide(self, decision: DecisionInput) -> None:
        """Set an answer; raises InputError if no such question waits, or lacks this choice."""
        question = self._open.get(decision.id)
        try:
            if question is None:
                raise InputError("No such question waits for an answer.")
            question.decide(decision.approval)
        except SharedSessionError as error:
            raise InputError(str(error)) from error

    def close(self) -> None:
        """Deny all questions: no answer can follow."""
        self.asks = False
        for question in self._open.values():
            if not question.answer.done():
                question.decide(Approval(Choice.DENY, reason=NO_TERMINAL))
