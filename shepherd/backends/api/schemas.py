"""JSON schemas of tools, without references for APIs that do not resolve them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from shepherd.messages import JsonObject, ToolSpec

_HOLDERS = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", "dependentSchemas")


def without_references(schema: JsonObject) -> JsonObject:
    """`schema` with its `#/…` references replaced by their targets.

    If a schema contains itself, the inner one keeps only its type and description.
    """
    whole = cast(JsonObject, _inlined(schema, schema, ()))
    return {key: value for key, value in whole.items() if key not in _HOLDERS}


def _inlined(node: Any, root: JsonObject, within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, root, within) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    schema = cast(JsonObject, node)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _followed(reference, schema, root, within)
    result: JsonObject = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            parts = cast(JsonObject, value)
            result[key] = {name: _inlined(part, root, within) for name, part in parts.items()}
        elif key in ("enum", "const", "default", "examples"):
            result[key] = value
        elif key not in _HOLDERS:
            nested = isinstance(value, (dict, list))
            result[key] = _inlined(value, root, within) if nested else value
    return result


def _followed(
    reference: str, schema: JsonObject, root: JsonObject, within: tuple[str, ...]
) -> JsonObject:
    beside = {k: v for k, v in schema.items() if k != "$ref" and k not in _HOLDERS}
    target = _target(reference, root)
    if reference in within:
        target = {k: v for k, v in target.items() if k in ("type", "description")}
    inlined = _inlined(target, root, (*within, reference))
    return inlined | cast(JsonObject, _inlined(beside, root, within))


def _target(reference: str, root: JsonObject) -> JsonObject:
    """The target of a reference; {} if there is none."""
    node: Any = root
    if not reference.startswith("#"):
        return {}
    for step in reference[1:].split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        node = cast(JsonObject, node).get(name) if isinstance(node, dict) else None
    return cast(JsonObject, node) if isinstance(node, dict) else {}


T = TypeVar("T")


def declaration(tool: ToolSpec, field: str, schema: JsonObject | None) -> JsonObject:
    """A function's declaration: name, description, and its parameters' `schema` in `field`."""
    result: JsonObject = {"name": tool.name, "description": tool.description}
    return result if schema is None else result | {field: schema}


MAX_LISTS = 16
"""The number of remembered lists."""


class PerToolList(Generic[T]):
    """Remembers the results of `make` for the last lists; the objects in a list identify it."""

    def __init__(self, make: Callable[[Sequence[ToolSpec]], T]) -> None:
        self._make = make
        self._held: OrderedDict[tuple[int, ...], tuple[Sequence[ToolSpec], T]] = OrderedDict()

    def of(self, tools: Sequence[ToolSpec]) -> T:
        """The result for these tools; callers must not change it."""
        ids = tuple(map(id, tools))
        held = self._held.get(ids)
        if held is None:
            held = self._held[ids] = (tuple(tools), self._make(tools))
        self._held.move_to_end(ids)
        if len(self._held) > MAX_LISTS:
            self._held.popitem(last=False)
        return held[1]
