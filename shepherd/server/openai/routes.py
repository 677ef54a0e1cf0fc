"""`POST /v1/chat/completions` and `GET /v1/models`."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject
from shepherd.server.api import Api
from shepherd.server.errors import ApiError
from shepherd.server.exchange import Call, Exchange, Exchanges
from shepherd.server.openai.answers import ChatAnswer
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import (
    check_images,
    choice_count,
    session_from_request,
    token_limit,
)
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext, ServerSettings
from shepherd.server.wire.openai_errors import OpenAiErrors

MANY_MESSAGES = 500
"""More are translated beside the event loop."""


def chat_router(context: ServerContext) -> APIRouter:
    """The chat completions route."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post(CHAT_PATH)
    async def create_chat_completion(request: Request) -> Response:
        """Continue a conversation, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not
        fit is a 400 `context_length_exceeded` either way. Hanging up stops the work.
        """
        body = await context.bodies.read(request, ChatRequest)
        call = Call(
            model=body.model,
            build=partial(_exchange, body, context.settings),
            stream=bool(body.stream),
            slow=len(body.messages) > MANY_MESSAGES,
        )
        return await exchanges.respond(request, call)

    return router


def _exchange(body: ChatRequest, settings: ServerSettings, model: ModelInfo) -> Exchange:
    """The exchange of a chat request; raises ApiError."""
    check_images(body, model)
    session = session_from_request(body, thinking=settings.thinking)
    return Exchange(
        session,
        ChatAnswer.to_request(body, session, model.id),
        choice_count(body, settings.max_choices),
        token_limit(body, settings.max_tokens),
    )


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
