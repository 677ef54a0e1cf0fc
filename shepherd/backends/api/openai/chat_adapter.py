"""The adapter to chat completions, and to compatible servers."""

from collections.abc import Collection, Mapping
from typing import ClassVar
from urllib.parse import quote

from shepherd.backends.api.adapter import (
    Adapter,
    AnswerDecoder,
    ApiRequest,
    EmbeddingApi,
    ModelEntry,
    ModelTraits,
)
from shepherd.backends.api.openai.chat_decoder import ChatDecoder
from shepherd.backends.api.openai.chat_request import chat_body
from shepherd.backends.api.openai.dialects import PLAIN, Dialect
from shepherd.backends.api.openai.embedding import OpenAIEmbeddings
from shepherd.backends.api.openai.models import parse_models, parse_props
from shepherd.messages import JsonObject
from shepherd.session import Session

_PROPS = "../props"
_LM_STUDIO = "../api/v0/models"


class OpenAIChatAdapter(Adapter):
    """Chat completions in one dialect.

    Paths are relative references to the base URL with a slash at its end: `../props` is llama.cpp's
    `/props` beside its `/v1`. `api_version` is Azure's, for a base URL that names a deployment.
    """

    name: ClassVar[str] = "openai"
    default_base_url: ClassVar[str] = "https://api.openai.com/v1"

    def __init__(self, dialect: Dialect = PLAIN, api_version: str = "") -> None:
        self.dialect = dialect
        self.api_version = api_version

    def auth(self, api_key: str) -> Mapping[str, str]:
        return auth_header(self.dialect.key_header, api_key)

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = chat_body(session, model, max_tokens, self.dialect, self.name)
        return ApiRequest("chat/completions" + version_query(self.api_version), body)

    @property
    def extras(self) -> Collection[str]:
        return self.dialect.extras

    def plain(self) -> Adapter:
        return chat_adapter(self.dialect.plain, self.api_version)

    def decoder(self) -> AnswerDecoder:
        return ChatDecoder()

    @property
    def embeddings(self) -> EmbeddingApi:
        return OpenAIEmbeddings(version_query(self.api_version))

    def models(self) -> ApiRequest:
        return models_request(self.api_version)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        return parse_models(body)

    def probes(self, model: str) -> list[ApiRequest]:
        """llama.cpp's properties and LM Studio's own list; the server may be either."""
        if not self.dialect.probed:
            return []
        return [ApiRequest(path, method="GET", stream=False) for path in (_PROPS, _LM_STUDIO)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        if request.path == _PROPS:
            return parse_props(body, model)
        entries = (entry for entry in parse_models(body) if entry.id == model)
        return next((entry for entry in entries if entry.context_size), None)


class OfficialChatAdapter(OpenAIChatAdapter):
    """Chat completions of OpenAI's own models, which never print a call as text."""

    prints_calls: ClassVar[bool] = False


class ShepherdChatAdapter(OpenAIChatAdapter):
    """The adapter for Shepherd's own server."""

    lists_default_first: ClassVar[bool] = True


def chat_adapter(dialect: Dialect = PLAIN, api_version: str = "") -> OpenAIChatAdapter:
    """The adapter for a dialect."""
    kind = OfficialChatAdapter if dialect.official else OpenAIChatAdapter
    return kind(dialect, api_version)


def auth_header(name: str, api_key: str) -> Mapping[str, str]:
    """The header with the key, {} without a key."""
    if not api_key:
        return {}
    return {name: f"Bearer {api_key}" if name == "Authorization" else api_key}


def models_request(api_version: str) -> ApiRequest:
    """The request for the models; with a version it goes to the resource above the deployment."""
    above = "../../" if api_version else ""
    path = f"{above}models{version_query(api_version)}"
    return ApiRequest(path, method="GET", stream=False)


def version_query(api_version: str) -> str:
    """Azure's version as a query, "" for none."""
    return f"?api-version={quote(api_version)}" if api_version else ""
