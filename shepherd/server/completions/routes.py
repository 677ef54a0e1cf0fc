"""`POST /v1/completions`."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from shepherd.server.api import Api
from shepherd.server.raw.exchange import completion_exchange
from shepherd.server.raw.requests import CompletionRequest
from shepherd.server.responses import SERVER_SENT_EVENTS
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import OpenAiErrors

PATH = "/v1/completions"


def completions_router(context: ServerContext) -> APIRouter:
    """The completions route."""
    router = APIRouter()

    @router.post(PATH)
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


COMPLETIONS = Api(
    name="completions",
    paths=(PATH,),
    errors=OpenAiErrors(),
    routers=lambda context: (completions_router(context),),
)
