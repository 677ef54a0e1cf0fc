"""Fields and limits of requests that several APIs share."""

from typing import Annotated, Any, TypeAlias, TypeVar, cast

from pydantic import BeforeValidator, Field

from shepherd.messages import JsonObject
from shepherd.server.body import RequestModel
from shepherd.server.errors import invalid
from shepherd.structure import OutputFormat

T = TypeVar("T")
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


def no_boolean(value: object) -> object:
    """A field's value; raises ValueError for true and false, which pydantic takes as numbers."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


ListOrNull: TypeAlias = Annotated[list[T], Field(fail_fast=True), BeforeValidator(list_or_empty)]
Tools: TypeAlias = Annotated[
    list[T], Field(max_length=MAX_TOOLS, fail_fast=True), BeforeValidator(list_or_empty)
]
Integer: TypeAlias = Annotated[int | None, BeforeValidator(no_boolean)]
NotServed: TypeAlias = Annotated[Any, Field(description="Not served.")]
Events: TypeAlias = Annotated[bool | None, Field(description="Answer in server-sent events.")]
ModelName: TypeAlias = Annotated[
    str | None,
    Field(description="A model on offer, which answers under this name; without it the default."),
]


class StreamOptions(RequestModel):
    """Extra parts of a stream."""

    include_usage: Annotated[
        bool | None, Field(description="One last chunk, without choices, with the usage.")
    ] = None


class GrammarFields(RequestModel):
    """The format of an answer, as llama.cpp's clients ask for it."""

    grammar: Annotated[
        str | None, Field(description="A grammar in llama.cpp's GBNF that the answer fits.")
    ] = None
    json_schema: Annotated[
        Any, Field(description="A JSON schema that the answer fits, as llama.cpp takes it.")
    ] = None

    def plain_format(self) -> OutputFormat | None:
        """The format, None for free text; raises ApiError."""
        schema: object = self.json_schema
        if schema is None:
            return OutputFormat(grammar=self.grammar) if self.grammar else None
        if self.grammar:
            raise invalid("json_schema", "not with a grammar")
        if not isinstance(schema, dict):
            raise invalid("json_schema", "must be an object")
        return OutputFormat(cast(JsonObject, schema))
