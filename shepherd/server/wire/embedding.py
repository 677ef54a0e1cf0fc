"""Requests for vectors and rankings to a model, for any API."""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from shepherd.backends.base import ModelInfo
from shepherd.backends.embedding import Embedder, EmbeddingInput, Embeddings, Ranking, RankingInput
from shepherd.errors import ContextFullError
from shepherd.json_text import to_json
from shepherd.server.errors import CONTEXT_FULL, ApiError
from shepherd.server.responses import while_connected
from shepherd.server.settings import ServerContext

T = TypeVar("T", Embeddings, Ranking)
MAX_INPUTS = 2048
"""The inputs of one request, as OpenAI limits them."""

MAX_DIMENSIONS = 65_536


async def embedded(
    context: ServerContext,
    request: Request,
    model: str | None,
    inputs: EmbeddingInput,
    param: str = "input",
) -> tuple[Embeddings, ModelInfo]:
    """The vectors of inputs, and the model that made them; hanging up stops the work.

    Raises ApiError, for an input that does not fit too; `param` is the field of the inputs.
    """
    work = _work(context, model, inputs, lambda embedder: embedder.embed(inputs), param)
    return await while_connected(request.receive, work)


async def ranked(
    context: ServerContext,
    request: Request,
    model: str | None,
    inputs: RankingInput,
    param: str = "documents",
) -> tuple[Ranking, ModelInfo]:
    """`embedded` for scores of documents."""

    def rank(embedder: Embedder) -> Coroutine[Any, Any, Ranking]:
        return embedder.rank(inputs.query, inputs.documents)

    work = _work(context, model, inputs, rank, param)
    return await while_connected(request.receive, work)


async def _work(
    context: ServerContext,
    model: str | None,
    inputs: EmbeddingInput | RankingInput,
    work: Callable[[Embedder], Coroutine[Any, Any, T]],
    param: str,
) -> tuple[T, ModelInfo]:
    """The result of `work` with the model, and the model; the tokens that it read are counted."""
    async with context.monitor.leased(context.models, model) as backend:
        embedder = backend.info.embedder
        if embedder is None:
            raise _no_embedder(backend.info)
        count = partial(embedder.count, inputs)
        try:
            async with context.meter.reading(backend.info.id, count) as read:
                result = await work(embedder)
                read.tokens = result.tokens
        except ContextFullError as error:
            raise _too_long(error, backend.info.context_size, param) from error
        context.monitor.note_tokens(result.tokens)
        return result, backend.info


def json_array(items: Iterable[object]) -> str:
    """A list as JSON, one item after the other, so that other threads can run in between."""
    return f"[{','.join(map(to_json, items))}]"


def _no_embedder(info: ModelInfo) -> ApiError:
    """The error for a model that only writes text."""
    message = (
        f"The model {info.id} writes text and makes no embeddings. Serve a model that does: "
        "an embedding or reranking model in GGUF, or a provider with such an endpoint."
    )
    return ApiError(400, message, "unsupported_model", "model")


def _too_long(error: ContextFullError, size: int, param: str) -> ApiError:
    """The error for an input that does not fit, with both numbers of tokens if they are known."""
    tokens = error.prompt_tokens
    if tokens is None or not size:
        return ApiError(400, str(error), CONTEXT_FULL, param)
    message = (
        f"This model's maximum context length is {size} tokens. However, an input is too large: it "
        f"has {tokens} tokens. Please reduce the length of the input."
    )
    return ApiError(400, message, CONTEXT_FULL, param, prompt_tokens=tokens, context_size=size)
