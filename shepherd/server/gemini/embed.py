"""Gemini's `:embedContent` and `:batchEmbedContents`."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.embedding import EmbeddingInput, Embeddings
from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError, unsupported
from shepherd.server.gemini.requests import GeminiModel, Instructions, as_content
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.server.wire.embedding import MAX_INPUTS, embedded, json_array

_PREFIX = "models/"
_MAX_DIMENSIONS = 65_536
_INSTRUCTION = "Write the instruction into the text, as the model's card says."
_UNSUPPORTED = ("taskType", "task_type", "title")
_OFF = (None, "", "TASK_TYPE_UNSPECIFIED")


class EmbedContentBody(GeminiModel):
    """The body of `POST /v1beta/models/{model}:embedContent`."""

    model: str | None = None
    content: Annotated[Instructions, BeforeValidator(as_content)]
    """The text; nothing else."""
    output_dimensionality: Annotated[int | None, Field(ge=0, le=_MAX_DIMENSIONS, strict=True)] = (
        None
    )
    """Numbers of the vector."""
    auto_truncate: bool | None = None
    """true: a text that is too long loses its end."""

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: object) -> object:
        """Refuse fields that would change the vector and are not served."""
        fields = cast(JsonObject, value) if isinstance(value, dict) else {}
        for name in _UNSUPPORTED:
            if fields.get(name) not in _OFF:
                raise unsupported(name, f"{name} is not supported. {_INSTRUCTION}")
        return cast(object, value)

    def text(self) -> str:
        """The text; raises ApiError for a content without one, and for other parts."""
        if any(part.text is None for part in self.content.parts) or not self.content.parts:
            raise unsupported("content", "content: must have parts of text, and no others")
        return "".join(part.text or "" for part in self.content.parts)


class BatchEmbedBody(GeminiModel):
    """The body of `POST /v1beta/models/{model}:batchEmbedContents`."""

    requests: Annotated[list[EmbedContentBody], Field(max_length=MAX_INPUTS, fail_fast=True)]
    """A request for each text, all of the same model and size."""


def embed_router(context: ServerContext, version: str) -> APIRouter:
    """The routes that make vectors, for one version of the API."""
    router = APIRouter(prefix=f"{version}/models")

    @router.post("/{model:path}:embedContent")
    async def embed_content(
        request: Request,
        model: str,
        body: Annotated[EmbedContentBody, context.bodies.of(EmbedContentBody)],
    ) -> Response:
        """Make a vector of a text."""
        result = await _embedded(context, request, model, [body])
        vector: list[Any] = [*result.vectors[0]]
        return JsonResponse({"embedding": {"values": vector}, "usageMetadata": _usage(result)})

    @router.post("/{model:path}:batchEmbedContents")
    async def batch_embed_contents(
        request: Request,
        model: str,
        body: Annotated[BatchEmbedBody, context.bodies.of(BatchEmbedBody)],
    ) -> Response:
        """Make a vector of each text."""
        if not body.requests:
            return JsonResponse({"embeddings": []})
        result = await _embedded(context, request, model, body.requests)
        text = await context.bodies.run(lambda: _batch_text(result))
        return Response(text, media_type="application/json")

    return router


async def _embedded(
    context: ServerContext, request: Request, model: str, bodies: Sequence[EmbedContentBody]
) -> Embeddings:
    name = model.removeprefix(_PREFIX)
    kinds = {(body.output_dimensionality or 0, bool(body.auto_truncate)) for body in bodies}
    named = {(body.model or name).removeprefix(_PREFIX) for body in bodies}
    for param, is_same in (("model", named == {name}), ("outputDimensionality", len(kinds) == 1)):
        if not is_same:
            message = f"requests: {param} must be the same in all of them, and in the path"
            raise ApiError(400, message, "invalid_value", param)
    ((dimensions, truncate),) = kinds
    inputs = EmbeddingInput([(body.text(),) for body in bodies], dimensions, truncate)
    result, _ = await embedded(context, request, name, inputs, "content")
    return result


def _usage(result: Embeddings) -> JsonObject:
    return {"promptTokenCount": result.tokens, "totalTokenCount": result.tokens}


def _batch_text(result: Embeddings) -> str:
    vectors = ({"values": [*vector]} for vector in result.vectors)
    usage = to_json(_usage(result))
    return f'{{"embeddings":{json_array(vectors)},"usageMetadata":{usage}}}'
