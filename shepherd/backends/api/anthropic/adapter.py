"""The Messages API's adapter: for Anthropic, and for compatible servers (llama.cpp's)."""

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from shepherd.backends.api.adapter import (
    Adapter,
    AnswerDecoder,
    ApiRequest,
    ModelEntry,
    ModelTraits,
)
from shepherd.backends.api.anthropic.decoder import AnthropicDecoder
from shepherd.backends.api.anthropic.dialect import dialect_of
from shepherd.backends.api.anthropic.options import SAMPLING_PARAMETERS, output_limit
from shepherd.backends.api.anthropic.replay import API_NAME
from shepherd.backends.api.anthropic.request import chat_body
from shepherd.backends.api.anthropic.thinking import BINDING_BETA
from shepherd.backends.api.coerce import as_count, as_flag, as_object, as_objects, as_text
from shepherd.backends.api.model_list import OUTPUT_FIELDS, listed_model
from shepherd.messages import JsonObject
from shepherd.session import Session

VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
"""The last version of the API with sampling parameters; used if a request has one."""

_PROPS = "/props"  # llama.cpp's server

_SERVER_SOURCE = "the server's /props"


class AnthropicAdapter(Adapter):
    """Sessions as requests to /v1/messages."""

    name: ClassVar[str] = API_NAME
    default_base_url: ClassVar[str] = "https://api.anthropic.com"
    prints_calls: ClassVar[bool] = False

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"x-api-key": api_key} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        body = chat_body(session, model, max_tokens)
        sampled = any(name in body for name in SAMPLING_PARAMETERS)
        headers = {"anthropic-version": SAMPLING_VERSION if sampled else VERSION}
        if "block_binding" in body.get("thinking", {}):
            headers["anthropic-beta"] = BINDING_BETA
        return ApiRequest("/v1/messages", body, headers=headers)

    def usual_limit(self, model: ModelTraits) -> int:
        return output_limit(0, model, dialect_of(model.id))

    def decoder(self) -> AnswerDecoder:
        return AnthropicDecoder()

    def models(self) -> ApiRequest:
        return _get("/v1/models?limit=1000")

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        entries = map(_entry, as_objects(body.get("data")))
        return [entry for entry in entries if entry.id]

    def probes(self, model: str) -> list[ApiRequest]:
        return [_get(f"/v1/models/{quote(model, safe='')}"), _get(_PROPS)]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        if request.path != _PROPS:
            entry = _entry(body)
            return entry if entry.context_size else None
        size = as_count(as_object(body.get("default_generation_settings")).get("n_ctx"))
        vision = as_flag(as_object(body.get("modalities")).get("vision"))
        return ModelEntry(model, size, source=_SERVER_SOURCE, vision=vision) if size else None


class OtherAnthropicAdapter(AnthropicAdapter):
    """The same API on servers with other models, which may print their calls."""

    prints_calls: ClassVar[bool] = True


def _get(path: str) -> ApiRequest:
    return ApiRequest(path, method="GET", headers={"anthropic-version": VERSION}, stream=False)


def _entry(model: JsonObject) -> ModelEntry:
    image_input = as_object(as_object(model.get("capabilities")).get("image_input"))
    vision = as_flag(image_input.get("supported"))
    fields = ("max_tokens", *OUTPUT_FIELDS)
    return listed_model(as_text(model.get("id")), model, vision=vision, output_fields=fields)
