"""Requests for vectors and rankings to a model, for any API."""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from shepherd.backends.base import ModelInfo
from shepherd.backends.embedding import Embedder, EmbeddingInput, Embeddings, Ranking, RankingInput
from shepherd.errors import ContextFullError
from shepherd.events import Stats
from shepherd.json_text import to_json
from shepherd.server import errors, responses
from shepherd.server.settings import ServerContext

T = TypeVar("T", Embeddings, Ranking)
MAX_INPUTS = 2048
"""The inputs of one request, as OpenAI limits them."""

MAX_DIMENSIONS = 65_536


async def embedded(
    context: ServerContext, request: Request, model: str | None, inputs: EmbeddingInput, param: str
) -> tuple[Embeddings, ModelInfo]:
    """The vectors of inputs, and the model that made them; hanging up stops the work.

    Raises ApiError, for an input that does not fit too; `param` is the field of the inputs.
    """
    work = _counted(context, model, inputs, lambda embedder: embedder.embed(inputs), param)
    return await responses.while_connected(request.receive, work)


async def ranked(
    context: ServerContext, request: Request, model: str | None, inputs: RankingInput, param: str
) -> tuple[Ranking, ModelInfo]:
    """`embedded` for scores of documents."""
    query, documents = inputs.query, inputs.documents
    work = _counted(context, model, inputs, lambda embedder: embedder.rank(query, documents), param)
    return await responses.while_connected(request.receive, work)


async def _counted(
    context: ServerContext,
    model: str | None,
    inputs: EmbeddingInput | RankingInput,
    work: Callable[[Embedder], Coroutine[Any, Any, T]],
    param: str,
) -> tuple[T, ModelInfo]:
    """The result of `work` with the model, and the model; the key pays for the tokens it read."""
    async with context.monitor.leased(context.models, model) as backend:
        info = backend.info
        if info.embedder is None:
            message = (
                f"The model {info.id} writes text and makes no embeddings. Serve a model that "
                "does: an embedding or reranking model in GGUF, or a provider with such an "
                "endpoint."
            )
            raise errors.ApiError(400, message, "unsupported_model", "model")
        count = partial(info.embedder.count, inputs)  # only counted for a key with a limit
        try:
            async with context.meter.reading(info.id, count) as read:
                result = await work(info.embedder)
                read.tokens = result.tokens
        except ContextFullError as error:
            raise _too_long(error, info.context_size, param) from error
        context.monitor.note(Stats(prompt_tokens=result.tokens))
        return result, info


def json_array(items: Iterable[object]) -> str:
    """A list as JSON, one item after the other, so that other threads can run in between."""
    return f"[{','.join(map(to_json, items))}]"


def _too_long(error: ContextFullError, context_size: int, param: str) -> errors.ApiError:
    """The error for an input that does not fit, with both numbers of tokens if they are known."""
    tokens = error.prompt_tokens
    if tokens is None or not context_size:  # 0: the model's size is not known
        return errors.ApiError(400, str(error), errors.CONTEXT_FULL, param)
    message = (
        f"This model's maximum context length is {context_size} tokens. However, an input is too "
        f"large: it has {tokens} tokens. Please reduce the length of the input."
    )
    return errors.ApiError(
        400, message, errors.CONTEXT_FULL, param, prompt_tokens=tokens, context_size=context_size
    )
