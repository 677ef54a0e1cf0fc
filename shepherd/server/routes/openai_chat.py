"""`POST /v1/chat/completions`."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import Generation
from shepherd.events import FinishReason
from shepherd.server.body import BodyReader
from shepherd.server.connection import while_connected
from shepherd.server.context import ServerContext
from shepherd.server.errors import answer_cut, log_failure, to_api_error
from shepherd.server.generation import Choices, open_choices
from shepherd.server.json_response import JsonResponse
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.sight import check_images
from shepherd.server.openai.to_session import choice_count, session_from_request, token_limit
from shepherd.server.sse import EventStreamResponse, Frames, frame

MANY_MESSAGES = 500
"""More are translated beside the event loop."""


def chat_router(context: ServerContext) -> APIRouter:
    """The chat completions route."""
    router = APIRouter()
    backend, settings = context.backend, context.settings
    bodies = BodyReader(settings.max_body_bytes)

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 `context_length_exceeded` either way. Hanging up stops the work.
        """
        asked = await bodies.read(request, ChatRequest)
        check_images(asked, backend.info)
        if len(asked.messages) > MANY_MESSAGES:
            session = await bodies.run(session_from_request, asked, thinking=settings.thinking)
        else:
            session = session_from_request(asked, thinking=settings.thinking)
        answer = ChatAnswer.to_request(asked, session, backend.info.id)
        count = choice_count(asked, settings.max_choices)
        limit = token_limit(asked, settings.max_tokens)
        if asked.stream:
            return EventStreamResponse(
                lambda: _open_frames(open_choices(backend, session, count, limit), answer),
                lambda error: _error_frame(error, backend.info.context_size),
                settings.keepalive,
            )
        work = _generate(open_choices(backend, session, count, limit))
        return JsonResponse(answer.completion(*await while_connected(request.receive, work)))

    return router


def _error_frame(error: BaseException, context_size: int) -> str:
    told = to_api_error(error, context_size)
    log_failure(error, told)
    return frame(told.body())


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
    """Of each choice the role with the first piece of text, the text, and what follows it."""
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
