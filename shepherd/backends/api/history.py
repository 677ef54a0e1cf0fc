"""Normalises a conversation so that every API accepts it, whatever its history.

Appending to the history only appends to the result, so that an upstream's prompt cache hits. Only
the last group may still change: results replace their placeholders, and merged messages grow. Only
two texts are lost: the reasoning of a message without text and calls, and text of only whitespace.
Images stay in messages of the user: images of results follow the results, others become text.
"""

import math
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count, groupby, takewhile
from typing import cast

from msgspec import Struct, structs

from shepherd.messages import JsonObject, Message, Role, ToolCall

NO_RESULT = "Error: no result"
NO_OUTPUT = "(no output)"
NO_TEXT = "(empty message)"
LEFT_OUT = "(What was said before is left out.)"
GO_ON = "(Go on.)"


class Rules(Struct, frozen=True):
    """The requirements of one API beyond those of all APIs.

    `user_first`, `user_last`: the first or last message must be the user's (results count as last).
    `merge`: neighbours of one role become one message, except results. `call_id` and `tool_name`
    are regular expressions for a full id or name. Invalid ids are replaced by `call_id_length`
    hexadecimal digits; invalid characters in names become underscores.
    """

    user_first: bool = False
    user_last: bool = False
    merge: bool = False
    call_id: str = r"[!-~]{1,40}"
    call_id_length: int = 24
    tool_name: str = r"[A-Za-z0-9_-]{1,64}"


class Conversation(Struct, frozen=True):
    """A system message ("" = none), and at least one message of user, assistant or tool.

    Every call has a unique id, and exactly one result directly behind its message, in the order of
    the calls. Every result has a call. Only two contents may be empty: that of an assistant's
    message with calls, and that of a user's message with images.
    """

    system: str
    messages: tuple[Message, ...]


class Turn(Struct, frozen=True):
    """The messages of one side before the other continues; results are the user's, and first."""

    role: Role
    messages: tuple[Message, ...]


def normalise(system: str, messages: Sequence[Message], rules: Rules | None = None) -> Conversation:
    """The conversation as the API accepts it; normalising it again changes nothing.

    System messages at the beginning join the system message, later ones become the user's. A result
    without a call becomes a message of the user, a call without a result gets `NO_RESULT`. Hints
    stay messages of the user.
    """
    rules = rules or Rules()
    head = list(takewhile(lambda m: m.role is Role.SYSTEM, messages))
    texts = [clean_text(text) for text in (system, *(m.plain_text for m in head))]
    others = [_filled(m) for m in messages[len(head) :] if not _says_nothing(m)]
    result = list(_paired(others, CallNames(rules)))
    if rules.merge:
        result = list(_merged(result))
    if not result or (rules.user_first and result[0].role is not Role.USER):
        result.insert(0, Message.user(LEFT_OUT))
    if rules.user_last and result[-1].role is Role.ASSISTANT:
        result.append(Message.user(GO_ON))
    return Conversation("\n\n".join(text for text in texts if text.strip()), tuple(result))


def turns(messages: Sequence[Message]) -> list[Turn]:
    """The messages by speaker, for an API in which a turn has several parts."""
    sides = groupby(messages, lambda m: m.role is Role.ASSISTANT)
    return [Turn(Role.ASSISTANT if says else Role.USER, tuple(group)) for says, group in sides]


class CallNames:
    """Gives each call of one conversation, in order, a unique id and a valid name.

    A new id depends only on the old one and on the ids before it. A longer conversation therefore
    keeps the ids of a shorter one.
    """

    def __init__(self, rules: Rules) -> None:
        self._id_form = re.compile(rules.call_id)
        self._id_length = rules.call_id_length
        self._name_form = re.compile(rules.tool_name)
        self._used_ids: set[str] = set()

    def valid(self, call: ToolCall) -> ToolCall:
        """The call with a valid id and name; its arguments are valid JSON."""
        call_id = self._unique_id(call.id)
        self._used_ids.add(call_id)
        name, arguments = self._valid_name(call.name), sanitize_object(call.arguments)
        if (call_id, name, arguments) == (call.id, call.name, call.arguments):
            return call
        return structs.replace(call, id=call_id, name=name, arguments=arguments)

    def _unique_id(self, call_id: str) -> str:
        """The id itself if it may be used, else the first free one of those made from it."""
        if call_id not in self._used_ids and self._id_form.fullmatch(call_id):
            return call_id
        seeds = (f"{number}:{call_id}".encode("utf-8", "replace") for number in count())
        made_ids = (sha256(seed).hexdigest()[: self._id_length] for seed in seeds)
        return next(made_id for made_id in made_ids if made_id not in self._used_ids)

    def _valid_name(self, name: str) -> str:
        """The name, or one in which characters that the API refuses are underscores."""
        if self._name_form.fullmatch(name):
            return name
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64].strip("_")
        return plain or "unnamed"


def _says_nothing(message: Message) -> bool:
    """Whether to leave a message out: it has no text, images or calls.

    Empty messages of the user and of tools stay, with a placeholder.
    """
    if message.content.strip() or message.images:
        return False
    if message.role is Role.ASSISTANT:
        return not message.tool_calls
    return message.role is Role.SYSTEM


def _filled(message: Message) -> Message:
    """The message with clean text, and with a placeholder if it requires a text."""
    if message.role is Role.ASSISTANT:  # no API accepts images in an answer
        message = message.without_images()
    content = clean_text(message.content)
    if not content.strip() and message.role is Role.TOOL:
        content = NO_OUTPUT
    elif not content.strip() and message.role is not Role.ASSISTANT:
        content = "" if message.images else NO_TEXT
    if message.role is Role.SYSTEM:
        return Message.user(content, message.images)
    reasoning = clean_text(message.reasoning)
    if (content, reasoning) == (message.content, message.reasoning):
        return message
    return structs.replace(message, content=content, reasoning=reasoning)


def _paired(messages: Sequence[Message], names: CallNames) -> Iterator[Message]:
    """The messages with each call's result behind it."""
    # a message with calls waits here until its results, or the next message, have been read
    caller: Message | None = None
    for is_result, neighbours in groupby(messages, lambda m: m.role is Role.TOOL):
        group = list(neighbours)
        if is_result:
            yield from map(_as_user, group) if caller is None else _answered(caller, group, names)
            caller = None
            continue
        for message in group:
            if caller is not None:
                yield from _answered(caller, [], names)
            caller = message if message.role is Role.ASSISTANT and message.tool_calls else None
            if caller is None:  # calls of another role than the assistant mean nothing
                yield structs.replace(message, tool_calls=()) if message.tool_calls else message
    if caller is not None:
        yield from _answered(caller, [], names)


def _answered(caller: Message, following: Sequence[Message], names: CallNames) -> Iterator[Message]:
    """A message with calls, then their results, those results' images, and the other results.

    `following` are the results behind it, in any order; a call without one gets `NO_RESULT`.
    """
    unmatched = list(following)
    results: list[Message] = []
    for call in caller.tool_calls:
        match = next((m for m in unmatched if m.tool_call_id == call.id), None)
        if match is not None:
            unmatched.remove(match)
        results.append(match or Message.tool(call, NO_RESULT))
    calls = tuple(map(names.valid, caller.tool_calls))
    yield caller if calls == caller.tool_calls else structs.replace(caller, tool_calls=calls)
    for call, result in zip(calls, results, strict=True):
        yield _result_of(call, result)
    # behind all results, since no message may come between a call and its result
    for call, result in zip(calls, results, strict=True):
        if result.images:
            yield Message.user(f"From {call.name}.", result.images)
    yield from map(_as_user, unmatched)


def _result_of(call: ToolCall, result: Message) -> Message:
    """The result under its call's id and name, without the fields that results don't have."""
    names = (result.tool_call_id, result.name)
    if names == (call.id, call.name) and not (result.tool_calls or result.images):
        return result
    return structs.replace(result, tool_calls=(), tool_call_id=call.id, name=call.name, images=())


def _as_user(result: Message) -> Message:
    """A result without its call, as a message of the user."""
    text = f"Result of {result.name or 'a tool'}:\n{result.content}"
    return Message.user(text, result.images)


def _merged(messages: Sequence[Message]) -> Iterator[Message]:
    """Neighbours of one role as one message, joined by an empty line.

    Of the data that an API needs back (`Message.extra`), only that of the last merged answer is
    kept.
    """
    for role, neighbours in groupby(messages, lambda m: m.role):
        group = list(neighbours)
        if role is Role.TOOL or len(group) == 1:  # each result belongs to a call of its own
            yield from group
            continue
        yield structs.replace(
            group[-1],
            content="\n\n".join(m.content for m in group if m.content),
            reasoning="\n\n".join(m.reasoning for m in group if m.reasoning),
            name="",
            images=tuple(image for m in group for image in m.images),
        )


def clean_text(text: str) -> str:
    """The text with surrogates, which UTF-8 does not allow, as question marks."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def sanitize_object(value: JsonObject) -> JsonObject:
    """The object with clean texts; numbers that JSON does not allow become null."""
    return {clean_text(str(key)): _clean(inner) for key, inner in value.items()}


def _clean(value: object) -> object:
    """A value of JSON, as deep as it is, with what `sanitize_object` replaces."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return sanitize_object(cast(JsonObject, value))
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in cast(list[object], value)]
    return value


_FIRST_HALVES = ("\ud800", "\udbff")


class SurrogateJoiner:
    """Joins characters whose two surrogates a server sent in separate pieces.

    JSON may write a character beyond the first 65,536 as two escapes, and some servers split
    between them. A surrogate without the other becomes U+FFFD, so that the result can be encoded.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The text so far, except a surrogate at its end."""
        if not self._held and text.isascii():  # as most pieces are
            return text
        text = self._held + text
        self._held = ""
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:  # its other half may come
            text, self._held = text[:-1], text[-1]
        return replace_surrogates(text)

    def finish(self) -> str:
        """The remaining surrogate, if any."""
        held, self._held = self._held, ""
        return replace_surrogates(held)


def replace_surrogates(text: str) -> str:
    """The text with its surrogates joined, and U+FFFD for single ones."""
    if text.isascii():
        return text
    # in UTF-16 the two halves stand beside each other again, and are read as one character
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
