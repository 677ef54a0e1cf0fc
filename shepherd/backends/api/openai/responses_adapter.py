"""The adapter to OpenAI's responses API."""

from collections.abc import Mapping
from typing import ClassVar

from shepherd.backends.api.adapter import (
    Adapter,
    AnswerDecoder,
    ApiRequest,
    EmbeddingApi,
    ModelEntry,
    ModelTraits,
)
from shepherd.backends.api.openai.chat_adapter import auth_header, models_request, version_query
from shepherd.backends.api.openai.common import OpenAIEmbeddings
from shepherd.backends.api.openai.dialects import OPENAI, Dialect, parse_models
from shepherd.backends.api.openai.responses_decoder import ResponsesDecoder
from shepherd.backends.api.openai.responses_request import API_NAME, responses_body
from shepherd.messages import JsonObject
from shepherd.session import Session


class OpenAIResponsesAdapter(Adapter):
    """The responses API, without anything stored there; `api_version` is Azure's."""

    name: ClassVar[str] = API_NAME
    default_base_url: ClassVar[str] = "https://api.openai.com/v1"
    prints_calls: ClassVar[bool] = False

    def __init__(self, dialect: Dialect = OPENAI, api_version: str = "") -> None:
        self.dialect = dialect
        self.api_version = api_version

    def auth(self, api_key: str) -> Mapping[str, str]:
        return auth_header(self.dialect.key_header, api_key)

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = responses_body(session, model, max_tokens)
        return ApiRequest("responses" + version_query(self.api_version), body)

    def decoder(self) -> AnswerDecoder:
        return ResponsesDecoder()

    @property
    def embeddings(self) -> EmbeddingApi:
        return OpenAIEmbeddings(version_query(self.api_version))

    def models(self) -> ApiRequest:
        return models_request(self.api_version)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        return parse_models(body)


class OtherResponsesAdapter(OpenAIResponsesAdapter):
    """The responses API of other servers, whose models may print their calls."""

    prints_calls: ClassVar[bool] = True
