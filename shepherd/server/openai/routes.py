"""The paths of chat completions, of their prompts, and of models in OpenAI's shape."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from shepherd.backends.base import ModelInfo
from shepherd.messages import JsonObject
from shepherd.server.api import Api
from shepherd.server.errors import unsupported
from shepherd.server.models import ServedModel, find_model, unknown_model
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import chat_exchange
from shepherd.server.responses import SERVER_SENT_EVENTS, JsonResponse
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import EXCEEDS_CONTEXT, OpenAiErrors

CHAT_PATH = "/v1/chat/completions"
MODELS_PATH = "/v1/models"
APPLY_PATH = "/apply-template"
COUNT_PATH = "/v1/chat/completions/input_tokens"


def chat_router(context: ServerContext) -> APIRouter:
    """The routes of chat requests, and of their prompts."""
    router = APIRouter()

    @router.post("/chat/completions")
    @router.post(CHAT_PATH)
    async def create_chat_completion(
        body: Annotated[ChatRequest, context.bodies.of(ChatRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation, streaming or not.

        The prompt is processed before the first header is sent, so a conversation that does not fit
        is a 400 `context_length_exceeded` in both cases. Disconnecting stops the work.
        """
        model = await serving.lease(body.model)
        exchange = await serving.translate(
            body.messages, chat_exchange, body, context.settings, model.info
        )
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    @router.post(APPLY_PATH)
    async def apply_template(
        body: Annotated[ChatRequest, context.bodies.of(ChatRequest)],
    ) -> Response:
        """The prompt of a chat request as text; only for models that run in this process."""
        async with context.models.lease(body.model) as backend:
            info = backend.info
            if (text := info.text_model) is None:
                message = f"{info.id} does not run in this process: its template is not known."
                raise unsupported("model", message)
            begins_answer = body.add_generation_prompt is not False
            # false is refused where an answer is generated, and here it is a fair question
            body = body.model_copy(update={"add_generation_prompt": None})
            exchange = await context.bodies.run(chat_exchange, body, context.settings, info)
            prompt = await text.render(exchange.session, answer=begins_answer)
            return JsonResponse({"prompt": prompt})

    @router.post("/chat/completions/input_tokens")
    @router.post(COUNT_PATH)
    async def count_tokens(
        body: Annotated[ChatRequest, context.bodies.of(ChatRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """How many tokens the prompt of a chat request takes."""
        model = await serving.lease(body.model)
        exchange = await context.bodies.run(chat_exchange, body, context.settings, model.info)
        return JsonResponse({"input_tokens": await serving.count_tokens(model, exchange)})

    return router


def models_router(context: ServerContext) -> APIRouter:
    """The routes that tell which model answers."""
    router = APIRouter()

    @router.get("/models")
    @router.get(MODELS_PATH)
    async def list_models() -> JsonResponse:
        """The models on offer; `models` has them as llama.cpp's clients read them."""
        await context.models.refresh()
        models = context.models.served()
        body: JsonObject = {
            "object": "list",
            "data": [_model(model, context) for model in models],
            "models": [_llama_model(model.info) for model in models],
        }
        return JsonResponse(body)

    @router.get("/models/{model_id:path}")
    @router.get(MODELS_PATH + "/{model_id:path}")
    async def get_model(model_id: str) -> JsonResponse:
        """The model of that id; 404 `model_not_found` for any other."""
        model = await find_model(model_id, context.models)
        if model is None:
            raise unknown_model(model_id, context.models.listed())
        return JsonResponse(_model(model, context))

    return router


def _model(model: ServedModel, context: ServerContext) -> JsonObject:
    """A model in OpenAI's list, with fields that programs read from other servers' lists."""
    info = model.info
    modalities = ["text", "image"] if info.vision else ["text"]
    return {
        "id": info.id,
        "object": "model",
        "created": context.started,
        "owned_by": info.owned_by,
        "max_model_len": info.context_size or None,
        "meta": {"n_ctx": info.context_size or None},
        "status": {"value": model.state},
        "capabilities": [info.kind],
        **({} if info.vision is None else {"architecture": {"input_modalities": modalities}}),
    }


def _llama_model(info: ModelInfo) -> JsonObject:
    """A model in the list that llama.cpp's server has beside OpenAI's."""
    return {
        "name": info.id,
        "model": info.id,
        "type": "model",
        "capabilities": [info.kind, *(["multimodal"] if info.vision else [])],
        "details": {"format": "gguf" if info.raw_prompts else ""},
    }


OPENAI = Api(
    name="openai",
    paths=("/v1",),
    errors=OpenAiErrors(),
    routers=lambda context: (models_router(context), chat_router(context)),
)
OPENAI_UNPREFIXED = Api(
    name="openai",
    paths=("/chat", "/models"),
    errors=OpenAiErrors(EXCEEDS_CONTEXT),
)
"""The same paths without `/v1`, which llama.cpp's clients use."""
