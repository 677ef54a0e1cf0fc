"""JSON schemas as grammar rules.

JSON is written on one line with one way of spacing: nothing can go on for ever between two values,
and a call comes out as the model's template writes it.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from shepherd.backends.inprocess.grammar.gbnf import Rules, literal
from shepherd.backends.inprocess.grammar.merge import merged
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

_DEPTH = 8
"""How deep a value nests of which the schema says nothing."""

_MOST_DEPTH = 64
_MOST_REPEATS = 1000

_HEX = "[0-9a-fA-F]"
_CHARACTER = (
    r'[^"\\\x7F\x00-\x1F] | [\\] (["\\/bfnrt] | "u" ([0-9a-cA-Ce-fE-F] '
    rf"{_HEX} {_HEX} {_HEX} | [dD] [0-7] {_HEX} {_HEX}))"
)
_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,14})'
_SIMPLE = {
    "string": '"\\"" character* "\\""',
    "integer": _INTEGER,
    "number": f'({_INTEGER}) ("." [0-9]{{1,15}})? ([eE] [+-]? [0-9]{{1,2}})?',
    "boolean": '"true" | "false"',
    "null": '"null"',
}
_UNENFORCED_WORDS = """
pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf uniqueItems not if then
else patternProperties propertyNames minProperties maxProperties contains dependentRequired
dependentSchemas dependencies unevaluatedProperties
"""
_UNENFORCED = frozenset(_UNENFORCED_WORDS.split())


class SchemaRules:
    """Writes one schema's rules into `rules`; raises InvalidRequestError for a bad schema.

    What it writes always fits the schema but for the keywords in `unenforced`, which is filled on
    the way. Of objects with named properties only these are written, in the schema's order.
    """

    def __init__(
        self, rules: Rules, root: JsonObject, comma: str = ", ", colon: str = ": "
    ) -> None:
        self.unenforced: set[str] = set()
        self._rules = rules
        self._root = root
        self._comma, self._colon = literal(comma), literal(colon)
        self._separators = (comma, colon)
        self._references: dict[str, str] = {}
        self._depth = 0

    def write(self, name: str) -> str:
        """The rule that the whole schema is."""
        return self._visit(self._root, name)

    def _visit(self, schema: Any, name: str) -> str:
        if schema is True:
            return self._any(_DEPTH)
        if not isinstance(schema, dict):
            raise InvalidRequestError(f"The JSON schema has {str(schema)[:40]!r} as a schema.")
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise InvalidRequestError(f"The JSON schema nests deeper than {_MOST_DEPTH}.")
        rule = self._schema(cast(JsonObject, schema), name)
        self._depth -= 1
        return rule

    def _schema(self, schema: JsonObject, name: str) -> str:
        self.unenforced |= _UNENFORCED & schema.keys()
        if "$ref" in schema:
            return self._reference(schema)
        if "allOf" in schema:
            return self._visit(merged(schema, self._list(schema, "allOf"), self._resolve), name)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                rest = {k: v for k, v in schema.items() if k != key}
                choices = [merged(rest, [o], self._resolve) for o in self._list(schema, key)]
                return self._union(name, choices)
        if "const" in schema:
            return self._rules.add(name, self._json(schema["const"]))
        if "enum" in schema:
            return self._rules.add(name, " | ".join(map(self._json, self._list(schema, "enum"))))
        return self._typed(schema, name)

    def _typed(self, schema: JsonObject, name: str) -> str:
        kind = schema.get("type", _implied(schema))
        if isinstance(kind, list):
            kinds = self._list(schema, "type")
            return self._union(name, [{**schema, "type": k} for k in kinds])
        writers: dict[str, Callable[[JsonObject, str], str]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
        }
        if kind is None:
            return self._any(_DEPTH)
        if kind in writers:
            return writers[kind](schema, name)
        if not isinstance(kind, str) or kind not in _SIMPLE:
            raise InvalidRequestError(f"The JSON schema has an unknown type {str(kind)[:40]!r}.")
        return self._rules.add(f"json-{kind}", _SIMPLE[kind])

    def _union(self, name: str, schemas: list[JsonObject]) -> str:
        ways = [self._visit(s, f"{name}-{i}") for i, s in enumerate(schemas)]
        return self._rules.add(name, " | ".join(ways))

    def _reference(self, schema: JsonObject) -> str:
        path = str(schema["$ref"])
        if path not in self._references:
            target = self._resolve(schema)
            rule = self._references[path] = self._rules.reserve("ref")
            self._rules.put(rule, self._visit(target, f"{rule}-of"))
        return self._references[path]

    def _resolve(self, schema: JsonObject) -> JsonObject:
        """What a schema that is only a reference refers to, any other as it is."""
        seen: set[str] = set()
        while "$ref" in schema:
            path = str(schema["$ref"])
            found: Any = self._root
            for part in path.removeprefix("#").split("/")[1:]:
                key = part.replace("~1", "/").replace("~0", "~")
                found = cast(JsonObject, found).get(key) if isinstance(found, dict) else None
            if path in seen or not path.startswith("#") or not isinstance(found, dict):
                raise InvalidRequestError(
                    f"The JSON schema's reference {path[:80]!r} leads nowhere."
                )
            seen.add(path)
            schema = cast(JsonObject, found)
        return schema

    def _string(self, schema: JsonObject, name: str) -> str:
        self._rules.add("character", _CHARACTER)
        bounds = self._bounds(schema, "minLength", "maxLength")
        if not bounds:
            return self._rules.add("json-string", _SIMPLE["string"])
        return self._rules.add(name, f'"\\"" character{bounds} "\\""')

    def _array(self, schema: JsonObject, name: str) -> str:
        fixed = self._list(schema, "prefixItems") if "prefixItems" in schema else []
        if fixed:
            items = [self._visit(s, f"{name}-{i}") for i, s in enumerate(fixed)]
            return self._rules.add(name, '"[" ' + f" {self._comma} ".join(items) + ' "]"')
        item = self._visit(schema.get("items", True), f"{name}-item")
        least, most = self._range(schema, "minItems", "maxItems")
        if most == 0:
            return self._rules.add(name, '"[]"')
        bounds = f"{{{max(least, 1) - 1},{'' if most is None else most - 1}}}"
        body = f"{item} ({self._comma} {item}){bounds}"
        return self._rules.add(name, f'"[" {body} "]"' if least else f'"[" ({body})? "]"')

    def _object(self, schema: JsonObject, name: str) -> str:
        properties: Any = schema.get("properties") or {}
        required: Any = schema.get("required") or []
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise InvalidRequestError("The JSON schema has bad properties or required.")
        known = cast(JsonObject, properties)
        names = [str(key) for key in cast(list[object], required)]
        known = {**known, **{key: True for key in names if key not in known}}
        if not known:
            return self._map(schema, name)
        return self._properties(known, frozenset(names), name)

    def _properties(self, known: JsonObject, required: frozenset[str], name: str) -> str:
        """Pairs in order: rule `first` while none is written, `more` behind one."""
        first = more = '""'
        for i, (key, schema) in reversed(list(enumerate(known.items()))):
            value = self._visit(schema, f"{name}-p{i}")
            pair = f"{self._json(key)} {self._colon} {value} {more}"
            after = f"{self._comma} {pair}"
            if key not in required:
                pair, after = f"{pair} | {first}", f"{after} | {more}"
            first = self._rules.add(f"{name}-f{i}", pair)
            more = self._rules.add(f"{name}-m{i}", after)
        return self._rules.add(name, f'"{{" {first} "}}"')

    def _map(self, schema: JsonObject, name: str) -> str:
        """An object without named properties: `{}` if a list of none is given, else any."""
        values = schema.get("additionalProperties", "properties" not in schema)
        if values is False:
            return self._rules.add(name, '"{}"')
        value = self._visit(values, f"{name}-value")
        return self._pairs(name, value)

    def _pairs(self, name: str, value: str) -> str:
        self._rules.add("character", _CHARACTER)
        key = self._rules.add("json-string", _SIMPLE["string"])
        pair = f"{key} {self._colon} {value}"
        return self._rules.add(name, f'"{{" ({pair} ({self._comma} {pair})*)? "}}"')

    def _any(self, depth: int) -> str:
        """Any value that nests at most `depth` deep."""
        self._rules.add("character", _CHARACTER)
        ways = [self._rules.add(f"json-{kind}", body) for kind, body in _SIMPLE.items()]
        if depth:
            value = self._any(depth - 1)
            ways.append(self._pairs(f"json-object-{depth}", value))
            body = f'"[" ({value} ({self._comma} {value})*)? "]"'
            ways.append(self._rules.add(f"json-array-{depth}", body))
        return self._rules.add(f"json-value-{depth}", " | ".join(ways))

    def _bounds(self, schema: JsonObject, low: str, high: str) -> str:
        least, most = self._range(schema, low, high)
        return "" if not least and most is None else f"{{{least},{'' if most is None else most}}}"

    def _range(self, schema: JsonObject, low: str, high: str) -> tuple[int, int | None]:
        least, most = schema.get(low, 0), schema.get(high)
        for key, value in ((low, least), (high, most or 0)):
            if not isinstance(value, int) or value < 0:
                raise InvalidRequestError(f"The JSON schema's {key} is not a count.")
            if value > _MOST_REPEATS:
                self.unenforced.add(key)
        if most is not None and most < least:
            raise InvalidRequestError(f"The JSON schema's {high} is below its {low}.")
        return min(least, _MOST_REPEATS), None if most is None or most > _MOST_REPEATS else most

    def _list(self, schema: JsonObject, key: str) -> list[Any]:
        found = schema[key]
        if not isinstance(found, list) or not found:
            raise InvalidRequestError(
                f"The JSON schema's {key} is not a list with something in it."
            )
        return cast(list[Any], found)

    def _json(self, value: Any) -> str:
        return literal(json.dumps(value, ensure_ascii=False, separators=self._separators))


def _implied(schema: JsonObject) -> str | None:
    """The type that is meant where none is said."""
    if schema.keys() & {"properties", "required", "additionalProperties"}:
        return "object"
    if schema.keys() & {"items", "prefixItems"}:
        return "array"
    return "string" if schema.keys() & {"minLength", "maxLength"} else None
