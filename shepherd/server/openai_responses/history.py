"""The conversation of a request: its own items, and those of the responses before it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from shepherd.messages import JsonObject
from shepherd.server.body import BodyReader
from shepherd.server.errors import ApiError, invalid
from shepherd.server.openai_responses.items import MAX_ITEMS, Item, input_items, to_item
from shepherd.server.openai_responses.record import Status
from shepherd.server.openai_responses.requests import ResponsesRequest
from shepherd.server.openai_responses.store import ResponseStore

MANY_ITEMS = 500
"""More are translated beside the event loop."""

PREVIOUS = "previous_response_id"


@dataclass(frozen=True, slots=True)
class History:
    """The items before a request, and its own."""

    earlier: Sequence[Item]
    own: Sequence[Item]

    @property
    def items(self) -> Sequence[Item]:
        return [*self.earlier, *self.own]


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Reads conversations; one of more than `max_bytes` of stored items is refused."""

    store: ResponseStore
    bodies: BodyReader
    max_bytes: int

    async def read(self, owner: str, request: ResponsesRequest) -> History:
        """The conversation of a request; raises ApiError."""
        own = await self._own(request.input)
        own = await self._resolved(owner, own)
        previous = request.previous_response_id
        earlier = [] if previous is None else await self.earlier(owner, previous)
        if len(earlier) + len(own) > MAX_ITEMS:
            raise invalid("input", f"the conversation has more than {MAX_ITEMS:,} items")
        if not (earlier or own):
            message = "input: at least one item is needed"
            raise ApiError(400, message, "missing_required_parameter", "input")
        return History(earlier, own)

    async def earlier(self, owner: str, id: str) -> list[Item]:
        """The items of a stored response and of all before it; raises ApiError."""
        response = await self.store.load(owner, id)
        if response is None:
            raise _missing_response(id)
        if not Status(response.body["status"]).is_final:
            message = f"The response {id!r} is not complete yet; wait for it, or cancel it."
            raise ApiError(400, message, "invalid_value", PREVIOUS)
        chain = await self.store.load_chain(owner, id, self.max_bytes)
        if chain.missing:
            raise _missing_response(chain.missing)
        if chain.bytes > self.max_bytes:
            message = (
                f"The conversation takes more than the {self.max_bytes:,} bytes that this server "
                "takes at once (server.max_body_bytes): begin a new one."
            )
            raise ApiError(413, message, "request_too_large", PREVIOUS)
        if len(chain.items) > MANY_ITEMS:
            return await self.bodies.run(_stored_items, chain.items)
        return _stored_items(chain.items)

    async def _own(self, value: Any) -> list[Item]:
        if isinstance(value, list) and len(cast(list[Any], value)) > MANY_ITEMS:
            return await self.bodies.run(input_items, cast(object, value))
        return input_items(cast(object, value))

    async def _resolved(self, owner: str, items: Sequence[Item]) -> list[Item]:
        """The items, with those in place of references that these name."""
        ids = {item.id for item in items if item.is_reference}
        stored = await self.store.find_items(owner, ids) if ids else {}
        missing = next((i for i in items if i.is_reference and i.id not in stored), None)
        if missing is not None:
            message = f"{missing.param}: there is no item with the id {missing.id!r}"
            raise ApiError(404, message, "not_found", missing.param)
        return [to_item(stored[i.id], i.param, stored=True) if i.is_reference else i for i in items]


def _stored_items(values: Sequence[JsonObject]) -> list[Item]:
    return [to_item(value, PREVIOUS, stored=True) for value in values]


def _missing_response(id: str) -> ApiError:
    message = f"The previous response {id[:256]!r} is not stored here."
    return ApiError(404, message, "previous_response_not_found", PREVIOUS)
