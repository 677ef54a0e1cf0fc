"""The routes that create responses, and that count the tokens of a prompt."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from shepherd.server.agent.options import RequestOptions
from shepherd.server.api import Api
from shepherd.server.errors import ApiError
from shepherd.server.openai_responses.creation import Creation, Jobs
from shepherd.server.openai_responses.errors import ResponsesErrors
from shepherd.server.openai_responses.items import HistoryReader
from shepherd.server.openai_responses.record import RESPONSE_ID, ResponseRecord, new_response_id
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.retrieval import PATH, StoredResponses, follow, stored_router
from shepherd.server.openai_responses.store import ResponseStore, responses_in
from shepherd.server.openai_responses.to_session import Translator
from shepherd.server.record import record_of
from shepherd.server.responses import SERVER_SENT_EVENTS, JsonResponse
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext

TOKENS_PATH = f"{PATH}/input_tokens"


@dataclass(frozen=True, slots=True)
class Creator:
    """Makes responses of requests."""

    context: ServerContext
    reader: HistoryReader
    jobs: Jobs
    translator: Translator

    async def read(self, request: Request, body: ResponsesRequest) -> Creation:
        """The response that a request is for; raises ApiError."""
        settings = self.context.settings
        body.check_supported()
        owner = record_of(request.scope).owner
        history = await self.reader.read(owner, body)
        store = self.reader.store
        stored = body.store is not False and store.enabled
        model = body.model or self.context.backend.info.id
        chosen_id = getattr(request.state, RESPONSE_ID, "") or new_response_id()
        record = ResponseRecord(body, model, stored, chosen_id)
        return Creation(body, record, history, self.translator, store, owner, settings.max_tokens)

    async def create(self, request: Request, body: ResponsesRequest, serving: Serving) -> Response:
        """The answer to a request."""
        creation = await self.read(request, body)
        if creation.request.background:
            return await self._in_background(request, creation)
        stored = creation.record.stored
        model = await serving.lease(body.model)
        exchange = await creation.translate(serving, model)
        response = await serving.respond(
            model, exchange, SERVER_SENT_EVENTS if body.stream else None
        )
        if not body.stream:
            await creation.keep()
        if creation.record.stored != stored:
            return JsonResponse(creation.record.body())
        return response

    async def _in_background(self, request: Request, creation: Creation) -> Response:
        if not creation.record.stored:
            message = "background: the response must be stored"
            if not self.reader.store.enabled:
                message += ", and this server stores none (server.store_responses_days)"
            raise ApiError(400, message, "invalid_value", "background")
        serving = Serving(self.context, RequestOptions(owner=creation.owner))
        job = await self.jobs.start(creation, serving, record_of(request.scope).admission)
        if creation.request.stream:
            return follow(job, 0, self.context.settings.keepalive)
        return JsonResponse(job.accepted)


def _routers(context: ServerContext) -> list[APIRouter]:
    settings = context.settings
    place = settings.responses_file
    if settings.postgres is not None:
        place = responses_in(settings.postgres)
    store = ResponseStore(place, settings.store_responses_days, settings.store_responses_mib)
    jobs = Jobs()
    translator = Translator(context.seal, settings.thinking)
    reader = HistoryReader(store, context.bodies, settings.max_body_bytes)
    creator = Creator(context, reader, jobs, translator)
    stored = StoredResponses(reader, jobs, settings.keepalive)
    return [create_router(creator), stored_router(stored)]


def create_router(creator: Creator) -> APIRouter:
    """The routes that take the fields of a response."""
    router, context = APIRouter(), creator.context

    @router.post(PATH)
    async def create_response(
        request: Request,
        body: Annotated[ResponsesRequest, context.bodies.of(ResponsesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation: whole, streaming, or in the background.

        A conversation that does not fit is a 400 `context_length_exceeded`, unless `truncation` is
        `auto`. Hanging up stops the work, unless `background` is true.
        """
        return await creator.create(request, body, serving)

    @router.post(TOKENS_PATH)
    async def count_input_tokens(
        request: Request,
        body: Annotated[ResponsesRequest, context.bodies.of(ResponsesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """How many tokens the prompt of such a request takes."""
        creation = await creator.read(request, body)
        model = await serving.lease(body.model)
        count = await serving.count_tokens(model, await creation.translate(serving, model))
        return JsonResponse({"object": "response.input_tokens", "input_tokens": count})

    return router


OPENAI_RESPONSES = Api(
    name="responses",
    paths=(PATH,),
    errors=ResponsesErrors(),
    routers=_routers,
)
