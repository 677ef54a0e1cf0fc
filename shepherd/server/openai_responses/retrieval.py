"""The routes for responses that were stored, or are being made in the background."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.errors import ApiError, invalid, invalid_body, to_api_error
from shepherd.server.openai_responses.creation import Job, Jobs
from shepherd.server.openai_responses.items import HistoryReader
from shepherd.server.openai_responses.record import Status
from shepherd.server.openai_responses.store import StoredResponse
from shepherd.server.record import record_of
from shepherd.server.responses import EventStreamResponse, JsonResponse

PATH = "/v1/responses"
_INTERRUPTED: JsonObject = {
    "code": "server_error",
    "message": "The server ended before the response was complete.",
}
_CANCEL_FOREGROUND = "Only a response that was made with background=true can be cancelled."


class ResponseQuery(RequestModel):
    """The query of `GET /v1/responses/{id}`."""

    stream: bool = False
    starting_after: Annotated[int | None, Field(ge=0)] = None


class ItemsQuery(RequestModel):
    """The query of `GET /v1/responses/{id}/input_items`."""

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


Q = TypeVar("Q", bound=RequestModel)


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """Responses that were stored, or are being made; those of another key do not exist."""

    reader: HistoryReader
    jobs: Jobs
    keepalive: float

    async def get(self, request: Request, id: str) -> Response:
        """The response as it is now, or its events."""
        query = _query(request, ResponseQuery)
        owner = record_of(request.scope).owner
        if not query.stream:
            return JsonResponse((await self._current(owner, id)).body)
        job = self.jobs.find(owner, id)
        if job is None:
            await self._stored(owner, id)
            raise invalid("stream", "the events of this response are not kept")
        after = query.starting_after
        return follow(job, 0 if after is None else after + 1, self.keepalive)

    async def delete(self, request: Request, id: str) -> JsonResponse:
        """Delete a response; one that is being made is cancelled first."""
        owner = record_of(request.scope).owner
        job = self.jobs.find(owner, id)
        if job is not None:
            await self.jobs.remove(job)
        if not await self.reader.store.delete(owner, id) and job is None:
            raise _missing_response(id)
        return JsonResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: Request, id: str) -> JsonResponse:
        """Stop a background response."""
        owner = record_of(request.scope).owner
        job = self.jobs.find(owner, id)
        if job is not None:
            await job.cancel()
        response = await self._current(owner, id)
        if not response.body["background"]:
            raise ApiError(400, _CANCEL_FOREGROUND, "invalid_value", "response_id")
        return JsonResponse(response.body)

    async def input_items(self, request: Request, id: str) -> JsonResponse:
        """A page of the items before a response."""
        query = _query(request, ItemsQuery)
        owner = record_of(request.scope).owner
        response = await self._stored(owner, id)
        previous: str | None = response.body["previous_response_id"]
        earlier = [] if previous is None else await self.reader.earlier(owner, previous)
        items = [*(item.data for item in earlier), *response.input]
        return JsonResponse(_page(items, query))

    async def _current(self, owner: str, id: str) -> StoredResponse:
        """The response as it is now; one that ended with an earlier process has failed."""
        job = self.jobs.find(owner, id)
        if job is not None:
            return StoredResponse(job.creation.record.body(), ())
        response = await self._stored(owner, id)
        if Status(response.body["status"]).is_final:
            return response
        failed = {"status": Status.FAILED.value, "error": _INTERRUPTED}
        return replace(response, body={**response.body, **failed})

    async def _stored(self, owner: str, id: str) -> StoredResponse:
        response = await self.reader.store.load(owner, id)
        if response is None:
            raise _missing_response(id)
        return response


def stored_router(responses: StoredResponses) -> APIRouter:
    """The routes under the id of a response."""
    router = APIRouter(prefix=PATH + "/{response_id}")

    @router.get("")
    async def get_response(request: Request, response_id: str) -> Response:
        """The response as it is now; with `stream=true` the events of a background response.

        `starting_after` is the number of the last event that the client has.
        """
        return await responses.get(request, response_id)

    @router.delete("")
    async def delete_response(request: Request, response_id: str) -> JsonResponse:
        """Delete the response and its items; one that is being made is cancelled."""
        return await responses.delete(request, response_id)

    @router.post("/cancel")
    async def cancel_response(request: Request, response_id: str) -> JsonResponse:
        """Stop a background response; one that is over stays as it is."""
        return await responses.cancel(request, response_id)

    @router.get("/input_items")
    async def list_input_items(request: Request, response_id: str) -> JsonResponse:
        """The items from which the response was made, those of the responses before it too."""
        return await responses.input_items(request, response_id)

    return router


def follow(job: Job, first: int, keepalive: float) -> EventStreamResponse:
    """The events of a background response from the number `first` on."""
    return EventStreamResponse(lambda: job.follow(first), to_api_error, keepalive)


def _missing_response(response_id: str) -> ApiError:
    message = f"Response with id {response_id[:256]!r} not found."
    return ApiError(404, message, "not_found", "response_id")


def _query(request: Request, model: type[Q]) -> Q:
    """The query of a request; raises ApiError."""
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as error:
        raise invalid_body(error) from error


def _page(items: Sequence[JsonObject], query: ItemsQuery) -> JsonObject:
    """A part of a list, as OpenAI pages it."""
    ordered = list(items) if query.order == "asc" else list(reversed(items))
    if query.after is not None:
        places = [index for index, item in enumerate(ordered) if item["id"] == query.after]
        if not places:
            raise invalid("after", f"there is no item with the id {query.after[:256]!r}")
        ordered = ordered[places[0] + 1 :]
    page = ordered[: query.limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(ordered) > len(page),
    }
