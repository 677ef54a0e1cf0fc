"""The format of an answer, as llama.cpp's clients ask for it."""

from typing import cast

from shepherd.messages import JsonObject
from shepherd.server.errors import invalid
from shepherd.structure import OutputFormat


def plain_format(grammar: str | None, schema: object) -> OutputFormat | None:
    """The format of `grammar` or of `json_schema`, None for free text; raises ApiError."""
    if schema is None:
        return OutputFormat(grammar=grammar) if grammar else None
    if grammar:
        raise invalid("json_schema", "not with a grammar")
    if not isinstance(schema, dict):
        raise invalid("json_schema", "must be an object")
    return OutputFormat(cast(JsonObject, schema))
