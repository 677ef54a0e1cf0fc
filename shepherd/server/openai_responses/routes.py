"""The paths of the Responses API: create, count, retrieve, cancel, delete."""

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter
from msgspec import Struct, structs
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from shepherd import json_text, messages
from shepherd.server.api import Api
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, invalid, invalid_body, to_api_error
from shepherd.server.openai_responses import answers, requests
from shepherd.server.openai_responses.creation import Creation, Job, Jobs
from shepherd.server.openai_responses.items import HistoryReader
from shepherd.server.openai_responses.store import ResponseStore, StoredResponse, responses_in
from shepherd.server.openai_responses.to_session import Translator
from shepherd.server.record import RequestOptions, record_of
from shepherd.server.responses import SERVER_SENT_EVENTS, EventStreamResponse, JsonResponse
from shepherd.server.serving import Serving, serves
from shepherd.server.settings import ServerContext
from shepherd.server.wire.errors import JsonErrors, error_body

PATH = "/v1/responses"
TOKENS_PATH = f"{PATH}/input_tokens"
COMPACT_PATH = f"{PATH}/compact"
_FIELDS = {"messages": "input", "response_format": "text.format"}
_INTERRUPTED: messages.JsonObject = {
    "code": "server_error",
    "message": "The server ended before the response was complete.",
}
_CANCEL_FOREGROUND = "Only a response that was made with background=true can be cancelled."
Q = TypeVar("Q", bound=RequestModel)


class Responses(Struct, frozen=True):
    """Makes responses, and has those that were stored; those of another key do not exist."""

    context: ServerContext
    reader: HistoryReader
    jobs: Jobs
    translator: Translator

    async def read(self, request: Request, body: requests.ResponsesRequest) -> Creation:
        """The response that a request is for; raises ApiError."""
        owner = record_of(request.scope).owner
        history = await self.reader.read(owner, body)
        store = self.reader.store
        chosen_by_router = getattr(request.state, requests.RESPONSE_ID, "")
        record = requests.ResponseRecord(
            body,
            model=body.model or self.context.backend.info.id,
            stored=body.store is not False and store.enabled,
            id=chosen_by_router or requests.new_response_id(),
        )
        return Creation(
            record,
            answers.EventWriter(record),
            history,
            self.translator,
            store,
            owner,
            self.context.settings.max_tokens,
        )

    async def create(
        self, request: Request, body: requests.ResponsesRequest, serving: Serving
    ) -> Response:
        """The answer to a request; a streamed one stores the response itself at its end."""
        creation = await self.read(request, body)
        if body.background:
            return await self._in_background(request, creation)
        is_to_store = creation.record.stored
        model = await serving.lease(body.model)
        exchange = await creation.translate(serving, model)
        response = await serving.respond(
            model, exchange, SERVER_SENT_EVENTS if body.stream else None
        )
        if not body.stream:
            await creation.keep()
        if creation.record.stored != is_to_store:  # it could not be stored, and must say so
            return JsonResponse(creation.record.body())
        return response

    async def _in_background(self, request: Request, creation: Creation) -> Response:
        """The response as it was accepted, or its events; raises ApiError if nothing keeps it."""
        if not creation.record.stored:
            message = "background: the response must be stored"
            if not self.reader.store.enabled:
                message += ", and this server stores none (server.store_responses_days)"
            raise ApiError(400, message, "invalid_value", "background")
        serving = Serving(self.context, RequestOptions(owner=creation.owner))
        job = await self.jobs.start(creation, serving, record_of(request.scope).admission)
        if creation.record.request.stream:
            return follow(job, first=0, keepalive=self.context.settings.keepalive)
        return JsonResponse(job.accepted)

    async def current(self, owner: str, id: str) -> StoredResponse:
        """The response as it is now, raises ApiError; one of an earlier process may have failed."""
        job = self.jobs.find(owner, id)
        if job is not None:
            return StoredResponse(job.creation.record.body(), ())
        response = await self.stored(owner, id)
        if requests.Status(response.body["status"]).is_final:
            return response
        # no job makes it any more, so it ended with the process that had one
        failed = {"status": requests.Status.FAILED.value, "error": _INTERRUPTED}
        return structs.replace(response, body={**response.body, **failed})

    async def stored(self, owner: str, id: str) -> StoredResponse:
        """The response as it was stored; raises ApiError."""
        response = await self.reader.store.load(owner, id)
        if response is None:
            raise _missing_response(id)
        return response

    async def delete(self, owner: str, id: str) -> None:
        """Delete a response; one that is being made is cancelled first."""
        job = self.jobs.find(owner, id)
        if job is not None:
            await self.jobs.remove(job)
        if not await self.reader.store.delete(owner, id) and job is None:
            raise _missing_response(id)


def create_router(responses: Responses) -> APIRouter:
    """The routes that take the fields of a response."""
    router, context = APIRouter(), responses.context

    @router.post(PATH)
    async def create_response(
        request: Request,
        body: Annotated[requests.ResponsesRequest, context.bodies.of(requests.ResponsesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Continue a conversation: whole, streaming, or in the background.

        A conversation that does not fit is a 400 `context_length_exceeded`, unless `truncation` is
        `auto`. Hanging up stops the work, unless `background` is true.
        """
        return await responses.create(request, body, serving)

    @router.post(TOKENS_PATH)
    async def count_input_tokens(
        request: Request,
        body: Annotated[requests.ResponsesRequest, context.bodies.of(requests.ResponsesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """How many tokens the prompt of such a request takes."""
        creation = await responses.read(request, body)
        model = await serving.lease(body.model)
        count = await serving.count_tokens(model, await creation.translate(serving, model))
        return JsonResponse({"object": "response.input_tokens", "input_tokens": count})

    @router.post(COMPACT_PATH)
    async def compact_response(
        request: Request,
        body: Annotated[requests.ResponsesRequest, context.bodies.of(requests.ResponsesRequest)],
        serving: Annotated[Serving, serves(context)],
    ) -> Response:
        """Shorten a conversation: its instructions, and one item with a summary of all the rest.

        The summary is signed, and goes into `input` in place of what it is about.
        """
        if body.model is None:
            raise invalid("model", "a compaction names its model, as OpenAI's API asks")
        creation = await responses.read(request, body.model_copy(update={"tool_choice": "none"}))
        return JsonResponse(await creation.compacted(serving, await serving.lease(body.model)))

    return router


class ResponseQuery(RequestModel):
    """The query of `GET /v1/responses/{id}`."""

    stream: bool = False
    starting_after: Annotated[int | None, Field(ge=0)] = None


class ItemsQuery(RequestModel):
    """The query of `GET /v1/responses/{id}/input_items`."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


def stored_router(responses: Responses) -> APIRouter:
    """The routes under the id of a response."""
    router = APIRouter(prefix=PATH + "/{response_id}")
    keepalive = responses.context.settings.keepalive

    @router.get("")
    async def get_response(request: Request, response_id: str) -> Response:
        """The response as it is now; with `stream=true` the events of a background response.

        `starting_after` is the number of the last event that the client has.
        """
        query, owner = _query(request, ResponseQuery), record_of(request.scope).owner
        if not query.stream:
            return JsonResponse((await responses.current(owner, response_id)).body)
        job = responses.jobs.find(owner, response_id)
        if job is None:
            await responses.stored(owner, response_id)  # 404 for a response that does not exist
            raise invalid("stream", "the events of this response are not kept")
        last_seen = query.starting_after
        return follow(job, 0 if last_seen is None else last_seen + 1, keepalive)

    @router.delete("")
    async def delete_response(request: Request, response_id: str) -> JsonResponse:
        """Delete the response and its items; one that is being made is cancelled."""
        await responses.delete(record_of(request.scope).owner, response_id)
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})

    @router.post("/cancel")
    async def cancel_response(request: Request, response_id: str) -> JsonResponse:
        """Stop a background response; one that is over stays as it is."""
        owner = record_of(request.scope).owner
        job = responses.jobs.find(owner, response_id)
        if job is not None:  # only background responses have one
            await job.cancel()
        response = await responses.current(owner, response_id)
        if not response.body["background"]:
            raise ApiError(400, _CANCEL_FOREGROUND, "invalid_value", "response_id")
        return JsonResponse(response.body)

    @router.get("/input_items")
    async def list_input_items(request: Request, response_id: str) -> JsonResponse:
        """The items from which the response was made, those of the responses before it too."""
        query, owner = _query(request, ItemsQuery), record_of(request.scope).owner
        response = await responses.stored(owner, response_id)
        previous: str | None = response.body["previous_response_id"]
        earlier = [] if previous is None else await responses.reader.earlier(owner, previous)
        items = [*(item.data for item in earlier), *response.input]
        return JsonResponse(_page(items, query))

    return router


def follow(job: Job, first: int, keepalive: float) -> EventStreamResponse:
    """The events of a background response from the number `first` on."""
    return EventStreamResponse(lambda: nullcontext(job.follow(first)), to_api_error, keepalive)


def _missing_response(response_id: str) -> ApiError:
    """The error for a response that was deleted, has expired, or is another key's."""
    message = f"Response with id {response_id[:256]!r} not found."
    return ApiError(404, message, "not_found", "response_id")


def _query(request: Request, model: type[Q]) -> Q:
    """The query of a request; raises ApiError."""
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise invalid_body(error) from error


def _page(items: Sequence[messages.JsonObject], query: ItemsQuery) -> messages.JsonObject:
    """A part of a list, as OpenAI pages it."""
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    if query.after is not None:
        ids = [item["id"] for item in ordered]
        if query.after not in ids:
            raise invalid("after", f"there is no item with the id {query.after[:256]!r}")
        ordered = ordered[ids.index(query.after) + 1 :]
    page = ordered[: query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(ordered) > len(page),
    }


class ResponsesErrors(JsonErrors):
    """The `ErrorShape` of the Responses API: OpenAI's, and an event of type `error`."""

    def body(self, error: ApiError) -> messages.JsonObject:
        return error_body(_about_input(error))

    def event(self, error: ApiError) -> str:
        """The published fields, and the object from which OpenAI's clients raise an exception."""
        error = _about_input(error)
        fields = {"code": error.code, "message": error.message, "param": error.param}
        data = {"type": "error", "sequence_number": 0, **fields, **error_body(error)}
        return json_text.frame(data, "error")


def _about_input(error: ApiError) -> ApiError:
    """The error with this API's name for the field."""
    return dataclasses.replace(error, param=_FIELDS.get(error.param or "", error.param))


def _routers(context: ServerContext) -> list[APIRouter]:
    """The routes of the API, over one store and the background responses of this process."""
    settings = context.settings
    place = settings.responses_file
    if settings.postgres is not None:
        place = responses_in(settings.postgres)
    store = ResponseStore(place, settings.store_responses_days, settings.store_responses_mib)
    translator = Translator(context.seal, settings.thinking)
    reader = HistoryReader(store, context.bodies, settings.max_body_bytes)
    responses = Responses(context, reader, Jobs(), translator)
    return [create_router(responses), stored_router(responses)]


OPENAI_RESPONSES = Api(name="responses", paths=(PATH,), errors=ResponsesErrors(), routers=_routers)
