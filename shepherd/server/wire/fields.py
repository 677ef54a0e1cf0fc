"""Fields and limits of requests that several APIs share."""

from typing import Annotated, cast

from pydantic import Field

from shepherd.server.body import RequestModel

MAX_MESSAGES = 10_000
MAX_TOOLS = 1000

MANY_MESSAGES = 500
"""More are translated beside the event loop."""

MAX_TOKENS = 2**31 - 1
"""Larger limits of an answer mean this one."""


def few_messages(value: object) -> object:
    """A field's value; raises ValueError for a list with too many messages."""
    if isinstance(value, list) and len(cast(list[object], value)) > MAX_MESSAGES:
        raise ValueError(f"must be at most {MAX_MESSAGES:,} messages")
    return cast(object, value)


def list_or_empty(value: object) -> object:
    """A field's value; null is an empty list."""
    return [] if value is None else value


ModelName = Annotated[
    str | None,
    Field(description="A model on offer, which answers under this name; without it the default."),
]


class StreamOptions(RequestModel):
    """Extra parts of a stream."""

    include_usage: Annotated[
        bool | None, Field(description="One last chunk, without choices, with the usage.")
    ] = None
