"""The prompt of a chat request: llama.cpp's `/apply-template`, and how many tokens it takes."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from shepherd.server.errors import unsupported
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import chat_exchange
from shepherd.server.responses import JsonResponse
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext

APPLY_PATH = "/apply-template"
COUNT_PATH = "/v1/chat/completions/input_tokens"


def prompt_router(context: ServerContext) -> APIRouter:
    """The routes for the prompts of chat requests."""
    router = APIRouter()

    @router.post(APPLY_PATH)
    async def apply_template(
        body: Annotated[ChatRequest, context.bodies.of(ChatRequest)],
    ) -> Response:
        """The prompt of a chat request as text; only for models that run in this process."""
        async with context.models.lease(body.model) as backend:
            info, text = backend.info, backend.text_model
            if text is None:
                message = f"{info.id} does not run in this process: its template is not known."
                raise unsupported("model", message)
            answer = body.add_generation_prompt is not False
            plain = body.model_copy(update={"add_generation_prompt": None})
            exchange = await context.bodies.run(chat_exchange, plain, context.settings, info)
            return JsonResponse({"prompt": await text.render(exchange.session, answer=answer)})

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
