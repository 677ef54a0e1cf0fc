"""What the headers of a request say on every API, and what those of its response say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from shepherd.messages import Message
from shepherd.server.errors import ApiError
from shepherd.server.record import record_of

TRUNCATION_HEADER = "x-shepherd-truncation"
"""`auto`: the oldest turns leave if the conversation does not fit; `disabled` refuses it."""

TOOLS_HEADER = "x-shepherd-tools"
"""`off`: the server runs no tools for this request."""

EVICTED_HEADER = "x-shepherd-evicted"
"""In the response: how many of the oldest messages have left."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The client and its wishes; `response_headers` grow until the response begins.

    `owner` is the name of its key, "" without keys.
    """

    owner: str = ""
    truncates: bool = False
    uses_tools: bool = True
    response_headers: dict[str, str] = field(default_factory=dict[str, str])

    def note_evicted(self, messages: Sequence[Message]) -> None:
        """Count messages that have left."""
        count = int(self.response_headers.get(EVICTED_HEADER, "0")) + len(messages)
        self.response_headers[EVICTED_HEADER] = str(count)


def options_of(request: Request) -> RequestOptions:
    """The options of a request; raises ApiError for a value that a header does not have."""
    return RequestOptions(
        owner=record_of(request.scope).owner,
        truncates=_switch(
            request, TRUNCATION_HEADER, {"auto": True, "disabled": False}, "disabled"
        ),
        uses_tools=_switch(request, TOOLS_HEADER, {"on": True, "off": False}, "on"),
    )


def _switch(request: Request, name: str, values: Mapping[str, bool], default: str) -> bool:
    value = request.headers.get(name, default).strip().lower()
    if value not in values:
        choices = " or ".join(values)
        raise ApiError(400, f"{name}: must be {choices}", "invalid_value", name)
    return values[value]
