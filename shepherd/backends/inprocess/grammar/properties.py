"""The properties that an object may have.

A schema that names some properties usually allows others too. A model should write only the
named ones. If several schemas apply at once, the names of all of them are allowed.
"""

from typing import Any, cast

from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")
_NOTES = frozenset(
    (
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "$comment",
        "$defs",
        "definitions",
        "deprecated",
        "readOnly",
        "writeOnly",
        "discriminator",
        "nullable",
    )
)
MAX_STEPS = 20_000
"""The limit of visited schemas when names are collected: references can grow exponentially."""

_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")


class Closing:
    """Collects the names in one whole schema."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._steps = 0
        self.shared: frozenset[str] = frozenset()
        """The definitions that apply together with other schemas; they stay open."""
        self.shared = frozenset(self._find_shared())

    def combines(self, key: str, schema: JsonObject) -> bool:
        """Whether the schema under this keyword applies together with other parts of `schema`."""
        if key == "allOf":
            return True
        return key in ("anyOf", "oneOf") and bool(schema.keys() - _NOTES - {key})

    def names(self, schema: JsonObject) -> list[str] | None:
        """The names of all properties; None if other names are allowed or none is named."""
        parts = self._parts(schema, set())
        if parts is None:
            return None
        names = [name for part in parts for name in part.get("properties", {})]
        required = [name for part in parts for name in cast(Any, part.get("required") or [])]
        says = any("properties" in part for part in parts) or any(
            part.get("required") for part in parts
        )
        return list(dict.fromkeys([*names, *map(str, required)])) if says else None

    def _parts(self, schema: Any, seen: set[int]) -> list[JsonObject] | None:
        """All schemas that apply together or by choice; None if one is open or too unusual."""
        if not isinstance(schema, dict) or id(cast(Any, schema)) in seen:
            return None
        node = cast(JsonObject, schema)
        self._count()
        if any(key in node for key in _OPEN) or not _is_plain(node):
            return None
        if not node.keys() & set(_COMBINING):
            return [node]
        if len(node.keys() - _NOTES) == 1 and "allOf" not in node:
            return None  # each choice or reference is closed separately
        result = [node]
        for inner in self._combined(node):
            parts = self._parts(inner, seen | {id(node)})
            if parts is None:
                parts = self._single(inner, seen | {id(node)})
            if parts is None:
                return None
            result += parts
        return result

    def _single(self, schema: Any, seen: set[int]) -> list[JsonObject] | None:
        """The parts of a schema that is only a reference or a choice."""
        if not isinstance(schema, dict) or id(cast(Any, schema)) in seen:
            return None
        node = cast(JsonObject, schema)
        self._count()
        if any(key in node for key in _OPEN) or not node.keys() & set(_COMBINING):
            return None
        result: list[JsonObject] = []
        for inner in self._combined(node):
            below = seen | {id(node)}
            parts = self._parts(inner, below) or self._single(inner, below)
            if parts is None:
                return None
            result += parts
        return result

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidRequestError(
                f"The JSON schema combines more than {MAX_STEPS} schemas, which is too large."
            )

    def _combined(self, schema: JsonObject) -> list[Any]:
        result: list[Any] = [self._target(schema["$ref"])] if "$ref" in schema else []
        for key in ("allOf", "anyOf", "oneOf"):
            value: Any = schema.get(key, [])
            result += cast(list[Any], value) if isinstance(value, list) else []
        return result

    def _target(self, path: Any) -> Any:
        result: Any = self._root
        for part in str(path).removeprefix("#").split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            result = cast(JsonObject, result).get(key) if isinstance(result, dict) else None
        return result if str(path).startswith("#") else None

    def _find_shared(self) -> set[str]:
        result: set[str] = set()
        waiting: list[tuple[Any, bool]] = [(self._root, False)]
        while waiting:
            value, part = waiting.pop()
            if isinstance(value, list):
                waiting += [(inner, part) for inner in cast(list[Any], value)]
            elif isinstance(value, dict):
                node = cast(JsonObject, value)
                reference = node.get("$ref")
                if isinstance(reference, str) and (part or node.keys() - _NOTES - {"$ref"}):
                    name = reference.rpartition("/")[2]
                    if name not in result:
                        result.add(name)
                        waiting.append((self._target(reference), True))
                waiting += [
                    (inner, self.combines(key, node) or (part and key in ("anyOf", "oneOf")))
                    for key, inner in node.items()
                ]
        return result


def _is_plain(schema: JsonObject) -> bool:
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required") or []
    kind = schema.get("type", "object")
    return (
        isinstance(properties, dict)
        and isinstance(required, list)
        and (kind == "object" or (isinstance(kind, list) and "object" in kind))
    )
