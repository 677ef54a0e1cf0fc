"""What a streamed answer consists of, the same for all APIs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from shepherd import events, messages, sampling


class Framing(StrEnum):
    """How a streamed answer is cut into events."""

    SSE = "sse"  # server-sent events
    NDJSON = "ndjson"  # one JSON object a line


class Text(NamedTuple):
    """A piece of the answer; `logprobs` are those of its tokens, if they were requested."""

    text: str
    logprobs: tuple[sampling.TokenLogprob, ...] = ()


class Thinking(Struct, frozen=True):
    """A piece of the reasoning."""

    text: str


class Call(NamedTuple):
    """A piece of a tool call; pieces with the same `key` form one call.

    Calls are ordered by their first piece. `id` and `name` are "" in pieces without them.
    `arguments` is JSON text to append, or the whole object if the API sends one. `extra` must be
    sent back to the API with the call (see `ToolCall.extra`).
    """

    key: int | str
    id: str = ""
    name: str = ""
    arguments: str | messages.JsonObject = ""
    extra: messages.JsonObject | None = None


class Extra(Struct, frozen=True):
    """Data that the API needs back unchanged with this message (see `Message.extra`)."""

    value: messages.JsonObject


class Usage(Struct, frozen=True):
    """Tokens as the API counts them; a later count replaces an earlier one, None changes nothing.

    `prompt_tokens` includes the cached ones; `completion_tokens` includes the reasoning.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


class Stop(Struct, frozen=True):
    """The reason why the answer ended; `note` explains it to the user if needed (a refusal).

    `stop_string` is the stop string that ended it, "" if the API does not say.
    """

    reason: events.FinishReason
    note: str = ""
    stop_string: str = ""


class Error(Struct, frozen=True):
    """An error in the middle of a stream; `body` is the API's own error object, unchanged."""

    body: messages.JsonObject
    status: int = 500


Delta: TypeAlias = Text | Thinking | Call | Extra | Usage | Stop | Error


class Decoder(ABC):
    """Decodes one streamed answer; each request needs a new decoder."""

    complete: bool = False
    """Whether the answer is complete; a stream that ends earlier was cut off."""

    @abstractmethod
    def feed(self, name: str, data: messages.JsonObject) -> Iterable[Delta]:
        """The deltas of one event; `name` is "" if the framing has no names.

        The decoder is lenient: unknown events and fields of a wrong type give no deltas. It never
        raises for the content of an upstream's answer.
        """
