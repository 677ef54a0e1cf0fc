"""Ollama's `/api/embed`, and the older `/api/embeddings`."""

import time
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import AfterValidator, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.embedding import EmbeddingInput, Embeddings
from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.ollama.requests import plain_name
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.server.wire.embedding import MAX_INPUTS, embedded, json_array

_NANOSECONDS = 1_000_000_000


def _one_or_more(value: object) -> object:
    """A single text is a list of one; null is none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else value


def _not_negative(value: int | None) -> int:
    """0 and null mean the model's own number."""
    return value or 0


class EmbedBody(RequestModel):
    """The body of `POST /api/embed`."""

    model: Annotated[str, Field(min_length=1)]
    """The model's name."""
    input: Annotated[
        list[str], Field(max_length=MAX_INPUTS, fail_fast=True), BeforeValidator(_one_or_more)
    ] = Field(default_factory=list[str])
    """A text, or a list of texts."""
    truncate: bool | None = None
    """Texts that are too long lose their end, unless it is false."""
    dimensions: Annotated[
        int | None, Field(ge=0, le=65536, strict=True), AfterValidator(_not_negative)
    ] = None
    """Only so many numbers of each vector."""
    options: Any = None
    """Accepted without effect."""
    keep_alive: Any = None
    """Accepted without effect."""


class EmbeddingsBody(RequestModel):
    """The body of `POST /api/embeddings`."""

    model: Annotated[str, Field(min_length=1)]
    """The model's name."""
    prompt: str | None = None
    """The text."""
    options: Any = None
    """Accepted without effect."""
    keep_alive: Any = None
    """Accepted without effect."""


def embed_router(context: ServerContext) -> APIRouter:
    """The routes that make vectors."""
    router = APIRouter(prefix="/api")

    @router.post("/embed")
    async def embed(
        request: Request, body: Annotated[EmbedBody, context.bodies.of(EmbedBody)]
    ) -> Response:
        """Make a vector of each text. Without texts the model is only loaded."""
        started = time.perf_counter()
        inputs = EmbeddingInput(
            [(text,) for text in body.input], body.dimensions or 0, body.truncate is not False
        )
        result = await _embedded(context, request, body.model, inputs, "input")
        answer: JsonObject = {
            "model": body.model,
            "total_duration": int((time.perf_counter() - started) * _NANOSECONDS),
            "load_duration": 0,
            "prompt_eval_count": result.tokens,
        }
        text = await context.bodies.run(_text, answer, result)
        return Response(text, media_type="application/json")

    @router.post("/embeddings")
    async def embed_prompt(
        request: Request, body: Annotated[EmbeddingsBody, context.bodies.of(EmbeddingsBody)]
    ) -> Response:
        """Make a vector of one text: the older form."""
        texts = [(body.prompt,)] if body.prompt else []
        inputs = EmbeddingInput(texts, truncate=True)
        result = await _embedded(context, request, body.model, inputs, "prompt")
        vectors = list(map(list, result.vectors))
        return JsonResponse({"embedding": vectors[0] if vectors else []})

    return router


def _text(answer: JsonObject, result: Embeddings) -> str:
    return f'{to_json(answer)[:-1]},"embeddings":{json_array(map(list, result.vectors))}}}'


async def _embedded(
    context: ServerContext, request: Request, model: str, inputs: EmbeddingInput, param: str
) -> Embeddings:
    name = plain_name(model, context.models)
    result, _ = await embedded(context, request, name, inputs, param)
    return result
