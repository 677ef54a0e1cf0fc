"""`POST /v1/responses` and `POST /v1/responses/input_tokens`."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.api import Api
from shepherd.server.exchange import Exchanges
from shepherd.server.openai_responses.creation import Creation
from shepherd.server.openai_responses.errors import ResponsesErrors
from shepherd.server.openai_responses.items import input_items
from shepherd.server.openai_responses.record import ResponseRecord
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.to_session import Translator
from shepherd.server.responses import JsonResponse
from shepherd.server.settings import ServerContext

PATH = "/v1/responses"
TOKENS_PATH = f"{PATH}/input_tokens"


def create_router(context: ServerContext) -> APIRouter:
    """The routes that take the fields of a response."""
    router = APIRouter()
    exchanges = Exchanges(context)
    translator = Translator(context.seal, context.settings.thinking)

    async def read(request: Request) -> Creation:
        body = await context.bodies.read(request, ResponsesRequest)
        record = ResponseRecord(body, body.model or "")
        items = input_items(body.input)
        return Creation(body, record, items, translator, context.settings.max_tokens)

    @router.post(PATH)
    async def create_response(request: Request) -> Response:
        """Continue a conversation, streaming or not.

        A conversation that does not fit is a 400 `context_length_exceeded`, unless `truncation` is
        `auto`. Hanging up stops the work.
        """
        creation = await read(request)
        return await exchanges.respond(request, creation.call())

    @router.post(TOKENS_PATH)
    async def count_input_tokens(request: Request) -> Response:
        """How many tokens the prompt of such a request takes."""
        creation = await read(request)
        count = await exchanges.count_tokens(request, creation.call())
        return JsonResponse({"object": "response.input_tokens", "input_tokens": count})

    return router


OPENAI_RESPONSES = Api(
    paths=(PATH,),
    errors=ResponsesErrors(),
    routers=lambda context: (create_router(context),),
    bodies={PATH: ResponsesRequest},
)
