"""The interface of an API's adapter; no I/O.

An adapter turns a session into a request, and the answer into deltas. Everything else (connecting,
retrying, building the message, counting tokens) is the same for all APIs. It is in the modules
beside this one.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct, field

from shepherd.backends.api import stream
from shepherd.backends.embedding import EmbeddingInput
from shepherd.images import MEDIA_TYPES
from shepherd.messages import JsonObject
from shepherd.prices import Price
from shepherd.session import Session


class ApiRequest(Struct, frozen=True):
    """An HTTP request without the key, which is in `Adapter.auth`.

    `path` is relative to the provider's base URL. `stream`: the answer comes as events.
    """

    path: str
    body: JsonObject | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: bool = True


class ModelEntry(Struct, frozen=True):
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


class ModelTraits(Struct, frozen=True):
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


class EmbeddingAnswer(Struct, frozen=True):
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
        return None


class Adapter(ABC):
    """The requests and answers of one API."""

    name: ClassVar[str]
    framing: ClassVar[stream.Framing] = stream.Framing.SSE
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
        return 0

    @abstractmethod
    def decoder(self) -> stream.Decoder:
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
        return []

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        """The properties of the model in the answer to a probe; None if there are none."""
        return None
