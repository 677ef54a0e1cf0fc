"""The adapter to Google's Gemini."""

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from shepherd.backends.api.adapter import (
    Adapter,
    AnswerDecoder,
    ApiRequest,
    EmbeddingApi,
    Framing,
    ModelEntry,
    ModelTraits,
)
from shepherd.backends.api.coerce import as_objects, as_text, as_texts
from shepherd.backends.api.gemini.decoder import GeminiDecoder
from shepherd.backends.api.gemini.embedding import GeminiEmbeddings
from shepherd.backends.api.gemini.request import chat_body
from shepherd.backends.api.gemini.traits import model_path
from shepherd.backends.api.model_list import listed_model
from shepherd.messages import JsonObject
from shepherd.session import Session

_VERSION = "/v1beta"


class GeminiAdapter(Adapter):
    """generateContent, streamed as server-sent events."""

    name: ClassVar[str] = "gemini"
    framing: ClassVar[Framing] = Framing.SSE
    default_base_url: ClassVar[str] = "https://generativelanguage.googleapis.com"
    prints_calls: ClassVar[bool] = False
    image_types: ClassVar[frozenset[str]] = frozenset({"image/png", "image/jpeg", "image/webp"})

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": api_key} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        path = f"{_resource(model.id)}:streamGenerateContent?alt=sse"
        return ApiRequest(path, chat_body(session, model, max_tokens))

    def decoder(self) -> AnswerDecoder:
        return GeminiDecoder()

    @property
    def embeddings(self) -> EmbeddingApi:
        return GeminiEmbeddings()

    def models(self) -> ApiRequest:
        return ApiRequest(f"{_VERSION}/models?pageSize=1000", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        """The models that can answer; others (embeddings, images) are left out."""
        entries = map(_entry, as_objects(body.get("models")))
        return [entry for entry in entries if entry is not None]

    def probes(self, model: str) -> list[ApiRequest]:
        """The model's own page, which also exists for models that the list leaves out."""
        return [ApiRequest(_resource(model), method="GET", stream=False)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        del request, model
        return _entry(body)


def _resource(model: str) -> str:
    return f"{_VERSION}/{quote(model_path(model), safe='/')}"


def _entry(item: JsonObject) -> ModelEntry | None:
    name, methods = as_text(item.get("name")), as_texts(item.get("supportedGenerationMethods"))
    if not name or (methods and "generateContent" not in methods):
        return None
    return listed_model(name.removeprefix("models/"), item)
