"""The paths that continue raw prompts, and the two APIs that they belong to."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from shepherd.server.api import Api
from shepherd.server.raw.exchange import completion_exchange, infill_exchange, prompt_exchange
from shepherd.server.raw.model_routes import (
    DETOKENIZE_PATH,
    PROPS_PATH,
    SLOTS_PATH,
    TOKENIZE_PATH,
    model_router,
)
from shepherd.server.raw.requests import (
    CompletionBody,
    CompletionRequest,
    InfillBody,
)
from shepherd.server.responses import SERVER_SENT_EVENTS
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import LlamaErrors, OpenAiErrors

COMPLETION_PATH = "/completion"
INFILL_PATH = "/infill"
OPENAI_PATH = "/v1/completions"


def completions_router(context: ServerContext) -> APIRouter:
    """OpenAI's route."""
    router = APIRouter()

    @router.post(OPENAI_PATH)
    async def create_completion(
        body: Annotated[CompletionRequest, context.bodies.of(CompletionRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue one or more prompts as they are, without a chat template.

        Only models that run in this process take raw prompts.
        """
        model = await serving.lease(body.model)
        exchange = completion_exchange(body, context.settings, model.info)
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    return router


def completion_router(context: ServerContext) -> APIRouter:
    """llama.cpp's routes."""
    router = APIRouter()

    @router.post("/completions")
    @router.post(COMPLETION_PATH)
    async def complete(
        body: Annotated[CompletionBody, context.bodies.of(CompletionBody)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue one or more prompts as they are, also at `/completions`."""
        model = await serving.lease(body.model)
        exchange = prompt_exchange(body, context.settings, model.info)
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    @router.post(INFILL_PATH)
    async def infill(
        body: Annotated[InfillBody, context.bodies.of(InfillBody)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Write what stands between two texts, with a model that has tokens for that."""
        model = await serving.lease(body.model)
        exchange = infill_exchange(body, context.settings, model.info)
        return await serving.respond(model, exchange, SERVER_SENT_EVENTS if body.stream else None)

    return router


COMPLETIONS = Api(
    name="completions",
    paths=(OPENAI_PATH,),
    errors=OpenAiErrors(),
    routers=lambda context: (completions_router(context),),
)
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
)
