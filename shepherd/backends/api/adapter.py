"""The interface of an API's adapter; no I/O.

An adapter turns a session into a request, and the answer into deltas. Everything else (connecting,
retrying, building the message, counting tokens) is the same for all APIs. It is in the modules
beside this one.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias

from shepherd.backends.embedding import EmbeddingInput
from shepherd.events import FinishReason
from shepherd.images import MEDIA_TYPES
from shepherd.messages import JsonObject
from shepherd.prices import Price
from shepherd.sampling import TokenLogprob
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
    """A piece of the answer; `logprobs` are those of its tokens, if they were requested."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the reasoning."""

    text: str


class CallDelta(NamedTuple):
    """A piece of a tool call; pieces with the same `key` form one call.

    Calls are ordered by their first piece. `id` and `name` are "" in pieces without them.
    `arguments` is JSON text to append, or the whole object if the API sends one. `extra` must be
    sent back to the API with the call (see `ToolCall.extra`).
    """

    key: int | str
    id: str = ""
    name: str = ""
    arguments: str | JsonObject = ""
    extra: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class ExtraDelta:
    """Data that the API needs back unchanged with this message (see `Message.extra`)."""

    value: JsonObject


@dataclass(frozen=True, slots=True)
class UsageDelta:
    """Tokens as the API counts them; a later count replaces an earlier one, None changes nothing.

    `prompt_tokens` includes the cached ones; `completion_tokens` includes the reasoning.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StopDelta:
    """The reason why the answer ended; `note` explains it to the user if needed (a refusal).

    `stop_string` is the stop string that ended it, "" if the API does not say.
    """

    reason: FinishReason
    note: str = ""
    stop_string: str = ""


@dataclass(frozen=True, slots=True)
class ErrorDelta:
    """An error in the middle of a stream; `body` is the API's own error object, unchanged."""

    body: JsonObject
    status: int = 500


Delta: TypeAlias = (
    TextDelta | ThinkingDelta | CallDelta | ExtraDelta | UsageDelta | StopDelta | ErrorDelta
)


class AnswerDecoder(ABC):
    """Decodes one streamed answer; each request needs a new decoder."""

    @abstractmethod
    def feed(self, name: str, data: JsonObject) -> Iterable[Delta]:
        """The deltas of one event; `name` is "" if the framing has no names.

        The decoder is lenient: unknown events and fields of a wrong type give no deltas. It never
        raises for the content of an upstream's answer.
        """

    @property
    @abstractmethod
    def complete(self) -> bool:
        """Whether the answer is complete; a stream that ends earlier was cut off."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that a provider offers; `context_size` and `output_limit` in tokens, 0 = unknown.

    `source` tells the user where the context size comes from. `vision`: the model sees images.
    `thinking`: it can think. `tools`: its server gives it tools. Each is None if unknown, as is the
    `price`.
    """

    id: str
    context_size: int = 0
    output_limit: int = 0
    source: str = ""
    vision: bool | None = None
    thinking: bool | None = None
    tools: bool | None = None
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The known properties of the model that answers; see the model database.

    `vision`: it sees images. `tools`: its server gives it tools; otherwise the prompt describes
    them. Each is None if unknown. `limit_parameter` is the name of the output limit in the request
    ("" = the adapter's choice).
    """

    id: str
    context_size: int = 0
    output_limit: int = 0
    thinking: bool = False
    vision: bool | None = None
    limit_parameter: str = ""
    output_setting: int = 0
    """The user's own output limit, which overrides the server's; 0 = none."""
    effort: str = ""
    """How much the model should think, one of `Effort`; "" = as the session says."""
    tools: bool | None = None
    price: Price | None = None
    refused: frozenset[str] = frozenset()
    """Fields of requests that the provider has refused for this model."""


@dataclass(frozen=True, slots=True)
class EmbeddingAnswer:
    """The vectors in a provider's answer, and the tokens that it counted, None if it did not."""

    vectors: Sequence[Sequence[float]]
    tokens: int | None


class EmbeddingApi(ABC):
    """The requests for vectors of one API, and its answers."""

    @abstractmethod
    def request(self, model: str, request: EmbeddingInput) -> ApiRequest:
        """The request for the vectors; raises InvalidRequestError for tokens it can't take."""

    @abstractmethod
    def parse(self, body: JsonObject) -> EmbeddingAnswer:
        """The answer's vectors in the order of the inputs; lists of a wrong type are left out."""

    def rank_request(self, model: str, query: str, documents: Sequence[str]) -> ApiRequest | None:
        """The request for scores; None if the API has none."""
        del model, query, documents
        return None


class Adapter(ABC):
    """The requests and answers of one API."""

    name: ClassVar[str]
    framing: ClassVar[Framing] = Framing.SSE
    default_base_url: ClassVar[str] = ""
    prints_calls: bool = True
    """Whether a model behind it may print calls and thoughts as text, for our parser to find."""
    tells_abilities: ClassVar[bool] = False
    """Whether its probes are useful even if the context size is set."""
    lists_default_first: ClassVar[bool] = False
    """Whether the first one of its models answers requests that name none."""
    image_types: ClassVar[frozenset[str]] = frozenset(MEDIA_TYPES)
    """The media types of images that the API accepts."""

    @abstractmethod
    def auth(self, api_key: str) -> Mapping[str, str]:
        """The headers that authorise a request; {} for an empty key."""

    @abstractmethod
    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        """The request for an answer; `max_tokens` 0 = the maximum of the API or the model.

        The conversation is normalised so that the API accepts it: alternation, calls without
        results, results without calls, empty contents, messages of other APIs. All its images are
        visible to the model: `vision.visible` has replaced the others by text. Raises
        InvalidRequestError for a parameter that the API does not have.
        """

    @property
    def extras(self) -> Collection[str]:
        """The fields of its requests that extend the API; a strict server refuses them."""
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
        """The decoder for the answer to one `chat` request."""

    @abstractmethod
    def models(self) -> ApiRequest:
        """The request for the list of models."""

    @abstractmethod
    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        """The models in the answer to `models`, with their properties."""

    @property
    def embeddings(self) -> EmbeddingApi | None:
        """The API's embeddings; None if it has none."""
        return None

    def probes(self, model: str) -> list[ApiRequest]:
        """Further requests that may reveal the context size, the most reliable one first."""
        del model
        return []

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        """The properties of the model in the answer to a probe; None if there are none."""
        del request, body, model
        return None
