"""`POST /v1/completions`."""

from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.api import Api
from shepherd.server.exchange import Call
from shepherd.server.exchanges import Exchanges
from shepherd.server.raw.exchange import completion_exchange
from shepherd.server.raw.requests import CompletionRequest
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import OpenAiErrors

PATH = "/v1/completions"


def completions_router(context: ServerContext) -> APIRouter:
    """The completions route."""
    router = APIRouter()
    exchanges = Exchanges(context)

    @router.post(PATH)
    async def create_completion(request: Request) -> Response:
        """Continue one or more prompts as they are, without a chat template.

        Only models that run in this process take raw prompts.
        """
        body = await context.bodies.read(request, CompletionRequest)
        build = partial(completion_exchange, body, context.settings)
        return await exchanges.respond(request, Call(body.model, build, bool(body.stream)))

    return router


COMPLETIONS = Api(
    name="completions",
    paths=(PATH,),
    errors=OpenAiErrors(),
    routers=lambda context: (completions_router(context),),
    bodies={PATH: CompletionRequest},
)
