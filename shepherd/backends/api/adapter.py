"""The interface of an API's adapter; no I/O.

An adapter turns a session into a request, and the answer into deltas. Everything else (connecting,
retrying, building the message, counting tokens) is the same for all APIs, and is in the modules
beside this one.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias

from shepherd.events import FinishReason
from shepherd.images import MEDIA_TYPES
from shepherd.logprobs import TokenLogprob
from shepherd.messages import JsonObject
from shepherd.session import Session


class Framing(StrEnum):
    """How a streamed answer is cut into events."""

    SSE = "sse"  # server-sent events
    NDJSON = "ndjson"  # one JSON object a line


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """An HTTP request without the key, which is in `Adapter.auth`.

    `path` is relative to the provider's base URL. `stream`: the answer comes as events.
    """

    path: str
    body: JsonObject | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: bool = True


class TextDelta(NamedTuple):
    """A piece of the answer; `logprobs` are those of its tokens, where they were asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the reasoning."""

    text: str


class CallDelta(NamedTuple):
    """A piece of a tool call; pieces with one `key` belong together, in the order of first sight.

    `id` and `name` are "" where the piece does not bring them. `arguments` is JSON text to append,
    or the object, out of an event's JSON, of an API that sends it whole; `extra` is what the API
    wants back with the call (see `ToolCall.extra`).
    """

    key: int | str
    id: str = ""
    name: str = ""
    arguments: str | JsonObject = ""
    extra: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ExtraDelta:
    """What the API wants back unchanged with this message (see `Message.extra`), appended."""

    value: JsonObject


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """Tokens as the API counts them; a later one replaces what it names, None says nothing.

    `prompt_tokens` includes the cached ones; `completion_tokens` includes the reasoning.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StopDelta:
    """Why the answer ended; `note` is for the user where there is more to say (a refusal).

    `stop_string` is the stop string that ended it, "" if the API does not say.
    """

    reason: FinishReason
    note: str = ""
    stop_string: str = ""


@dataclass(frozen=True, slots=True)
class ErrorDelta:
    """An error in the middle of a stream; `body` is the API's own error object as it came."""

    body: JsonObject
    status: int = 500


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | CallDelta | ExtraDelta | UsageDelta | StopDelta | ErrorDelta
)


class AnswerDecoder(ABC):
    """Understands one streamed answer; a new one per request."""

    @abstractmethod
    def feed(self, name: str, data: JsonObject) -> Iterable[Delta]:
        """The deltas of one event; `name` is "" where the framing has no names.

        Lenient: unknown events and fields of a wrong type give nothing. Never raises for what an
        upstream sent.
        """

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether the answer has come to its end; if the stream ends before, it was cut off."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that a provider offers; `context_size` and `output_limit` in tokens, 0 = unknown.

    `source` says where the context size was learned, for the user. `vision` says whether it sees
    images, `thinking` whether it can think, `tools` whether it is given any, None if nobody says.
    """

    id: str
    context_size: int = 0
    output_limit: int = 0
    source: str = ""
    vision: bool | None = None
    thinking: bool | None = None
    tools: bool | None = None


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """What is known about the model that answers; see the model database.

    `vision` says whether it sees images, `tools` whether its server gives it any (else they are
    told in words), None if nobody knows. `limit_parameter` is the name of the output limit in the
    request ("" = the adapter's own choice).
    """

    id: str
    context_size: int = 0
    output_limit: int = 0
    thinking: bool = False
    vision: bool | None = None
    limit_parameter: str = ""
    output_setting: int = 0
    """The user's own output limit, which goes before the server's; 0 = none."""
    effort: str = ""
    """How much it is to think, one of `Effort`; "" = as the session says."""
    tools: bool | None = None
    refused: frozenset[str] = frozenset()
    """Fields of requests that the provider has refused for this model."""


class Adapter(ABC):
    """The requests and answers of one API."""

    name: ClassVar[str]
    framing: ClassVar[Framing] = Framing.SSE
    default_base_url: ClassVar[str] = ""
    prints_calls: ClassVar[bool] = True
    """Whether a model behind it may print calls and thoughts as text, for our parser to find."""
    tells_abilities: ClassVar[bool] = False
    """Whether its probes are worth asking also where the context size is set."""
    image_types: ClassVar[frozenset[str]] = frozenset(MEDIA_TYPES)
    """The images that the API takes."""

    @abstractmethod
    def auth(self, api_key: str) -> Mapping[str, str]:
        """The headers that let us in; {} for an empty key."""

    @abstractmethod
    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        """The request for an answer; `max_tokens` 0 = the API's or the model's most.

        The conversation is normalised so that the API accepts it whatever happened before:
        alternation, orphan calls and results, empty contents, messages of other APIs. It holds only
        images that the model can see: `vision.visible` has replaced the others by text.
        Raises InvalidRequestError for a parameter that the API does not have.
        """

    @property
    def extras(self) -> Collection[str]:
        """The fields of its requests that are not the API's own: a strict server refuses them."""
        return ()

    def plain(self) -> "Adapter":
        """The adapter for a server that has refused one of `extras`."""
        return self

    def usual_limit(self, model: ModelTraits) -> int:
        """The output limit that `chat` sends for `max_tokens` 0; 0 = none."""
        del model
        return 0

    @abstractmethod
    def decoder(self) -> AnswerDecoder:
        """Understands the answer to one `chat` request."""

    @abstractmethod
    def models(self) -> ApiRequest:
        """The request for the list of models."""

    @abstractmethod
    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        """The models in the answer to `models`, with what it tells about them."""

    def probes(self, model: str) -> list[ApiRequest]:
        """Further requests that may tell the context size, the most reliable one first."""
        del model
        return []

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        """What the answer to a probe tells about the model, None if nothing."""
        del request, body, model
        return None
