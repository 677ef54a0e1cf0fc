"""`POST /v1/chat/completions`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import Backend
from shepherd.server.body import read_json
from shepherd.server.connection import while_connected
from shepherd.server.context import ServerContext
from shepherd.server.errors import log_failure, to_api_error
from shepherd.server.generation import GenerationStream, log_warnings, open_generation
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import session_from_request, token_limit
from shepherd.server.sse import EventStreamResponse, Frames, frame
from shepherd.server.wire import JsonResponse
from shepherd.session import Session


def chat_router(context: ServerContext) -> APIRouter:
    """The chat completions route."""
    router = APIRouter()
    backend, settings = context.backend, context.settings

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 `context_length_exceeded` either way. Hanging up stops the work.
        """
        asked = await read_json(request, ChatRequest, settings.max_body_bytes)
        session = session_from_request(asked, thinking=settings.thinking)
        answer = ChatAnswer.to_request(asked, session, backend.info.id)
        limit = token_limit(asked, settings.max_tokens)
        if asked.stream:
            return EventStreamResponse(
                lambda: _open_frames(backend, session, limit, answer),
                lambda error: _error_frame(error, backend.info.context_size),
                settings.keepalive,
            )
        work = backend.generate_from_session(session, log_warnings, limit)
        return JsonResponse(answer.completion(await while_connected(request.receive, work)))

    return router


def _error_frame(error: BaseException, context_size: int) -> str:
    told = to_api_error(error, context_size)
    log_failure(error, told)
    return frame(told.body())


@asynccontextmanager
async def _open_frames(
    backend: Backend, session: Session, limit: int, answer: ChatAnswer
) -> AsyncGenerator[Frames]:
    async with open_generation(backend, session, limit) as stream:
        yield _frames(stream, answer)


async def _frames(stream: GenerationStream, answer: ChatAnswer) -> Frames:
    """The role with the first piece of text, the text, and what follows it."""
    started = False
    async for event, text in stream:
        if not started:
            started = True
            yield frame(answer.first_chunk())
        chunk = answer.text_chunk(event, text)
        if chunk is not None:
            yield frame(chunk)
    generation = await stream.result()
    if not started:
        yield frame(answer.first_chunk())
    for chunk in answer.last_chunks(generation):
        yield frame(chunk)
    yield frame("[DONE]")
