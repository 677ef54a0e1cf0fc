"""The format of an answer, as llama.cpp's clients ask for it."""

from typing import cast

from shepherd.messages import JsonObject
from shepherd.server.errors import ApiError
from shepherd.structure import OutputFormat


def plain_format(grammar: str | None, schema: object) -> OutputFormat | None:
    """The format of `grammar` or of `json_schema`, None for free text; raises ApiError."""
    where = "json_schema"
    if schema is None:
        return OutputFormat(grammar=grammar) if grammar else None
    if grammar:
        raise ApiError(400, f"{where}: not with a grammar", "invalid_value", where)
    if not isinstance(schema, dict):
        raise ApiError(400, f"{where}: must be an object", "invalid_value", where)
    return OutputFormat(cast(JsonObject, schema))
