"""The parts of a tool's JSON schema that parsing needs."""

import json
from collections.abc import Mapping
from typing import Any, cast

from shepherd.backends.output.calls.repair import loads, repair_json
from shepherd.messages import JsonObject

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_MAX_REFS = 8


def properties(parameters: JsonObject) -> JsonObject:
    """The schema of each argument by name."""
    result = parameters.get("properties")
    return cast(JsonObject, result) if isinstance(result, dict) else {}


def types_of(schema: Any, root: JsonObject, depth: int = 0) -> frozenset[str]:
    """The JSON types that `schema` allows; empty if it does not state any."""
    if not isinstance(schema, Mapping) or depth > _MAX_REFS:
        return frozenset()
    schema = cast(Mapping[str, Any], schema)
    if isinstance(schema.get("$ref"), str):
        return types_of(_resolve(schema["$ref"], root), root, depth + 1)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(str(n) for n in cast(list[Any], named))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        parts = [types_of(c, root, depth + 1) for c in cast(list[Any], choices)]
        return frozenset[str]().union(*parts) if all(parts) else frozenset()
    values = schema.get("enum")
    if isinstance(values, list):
        return frozenset(_type_name(v) for v in cast(list[Any], values))
    return frozenset()


def from_text(text: str, schema: Any, root: JsonObject) -> Any:
    """The argument in `text`, converted to the schema's type; the text itself in case of doubt."""
    types = types_of(schema, root)
    bare = text.strip()
    if "null" in types and bare in ("null", "None"):
        return None
    if not types or "string" in types:
        return text
    value = _literal(bare, types)
    return text if value is None else value


def fits(arguments: JsonObject, parameters: JsonObject) -> bool:
    """Whether all required arguments are present and each has a type that the schema allows."""
    return not misfits(arguments, parameters)


def misfits(arguments: JsonObject, parameters: JsonObject) -> list[str]:
    """The reasons why `arguments` do not fit the schema."""
    required = parameters.get("required")
    names = cast(list[Any], required) if isinstance(required, list) else []
    wrong = [f"{name} is missing" for name in names if name not in arguments]
    known = properties(parameters)
    for name, value in arguments.items():
        types = types_of(known.get(name), parameters)
        if not _admits(types, value):
            wrong.append(f"{name} must be {' or '.join(sorted(types))}")
    return wrong


def _admits(types: frozenset[str], value: Any) -> bool:
    return not types or any(_is(value, name) for name in types)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name in ("integer", "number"):
        return False
    return isinstance(value, _PYTHON_TYPES.get(name, (object,)))


def _literal(bare: str, types: frozenset[str]) -> Any:
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    for parse in (loads, repair_json):
        try:
            value = parse(bare)
        except ValueError:
            continue
        if any(_is(value, name) for name in types):
            return value
        if "integer" in types and isinstance(value, float) and value.is_integer():
            return int(value)
    return None


def _resolve(ref: str, root: JsonObject) -> Any:
    node: Any = root
    for part in ref.removeprefix("#/").split("/"):
        if not isinstance(node, Mapping):
            return None
        node = cast(Mapping[str, Any], node).get(part)
    return node


def _type_name(value: Any) -> str:
    return next((n for n in _PYTHON_TYPES if _is(value, n)), json.dumps(None))
