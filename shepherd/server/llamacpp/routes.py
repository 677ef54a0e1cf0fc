"""llama.cpp's `/completion` and `/infill`, and the API that they belong to."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.api import Api
from shepherd.server.exchange import Call
from shepherd.server.exchanges import Exchanges
from shepherd.server.llamacpp.model_routes import (
    DETOKENIZE_PATH,
    PROPS_PATH,
    SLOTS_PATH,
    TOKENIZE_PATH,
    model_router,
)
from shepherd.server.raw.exchange import infill_exchange, prompt_exchange
from shepherd.server.raw.requests import (
    CompletionBody,
    DetokenizeBody,
    InfillBody,
    TokenizeBody,
)
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import LlamaErrors

COMPLETION_PATH = "/completion"
INFILL_PATH = "/infill"


def completion_router(context: ServerContext) -> APIRouter:
    """The routes that continue raw prompts."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post("/completions", include_in_schema=False)
    @router.post(COMPLETION_PATH)
    async def complete(request: Request) -> Response:
        """Continue one or more prompts as they are, also at `/completions`."""
        body = await context.bodies.read(request, CompletionBody)
        build = partial(prompt_exchange, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    @router.post(INFILL_PATH)
    async def infill(request: Request) -> Response:
        """Write what stands between two texts, with a model that has tokens for that."""
        body = await context.bodies.read(request, InfillBody)
        build = partial(infill_exchange, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    return router


LLAMACPP = Api(
    name="llamacpp",
    paths=(
        COMPLETION_PATH,
        "/completions",
        INFILL_PATH,
        TOKENIZE_PATH,
        DETOKENIZE_PATH,
        PROPS_PATH,
        SLOTS_PATH,
        "/apply-template",
    ),
    errors=LlamaErrors(),
    routers=lambda context: (completion_router(context), model_router(context)),
    bodies={
        COMPLETION_PATH: CompletionBody,
        INFILL_PATH: InfillBody,
        TOKENIZE_PATH: TokenizeBody,
        DETOKENIZE_PATH: DetokenizeBody,
    },
)
