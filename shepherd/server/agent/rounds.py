"""The rounds of tool calls that a client does not see, for its next request."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from shepherd.messages import Message, Role, ToolCall

MAX_BYTES = 64 * 1024 * 1024
"""Memory for all kept rounds; those used least recently are forgotten first."""

_MESSAGE_BYTES = 1000
"""About what a message takes without its texts."""


class Spliced(Struct, frozen=True):
    """A conversation with its hidden rounds.

    `visible_answers` has for the `id()` of a hidden message the answer that the client has of it.
    """

    messages: list[Message]
    visible_answers: dict[int, Message]


class HiddenRounds:
    """Keeps the messages behind an answer by the owner, and by the history that the client sees.

    A client sends back the answers without the calls and results that led to them. With these, the
    model remembers what it has read, and the prompt continues the one in the cache.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rounds: OrderedDict[bytes, tuple[int, tuple[Message, ...]]] = OrderedDict()
        """The size and the messages of each answer, by the digest of the history up to it."""

    def keep(
        self, owner: str, history: Sequence[Message], answer: Message, hidden: Sequence[Message]
    ) -> None:
        """Keep the messages behind `answer`, the last of them included."""
        *_, (digest_of_answer, _) = _digests(owner, [*history, answer])
        size = sum(_size(message) for message in hidden)
        self._forget(digest_of_answer)  # the same question may have been asked before
        if size > self._max_bytes:  # it would drive out all others, and itself too
            return
        self._rounds[digest_of_answer] = size, tuple(hidden)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._rounds)))  # the one that was used least recently

    def splice(self, owner: str, history: Sequence[Message]) -> Spliced:
        """The history with the messages behind its answers, as far as they are kept."""
        spliced = Spliced([], {})
        for digest, message in _digests(owner, history):
            kept = self._rounds.get(digest) if message.role is Role.ASSISTANT else None
            if kept is None:
                spliced.messages.append(message)
                continue
            self._rounds.move_to_end(digest)
            _, messages = kept
            hidden = _with_client_calls(messages, message)
            spliced.messages.extend(hidden)
            spliced.visible_answers.update((id(part), message) for part in hidden)
        return spliced

    def _forget(self, digest: bytes) -> None:
        """Forget the rounds of an answer, if any are kept."""
        size, _ = self._rounds.pop(digest, (0, ()))
        self._bytes -= size


def _digests(owner: str, history: Sequence[Message]) -> Iterator[tuple[bytes, Message]]:
    """Each message with a digest of the history up to it."""
    running = hashlib.sha256(owner.encode())  # no other key gets the hidden messages
    for message in history:
        running.update(hashlib.sha256(_comparable_parts(message).encode()).digest())
        yield running.digest(), message


def _comparable_parts(message: Message) -> str:
    """The parts of a message that every client sends back.

    Clients change white space, ids and reasoning, and some send only the first call.
    """
    call = [(call.name, call.arguments) for call in message.tool_calls[:1]]
    images = [hashlib.sha256(image.data).hexdigest() for image in message.images]
    parts = [message.role.value, "".join(message.content.split()), call, images]
    return json.dumps(parts, sort_keys=True)


def _with_client_calls(hidden: Sequence[Message], answer: Message) -> list[Message]:
    """The hidden messages; the client's calls among them are those of the visible answer.

    Their ids are the client's, whose results refer to them. Calls that it does not send back leave.
    """
    results = {message.tool_call_id for message in hidden if message.role is Role.TOOL}
    clients_calls = list(answer.tool_calls)

    def kept(calls: Sequence[ToolCall]) -> Iterator[ToolCall]:
        for call in calls:
            if call.id in results:  # the server ran it
                yield call
            elif clients_calls and clients_calls[0].name == call.name:  # in the same order
                yield structs.replace(call, id=clients_calls.pop(0).id)

    # a message without calls stays the same object: visible answers are told by their identity
    return [
        structs.replace(message, tool_calls=tuple(kept(message.tool_calls)))
        if message.tool_calls
        else message
        for message in hidden
    ]


def _size(message: Message) -> int:
    """About the memory of a message in bytes."""
    calls = sum(len(call.arguments_json) for call in message.tool_calls)
    images = sum(len(image.data) for image in message.images)
    return _MESSAGE_BYTES + len(message.content) + len(message.reasoning) + calls + images
