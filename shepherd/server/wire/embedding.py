"""Requests for vectors and rankings to a model, for any API."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from shepherd.backends.base import Backend, ModelInfo
from shepherd.backends.embedding import Embedder, Embeddings, Ranking
from shepherd.errors import ContextFullError
from shepherd.json_text import to_json
from shepherd.server.errors import CONTEXT_FULL, ApiError
from shepherd.server.responses import while_connected
from shepherd.server.settings import ServerContext

T = TypeVar("T", Embeddings, Ranking)
MAX_INPUTS = 2048
"""The inputs of one request, as OpenAI limits them."""


async def embedded(
    context: ServerContext,
    request: Request,
    model: str | None,
    work: Callable[[Embedder], Coroutine[Any, Any, T]],
    param: str = "input",
) -> tuple[T, ModelInfo]:
    """What `work` gets of the embedder of a model, and that model; hanging up stops it.

    Raises ApiError, for an input that does not fit too; `param` is the field of the inputs.
    """
    return await while_connected(request.receive, _work(context, model, work, param))


async def _work(
    context: ServerContext,
    model: str | None,
    work: Callable[[Embedder], Coroutine[Any, Any, T]],
    param: str,
) -> tuple[T, ModelInfo]:
    async with context.models.lease(model) as backend, _reporting(backend, param):
        embedder = backend.embedder
        if embedder is None:
            raise no_embedder(backend.info)
        if context.meter is not None:
            context.meter.check_tokens()
        result = await work(embedder)
        if context.meter is not None:
            context.meter.count_tokens(backend.info.id, result.tokens)
        return result, backend.info


def json_array(items: Iterable[object]) -> str:
    """A list as JSON, one item after the other, so that other threads can run in between."""
    return f"[{','.join(map(to_json, items))}]"


def no_embedder(info: ModelInfo) -> ApiError:
    """The error for a model that only writes text."""
    message = (
        f"The model {info.id} writes text and makes no embeddings. Serve a model that does: "
        "an embedding or reranking model in GGUF, or a provider with such an endpoint."
    )
    return ApiError(400, message, "unsupported_model", "model")


@asynccontextmanager
async def _reporting(backend: Backend, param: str) -> AsyncGenerator[None]:
    """Reports an input that does not fit with both numbers of tokens."""
    try:
        yield
    except ContextFullError as error:
        raise _too_long(error, backend.info.context_size, param) from error


def _too_long(error: ContextFullError, size: int, param: str) -> ApiError:
    tokens = error.prompt_tokens
    if tokens is None or not size:
        return ApiError(400, str(error), CONTEXT_FULL, param)
    message = (
        f"This model's maximum context length is {size} tokens. However, an input has {tokens} "
        "tokens. Please reduce the length of the input."
    )
    return ApiError(400, message, CONTEXT_FULL, param, prompt_tokens=tokens, context_size=size)
