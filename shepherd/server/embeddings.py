"""Vectors of texts, and the order of documents for a query: requests, answers and paths."""

import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.embedding import EmbeddingInput, Embeddings, Ranking, RankingInput
from shepherd.json_text import as_object, to_json
from shepherd.messages import JsonObject
from shepherd.server.api import Api
from shepherd.server.errors import ApiError, unsupported
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext
from shepherd.server.wire.content import prompts_of
from shepherd.server.wire.embedding import MAX_DIMENSIONS, MAX_INPUTS, embedded, json_array, ranked
from shepherd.server.wire.errors import EXCEEDS_CONTEXT, OpenAiErrors
from shepherd.server.wire.fields import NUMBER, CheckedRequest, Integer, ModelName

_INSTRUCTION = "Write the instruction into the texts, as the model's card says."
_NUMBERS = "Vectors are numbers of 32 bits."
EUCLIDEAN = 2


def _document(value: object) -> object:
    """The text of a document, which may be an object."""
    return cast(dict[str, object], value).get("text") if isinstance(value, dict) else value


class EmbeddingBody(CheckedRequest):
    """The body of `POST /v1/embeddings` and of the paths like it."""

    refused: ClassVar = {
        "input_type": _INSTRUCTION,
        "task": _INSTRUCTION,
        "instruction": _INSTRUCTION,
        "late_chunking": "Each text is read on its own.",
        "truncation": "Texts are never shortened.",
        "output_dtype": _NUMBERS,
        "embedding_type": _NUMBERS,
        "embedding_types": _NUMBERS,
    }

    model: ModelName = None
    input: Any = None
    """A text, a list of tokens, or a list of at most 2,048 such inputs. Each gives a vector."""
    content: Any = None
    """llama.cpp's name for `input`; the answer is in its shape."""
    encoding_format: Literal["float", "base64"] | None = None
    """How vectors are written; base64 has float32 in little endian."""
    dimensions: Annotated[int | None, Field(ge=1, le=MAX_DIMENSIONS), NUMBER] = None
    """Only so many numbers of each vector, scaled to length 1 again."""
    embd_normalize: Integer = None
    """llama.cpp's; only 2 (length 1) is served."""

    @model_validator(mode="before")
    @classmethod
    def _only_of_length_one(cls, value: object) -> object:
        """Refuse another norm of vectors than the Euclidean one, which llama.cpp calls 2."""
        fields = as_object(value)
        if fields.get("embd_normalize") not in (None, EUCLIDEAN):
            raise ValueError("embd_normalize must be 2: vectors always have length 1")
        return value


class RerankBody(CheckedRequest):
    """The body of `POST /v1/rerank`."""

    refused: ClassVar = {
        "rank_fields": "Send each document as one text.",
        "max_chunks_per_doc": "Documents are never divided.",
        "max_tokens_per_doc": "Documents are never shortened.",
        "truncate": "Documents are never shortened.",
        "truncation": "Documents are never shortened.",
        "raw_scores": "Scores are always as the model gives them.",
        "instruction": _INSTRUCTION,
    }

    model: ModelName = None
    query: str
    """The text that documents are compared with."""
    documents: Annotated[
        list[Annotated[str, BeforeValidator(_document)]] | None,
        Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True),
    ] = None
    """Texts, or objects with a `text`."""
    texts: Annotated[
        list[str] | None, Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)
    ] = None
    """The documents in the format of Hugging Face's TEI; so is the answer then."""
    top_n: Annotated[int | None, Field(ge=1), NUMBER] = None
    """Only so many results; all without it."""
    return_documents: bool | None = None
    """Each result has its document too."""
    return_text: bool | None = None
    """With `texts`: each result has its text too."""


def embeddings_json(result: Embeddings, body: EmbeddingBody, model: str) -> str:
    """OpenAI's list of vectors; slow for many of them."""
    usage = to_json(_usage(result.tokens))
    head = f'{{"object":"list","model":{to_json(model)},"usage":{usage},"data":'
    return f"{head}{json_array(_items(result.vectors, body))}}}"


def llamacpp_json(result: Embeddings) -> str:
    """llama.cpp's list: vectors, each in a list of its own."""
    items = enumerate(result.vectors)
    return json_array({"index": index, "embedding": [list(vector)]} for index, vector in items)


def rerank_json(
    result: Ranking, body: RerankBody, documents: Sequence[str], model: str
) -> JsonObject | list[JsonObject]:
    """The documents by their scores, the best first, in the shape that the request has."""
    scores = result.scores
    best_first = sorted(range(len(scores)), key=lambda index: scores[index], reverse=True)
    best_first = best_first[: body.top_n]
    if body.documents is None:  # a request with `texts`, for Hugging Face's server
        texts: list[JsonObject] = [{"index": i, "score": scores[i]} for i in best_first]
        for item in texts if body.return_text else ():
            item["text"] = documents[item["index"]]
        return texts
    results: list[JsonObject] = [{"index": i, "relevance_score": scores[i]} for i in best_first]
    for item in results if body.return_documents else ():
        item["document"] = {"text": documents[item["index"]]}
    return {
        "object": "list",
        "model": model,
        "usage": _usage(result.tokens),
        "results": results,
    }


def _items(vectors: Sequence[Sequence[float]], body: EmbeddingBody) -> Iterable[JsonObject]:
    """The vectors as OpenAI's API writes them, in the encoding that the request wants."""
    for index, vector in enumerate(vectors):
        numbers = _base64(vector) if body.encoding_format == "base64" else list(vector)
        yield {"object": "embedding", "index": index, "embedding": numbers}


def _base64(vector: Sequence[float]) -> str:
    """A vector as base64 of floats of 32 bits."""
    numbers = array("f", vector)
    if sys.byteorder == "big":  # the API has them in little endian
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()


def _usage(tokens: int) -> JsonObject:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


EMBEDDINGS_PATH = "/v1/embeddings"
RERANK_PATH = "/v1/rerank"
_JSON = "application/json"


def embeddings_router(context: ServerContext) -> APIRouter:
    """The routes that make vectors."""
    router = APIRouter()

    @router.post("/embedding")
    @router.post("/embeddings")
    @router.post(EMBEDDINGS_PATH)
    async def create_embeddings(
        request: Request, body: Annotated[EmbeddingBody, context.bodies.of(EmbeddingBody)]
    ) -> Response:
        """Make a vector of each input.

        The answer is in llama.cpp's shape with `content`, at `/embedding`, and at `/embeddings`
        without a model.
        """
        has_content = body.input is None  # llama.cpp's name for the inputs
        field, value = ("content", body.content) if has_content else ("input", body.input)
        if value is None:
            raise _missing("input")
        prompts = prompts_of(_joined_texts(value, field), field, MAX_INPUTS).prompts
        if any(prompt.images for prompt in prompts):
            raise unsupported(field, f"{field}: images have no embeddings here")
        inputs = EmbeddingInput([prompt.parts for prompt in prompts], body.dimensions or 0)
        result, info = await embedded(context, request, body.model, inputs, field)
        path = request.scope["path"]
        is_llamacpps = path == "/embedding" or (path == "/embeddings" and body.model is None)
        if has_content or is_llamacpps:
            write = partial(llamacpp_json, result)
        else:
            write = partial(embeddings_json, result, body, body.model or info.id)
        return Response(await context.bodies.run(write), media_type=_JSON)

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


def _joined_texts(value: object, where: str) -> object:
    """Inputs in which the text parts of a message are one text."""
    if isinstance(value, list):
        items = enumerate(cast(list[object], value))
        return [_text_of(item, f"{where}.{index}") for index, item in items]
    return _text_of(value, where)


def _text_of(item: object, where: str) -> object:
    """The joined texts of `{"content": [{"type": "text", …}, …]}`; other inputs are unchanged."""
    if not isinstance(item, dict) or "content" not in item:
        return cast(object, item)
    parts: object = cast(JsonObject, item)["content"]
    if not isinstance(parts, list):
        raise ApiError(400, f"{where}.content must be a list of parts", "invalid_value", where)
    texts: list[str] = []
    for part in cast(list[object], parts):
        fields = as_object(part)
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
)
"""The same paths without `/v1`, which llama.cpp's clients use."""
