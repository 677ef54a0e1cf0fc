"""Schemas that must hold together, as one."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

_NOTES = frozenset(("title", "description", "default", "examples", "$schema", "$id", "$defs"))


def merged(
    base: JsonObject, others: Sequence[Any], resolve: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """`base` (its `allOf` left out) and all the others at once.

    Raises InvalidRequestError when they contradict each other in a way that can't be written.
    """
    result = {key: value for key, value in base.items() if key != "allOf"}
    for other in others:
        if not isinstance(other, dict):
            raise InvalidRequestError("The JSON schema combines something that is no schema.")
        schema = cast(JsonObject, other)
        if not result.keys() - _NOTES:
            result = dict(schema)
            continue
        for key, value in resolve(schema).items():
            result[key] = _both(key, result[key], value) if key in result else value
    return result


def _both(key: str, one: Any, other: Any) -> Any:
    if one == other or key in _NOTES:
        return one
    if key == "required":
        return list(dict.fromkeys([*one, *other]))
    if key == "properties":
        shared = {name: {"allOf": [one[name], other[name]]} for name in one.keys() & other.keys()}
        return {**one, **other, **shared}
    if key == "allOf":
        return [*one, *other]
    raise InvalidRequestError(f"The JSON schema sets {key!r} twice for one value.")
