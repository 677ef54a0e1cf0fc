"""`POST /v1/embeddings` and `POST /v1/rerank`, and the paths that mean the same."""

from functools import partial
from typing import Annotated, cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.embedding import EmbeddingInput, RankingInput
from shepherd.messages import JsonObject
from shepherd.server.api import Api
from shepherd.server.embeddings.answers import embeddings_json, plain_json, rerank_json
from shepherd.server.embeddings.requests import EmbeddingBody, RerankBody
from shepherd.server.errors import ApiError, unsupported
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.server.wire.embedding import MAX_INPUTS, embedded, ranked
from shepherd.server.wire.errors import EXCEEDS_CONTEXT, OpenAiErrors
from shepherd.server.wire.prompts import prompts_of

EMBEDDINGS_PATH = "/v1/embeddings"
RERANK_PATH = "/v1/rerank"
_JSON = "application/json"


def embeddings_router(context: ServerContext) -> APIRouter:
    """The routes that make vectors."""
    router = APIRouter()

    @router.post(EMBEDDINGS_PATH)
    async def create_embeddings(
        request: Request, body: Annotated[EmbeddingBody, context.bodies.of(EmbeddingBody)]
    ) -> Response:
        """Make a vector of each input. With `content` the answer is in llama.cpp's shape."""
        return await _embeddings(context, request, body, plain=False)

    @router.post("/embeddings")
    async def create_unprefixed(
        request: Request, body: Annotated[EmbeddingBody, context.bodies.of(EmbeddingBody)]
    ) -> Response:
        """The same for a request that names a model, otherwise llama.cpp's shape."""
        return await _embeddings(context, request, body, plain=body.model is None)

    @router.post("/embedding")
    async def create_plain(
        request: Request, body: Annotated[EmbeddingBody, context.bodies.of(EmbeddingBody)]
    ) -> Response:
        """The same in llama.cpp's shape."""
        return await _embeddings(context, request, body, plain=True)

    return router


def rerank_router(context: ServerContext) -> APIRouter:
    """The routes that order documents."""
    router = APIRouter()

    @router.post("/rerank")
    @router.post("/reranking")
    @router.post("/v1/reranking")
    @router.post(RERANK_PATH)
    async def rerank(
        request: Request, body: Annotated[RerankBody, context.bodies.of(RerankBody)]
    ) -> Response:
        """Order documents by how well they fit a query, the best first.

        Also at `/rerank`, `/reranking` and `/v1/reranking`.
        """
        field = "texts" if body.documents is None else "documents"
        documents = body.texts if body.documents is None else body.documents
        if documents is None:
            raise _missing("documents")
        inputs = RankingInput(body.query, documents)
        result, info = await ranked(context, request, body.model, inputs, field)
        return JsonResponse(rerank_json(result, body, documents, body.model or info.id))

    return router


async def _embeddings(
    context: ServerContext, request: Request, body: EmbeddingBody, *, plain: bool
) -> Response:
    field = "content" if body.input is None else "input"
    value: object = body.content if body.input is None else body.input
    if value is None:
        raise _missing("input")
    prompts = prompts_of(_plain_content(value, field), field, MAX_INPUTS).prompts
    if any(prompt.images for prompt in prompts):
        raise unsupported(field, f"{field}: images have no embeddings here")
    inputs = EmbeddingInput([prompt.parts for prompt in prompts], body.dimensions or 0)
    result, info = await embedded(context, request, body.model, inputs, field)
    if plain or body.input is None:
        write = partial(plain_json, result)
    else:
        write = partial(embeddings_json, result, body, body.model or info.id)
    return Response(await context.bodies.run(write), media_type=_JSON)


def _plain_content(value: object, where: str) -> object:
    """Inputs in which the text parts of a message are one text."""
    if isinstance(value, list):
        items = enumerate(cast(list[object], value))
        return [_text_of(item, f"{where}.{index}") for index, item in items]
    return _text_of(value, where)


def _text_of(item: object, where: str) -> object:
    if not isinstance(item, dict) or "content" not in item:
        return cast(object, item)
    parts: object = cast(JsonObject, item)["content"]
    if not isinstance(parts, list):
        raise ApiError(400, f"{where}.content must be a list of parts", "invalid_value", where)
    texts: list[str] = []
    for part in cast(list[object], parts):
        fields = cast(JsonObject, part) if isinstance(part, dict) else {}
        text: object = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str):
            raise unsupported(where, f"{where}.content: only text is supported")
        texts.append(text)
    return "".join(texts)


def _missing(field: str) -> ApiError:
    return ApiError(400, f"{field} is missing", "missing_required_parameter", field)


EMBEDDINGS = Api(
    name="embeddings",
    paths=(EMBEDDINGS_PATH, RERANK_PATH, "/v1/reranking"),
    errors=OpenAiErrors(),
    routers=lambda context: (embeddings_router(context), rerank_router(context)),
)
EMBEDDINGS_UNPREFIXED = Api(
    name="embeddings",
    paths=("/embedding", "/embeddings", "/rerank", "/reranking"),
    errors=OpenAiErrors(EXCEEDS_CONTEXT),
    routers=lambda _: (),
)
"""The same paths without `/v1`, which llama.cpp's clients use."""
