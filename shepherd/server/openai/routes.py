"""`POST /v1/chat/completions` and `GET /v1/models`."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.json_text import frame
from shepherd.messages import JsonObject
from shepherd.server.api import Api
from shepherd.server.body import BodyReader
from shepherd.server.errors import ApiError, answer_cut, log_failure, to_api_error
from shepherd.server.generation import Choices, open_choices
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.errors import OpenAiErrors
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import (
    check_images,
    choice_count,
    session_from_request,
    token_limit,
)
from shepherd.server.responses import (
    EventStreamResponse,
    Frames,
    JsonResponse,
    while_connected,
)
from shepherd.server.settings import ServerContext

MANY_MESSAGES = 500
"""More are translated beside the event loop."""


def chat_router(context: ServerContext) -> APIRouter:
    """The chat completions route."""
    router = APIRouter()
    backend, settings = context.backend, context.settings
    bodies = BodyReader(settings.max_body_bytes)

    @router.post(CHAT_PATH)
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 `context_length_exceeded` either way. Hanging up stops the work.
        """
        body = await bodies.read(request, ChatRequest)
        check_images(body, backend.info)
        if len(body.messages) > MANY_MESSAGES:
            session = await bodies.run(session_from_request, body, thinking=settings.thinking)
        else:
            session = session_from_request(body, thinking=settings.thinking)
        answer = ChatAnswer.to_request(body, session, backend.info.id)
        count = choice_count(body, settings.max_choices)
        limit = token_limit(body, settings.max_tokens)
        if body.stream:
            return EventStreamResponse(
                lambda: _open_frames(open_choices(backend, session, count, limit), answer),
                lambda error: _logged(error, backend.info.context_size),
                settings.keepalive,
            )
        work = _generate(open_choices(backend, session, count, limit))
        return JsonResponse(answer.completion(*await while_connected(request.receive, work)))

    return router


def _logged(error: BaseException, context_size: int) -> ApiError:
    reported = to_api_error(error, context_size)
    log_failure(error, reported)
    return reported


async def _generate(opening: AbstractAsyncContextManager[Choices]) -> list[Generation]:
    async with opening as choices:
        generations = await choices.results()
    for generation in generations:
        _check_whole(generation)
    return generations


def _check_whole(generation: Generation) -> None:
    """Raise ApiError for an answer that broke off, which must not look like a whole one."""
    if generation.finish_reason is FinishReason.ERROR:
        raise answer_cut(generation.broken)


@asynccontextmanager
async def _open_frames(
    opening: AbstractAsyncContextManager[Choices], answer: ChatAnswer
) -> AsyncGenerator[Frames]:
    async with opening as choices:
        yield _frames(choices, answer)


async def _frames(choices: Choices, answer: ChatAnswer) -> Frames:
    """Yields each choice's role chunk, its text chunks, then its final chunks."""
    started: set[int] = set()
    async for index, event, text, logprobs in choices:
        chunks = (
            [*answer.last_chunks(await choices.result(index), index)]
            if event is None
            else [answer.text_chunk(event, text, index, logprobs)]
        )
        if index not in started:
            started.add(index)
            yield frame(answer.first_chunk(index))
        for chunk in filter(None, chunks):
            yield frame(chunk)
        if event is None:
            _check_whole(await choices.result(index))
    usage = answer.usage_chunk(*await choices.results())
    if usage is not None:
        yield frame(usage)
    yield frame("[DONE]")


def models_router(context: ServerContext) -> APIRouter:
    """The routes that tell which model answers."""
    router = APIRouter(prefix="/v1/models")

    @router.get("")
    async def list_models() -> JsonResponse:
        """The model that is loaded, as a list of one."""
        return JsonResponse({"object": "list", "data": [_model(context)]})

    @router.get("/{model_id:path}")
    async def get_model(model_id: str) -> JsonResponse:
        """The model of that id; 404 `model_not_found` for any other."""
        model = _model(context)
        if model_id != model["id"]:
            message = f"The model '{model_id}' does not exist; this server has '{model['id']}'."
            raise ApiError(404, message, "model_not_found", "model")
        return JsonResponse(model)

    return router


def _model(context: ServerContext) -> JsonObject:
    info = context.backend.info
    seen = ["text", "image"] if info.vision else ["text"]
    return {
        "id": info.id,
        "object": "model",
        "created": context.started,
        "owned_by": info.owned_by,
        "max_model_len": info.context_size or None,
        **({} if info.vision is None else {"architecture": {"input_modalities": seen}}),
    }


CHAT_PATH = "/v1/chat/completions"
OPENAI = Api(
    paths=("/v1",),
    errors=OpenAiErrors(),
    routers=lambda context: (models_router(context), chat_router(context)),
    bodies={CHAT_PATH: ChatRequest},
)
