"""The prompt of a chat request: llama.cpp's `/apply-template`, and how many tokens it takes."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.errors import unsupported
from shepherd.server.exchange import Call
from shepherd.server.exchanges import Exchanges
from shepherd.server.openai.requests import ChatRequest
from shepherd.server.openai.to_session import chat_exchange
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext

APPLY_PATH = "/apply-template"
COUNT_PATH = "/v1/chat/completions/input_tokens"


def prompt_router(context: ServerContext) -> APIRouter:
    """The routes for the prompts of chat requests."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post(APPLY_PATH)
    async def apply_template(request: Request) -> Response:
        """The prompt of a chat request as text; only for models that run in this process."""
        body = await context.bodies.read(request, ChatRequest)
        async with context.models.lease(body.model) as backend:
            info, text = backend.info, backend.text_model
            if text is None:
                message = f"{info.id} does not run in this process: its template is not known."
                raise unsupported("model", message)
            answer = body.add_generation_prompt is not False
            plain = body.model_copy(update={"add_generation_prompt": None})
            exchange = await context.bodies.run(chat_exchange, plain, context.settings, info)
            return JsonResponse({"prompt": await text.render(exchange.session, answer=answer)})

    @router.post("/chat/completions/input_tokens", include_in_schema=False)
    @router.post(COUNT_PATH)
    async def count_tokens(request: Request) -> Response:
        """How many tokens the prompt of a chat request takes."""
        body = await context.bodies.read(request, ChatRequest)
        call = Call(body.model, partial(chat_exchange, body, context.settings), slow=True)
        return JsonResponse({"input_tokens": await exchanges.count_tokens(request, call)})

    return router
