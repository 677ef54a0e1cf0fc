"""The adapter to an Ollama server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from shepherd.backends.api.adapter import (
    Adapter,
    AnswerDecoder,
    ApiRequest,
    EmbeddingApi,
    Framing,
    ModelEntry,
    ModelTraits,
)
from shepherd.backends.api.coerce import as_texts
from shepherd.backends.api.model_list import listed_model
from shepherd.backends.api.ollama.decoder import OllamaDecoder
from shepherd.backends.api.ollama.embedding import OllamaEmbeddings
from shepherd.backends.api.ollama.request import chat_body, tools_json
from shepherd.backends.api.ollama.window import entries, loaded_window, stored_window
from shepherd.backends.api.schemas import PerToolList
from shepherd.messages import JsonObject
from shepherd.session import Session

_LOADED = "/api/ps"
_SHOW = "/api/show"


class OllamaAdapter(Adapter):
    """/api/chat, streamed as lines of JSON."""

    name: ClassVar[str] = "ollama"
    framing: ClassVar[Framing] = Framing.NDJSON
    default_base_url: ClassVar[str] = "http://localhost:11434"
    tells_abilities: ClassVar[bool] = True
    image_types: ClassVar[frozenset[str]] = frozenset({"image/png", "image/jpeg", "image/webp"})

    def __init__(self) -> None:
        self._tools = PerToolList(tools_json)

    def auth(self, api_key: str) -> Mapping[str, str]:
        """A local server does not need a key; proxies before it and Ollama's cloud do."""
        return {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        tools = self._tools.of(session.tools)
        return ApiRequest("/api/chat", chat_body(session, model, max_tokens, tools))

    def decoder(self) -> AnswerDecoder:
        return OllamaDecoder()

    @property
    def embeddings(self) -> EmbeddingApi:
        return OllamaEmbeddings()

    def models(self) -> ApiRequest:
        return ApiRequest("/api/tags", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        listed = ((item.get("model") or item.get("name"), item) for item in entries(body))
        return [listed_model(name, item) for name, item in listed if isinstance(name, str) and name]

    def probes(self, model: str) -> list[ApiRequest]:
        """A loaded model tells the size in use; a model on disk tells the possible size."""
        loaded = ApiRequest(_LOADED, method="GET", stream=False)
        return [loaded, ApiRequest(_SHOW, {"model": model}, stream=False)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        if request.path == _LOADED:
            return loaded_window(body, model)
        abilities, window = as_texts(body.get("capabilities")), stored_window(body, model)
        if not abilities:
            return window
        entry = window or ModelEntry(model)
        vision, thinking, tools = (able in abilities for able in ("vision", "thinking", "tools"))
        return replace(entry, vision=vision, thinking=thinking, tools=tools)
