"""Prepares JSON schemas for llguidance.

llguidance itself leaves out the keywords that it can't enforce, and names them (see `matcher.py`).
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct, field

from shepherd.backends.inprocess.lark import CONTROL
from shepherd.errors import InvalidRequestError
from shepherd.json_text import as_list, as_object, referenced
from shepherd.messages import JsonObject

_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")
_NOTES = frozenset(
    (
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$id", "$comment", "$defs", "definitions", "discriminator", "nullable"),
    )
)
"""Keywords that say nothing about a value."""

MAX_STEPS = 20_000
"""The limit of visited schemas when names are collected: references can grow exponentially."""

_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")

MAX_TEXT = 262_144
"""Characters of the longest schema."""

MAX_DEPTH = 64
MAX_CHOICES = 4
"""Names on which others depend: each doubles the grammar of its object."""
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
"""Other names or a schema by name; earlier drafts have both under the last keyword."""

MAX_INTEGER = 10**18 - 1
"""The bound of an integer without bounds, because an answer can't have endless digits."""

_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "uniqueItems": (False,),
    "unevaluatedProperties": (True,),
    "unevaluatedItems": (True,),
}
"""Keywords that llguidance lacks, and values with which they have no effect."""

_NOTHING = ("then", "else", "$dynamicAnchor")
"""Keywords that have no effect alone, and that llguidance lacks too."""

_COUNTS = frozenset(
    ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
)
_BEYOND_REGULAR = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]|\\k<")
"""Lookahead, lookbehind and backreferences in a pattern."""

_DAY = (
    r"^(....-((0[13-9]|1.)-..|02-([01].|2[0-8]))"
    r"|(..(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)
_LABEL = r"([^.]{1,3}|[^.]{2}([^.-][^.]|-[^.-])[^.]*)"
EXACT: Mapping[str, JsonObject] = {
    "date": {"pattern": _DAY},
    "date-time": {"pattern": _DAY + ".{7}[0-5]"},
    "time": {"pattern": "^.{6}[0-5]"},
    "hostname": {"pattern": rf"^{_LABEL}(\.{_LABEL})*$", "maxLength": 253},
}
"""What llguidance's formats lack: February 29 in leap years only, no leap seconds, which depend on
the offset, no labels in Punycode (`xn--`), and no endless host name."""

_IMPLIED: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        (
            *("properties", "required", "additionalProperties", "patternProperties"),
            *("minProperties", "maxProperties"),
        )
    ),
    "array": frozenset(("items", "prefixItems", "minItems", "maxItems")),
    "string": frozenset(("minLength", "maxLength", "pattern", "format")),
    "number": frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
}
"""Keywords that apply to one type only."""

_ONE = ("items", "additionalItems", "additionalProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
"""Keywords with one schema, a list of schemas, and schemas by name."""

_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")


class Schema(Struct, frozen=True):
    """A schema as it is enforced; `unenforced` names the constraints that were dropped here."""

    value: Any
    unenforced: frozenset[str]


def prepare(schema: JsonObject, *, strict: bool = False) -> Schema:
    """A schema for llguidance, without the patterns that it refuses.

    It may be narrower than the original: objects with named properties get only these. With
    `strict`, nothing is dropped, and where a name that comes twice could break the schema it raises
    InvalidRequestError. Raises it in any case for an invalid schema.
    """
    text = json.dumps(schema)
    if len(text) > MAX_TEXT:
        raise InvalidRequestError(
            f"The JSON schema is too large to be enforced: it is longer than {MAX_TEXT} characters."
        )
    # A value that fits one of two narrowed schemas may fit the other original one too.
    narrows = not (strict and '"oneOf"' in text)
    has_escapes = CONTROL.search(text) is not None  # then a name has several spellings
    preparation = _Preparation(Closing(schema), strict, narrows, has_escapes)
    return Schema(preparation.visit(schema, 0), frozenset(preparation.unenforced))


class Closing:
    """Collects the names of properties in one whole schema.

    A schema that names some properties usually allows others too. A model should write only the
    named ones. If several schemas apply at once, the names of all of them are allowed.
    """

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self._steps = 0
        """How many schemas were visited to collect names."""
        self.shared = self._find_shared()
        """The definitions that apply together with other schemas; they stay open."""

    def makes_part(self, key: str, schema: JsonObject, *, is_part: bool) -> bool:
        """Whether the schemas under this keyword apply together with others.

        `is_part`: `schema` itself does, and then each of its choices does too.
        """
        if key not in ("anyOf", "oneOf"):
            return key == "allOf"
        has_others = bool(schema.keys() - _NOTES - {key})
        return is_part or has_others

    def names(self, schema: JsonObject) -> list[str] | None:
        """The names of all properties; None if other names are allowed or none is named.

        A lone choice or reference has none: each of its schemas is closed separately.
        """
        if not _is_plain(schema) or _is_lone(schema):
            return None
        parts = self._parts(schema, frozenset())
        if parts is None:
            return None
        properties = [name for part in parts for name in part.get("properties", {})]
        required = [name for part in parts for name in cast(Any, part.get("required") or [])]
        if not required and not any("properties" in part for part in parts):
            return None
        return list(dict.fromkeys([*properties, *map(str, required)]))

    def _parts(self, schema: Any, parents: frozenset[int]) -> list[JsonObject] | None:
        """All schemas that apply together or by choice; None if one is open or too unusual.

        `parents` are the ids of the schemas around it: one that refers to itself has no end.
        """
        if not isinstance(schema, dict) or id(cast(Any, schema)) in parents:
            return None
        node = cast(JsonObject, schema)
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidRequestError(
                f"The JSON schema combines more than {MAX_STEPS} schemas, which is too large."
            )
        is_plain = _is_plain(node)
        if any(key in node for key in _OPEN) or not (is_plain or node.keys() & set(_COMBINING)):
            return None
        result = [node] if is_plain else []
        for inner in self._combined(node):
            parts = self._parts(inner, parents | {id(node)})
            if parts is None:
                return None
            result += parts
        return result

    def _combined(self, schema: JsonObject) -> list[Any]:
        """The schemas that this one refers to, or combines."""
        result = [referenced(self.root, str(schema["$ref"]))] if "$ref" in schema else []
        for key in ("allOf", "anyOf", "oneOf"):
            result += as_list(schema.get(key))
        return result

    def _find_shared(self) -> set[str]:
        """The definitions that are referred to beside other keywords, or inside of `allOf`."""
        result: set[str] = set()
        # Each schema with whether it applies together with others.
        waiting: list[tuple[Any, bool]] = [(self.root, False)]
        while waiting:
            value, is_part = waiting.pop()
            if isinstance(value, list):
                waiting += [(inner, is_part) for inner in cast(list[Any], value)]
            elif isinstance(value, dict):
                node = cast(JsonObject, value)
                reference = node.get("$ref")
                is_shared = is_part or bool(node.keys() - _NOTES - {"$ref"})
                if isinstance(reference, str) and is_shared:
                    name = reference.rpartition("/")[2]
                    if name not in result:
                        result.add(name)
                        waiting.append((referenced(self.root, reference), True))
                waiting += [
                    (inner, self.makes_part(key, node, is_part=is_part))
                    for key, inner in node.items()
                ]
        return result


def _declared_types(schema: JsonObject) -> list[Any]:
    """The types that the schema names, by itself or in a list."""
    declared: Any = schema.get("type", [])
    return cast(list[Any], declared) if isinstance(declared, list) else [declared]


def _is_lone(schema: JsonObject) -> bool:
    """Whether it is only a reference or a choice."""
    combining = schema.keys() & {"anyOf", "oneOf", "$ref"}
    return bool(combining) and len(schema.keys() - _NOTES) == 1


def _is_plain(schema: JsonObject) -> bool:
    """Whether it can describe an object with named properties."""
    properties: Any = schema.get("properties", {})
    required: Any = schema.get("required") or []
    can_be_object = "type" not in schema or "object" in _declared_types(schema)
    return isinstance(properties, dict) and isinstance(required, list) and can_be_object


class _Preparation(Struct):
    """One run through a schema; `narrows` closes objects and bounds integers.

    `has_escapes`: the grammar takes `\\u0061` for `a`, so a named property can come as another one.
    """

    closing: Closing
    strict: bool
    narrows: bool
    has_escapes: bool
    unenforced: set[str] = field(default_factory=set[str])

    def visit(self, schema: Any, depth: int, *, is_part: bool = False) -> Any:
        """The schema with everything inside; `is_part`: it applies together with others."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            raise InvalidRequestError(f"The JSON schema has {str(schema)[:40]!r} as a schema.")
        if depth > MAX_DEPTH:
            raise InvalidRequestError(f"The JSON schema nests deeper than {MAX_DEPTH}.")
        source = self._with_names(_with_choices(cast(JsonObject, schema)))
        for name in _declared_types(source):
            if name not in _TYPES:
                raise InvalidRequestError(
                    f"The JSON schema has an unknown type {str(name)[:40]!r}."
                )
        closes = self.narrows and not is_part  # a part must allow what its neighbours name
        names = self.closing.names(source) if closes else None
        result = {
            key: self._keyword(key, value, source, depth, is_part=is_part)
            for key, value in (_as_complete(source) if closes else source).items()
            if not self._drops(key, value)
        }
        if exact := EXACT.get(str(source.get("format"))):
            result["allOf"] = [*as_list(result.get("allOf")), exact]
        if self.narrows:
            _imply_type(result)
            _bound_integer(result)
        if names is not None:
            described = result.get("properties", {})
            others = {name: True for name in names if name not in described}
            result["properties"] = described | others
            result["additionalProperties"] = False
        elif self.strict and self._breaks_with_repeats(result, is_part=is_part):
            raise InvalidRequestError(
                "The JSON schema can't be enforced with strict: additionalProperties (a name could "
                "come twice)."
            )
        return result

    def _with_names(self, schema: JsonObject) -> JsonObject:
        """A map whose names fit a list or a pattern, in keywords that llguidance has."""
        names = as_object(schema.get("propertyNames"))
        if schema.keys() & {"properties", "patternProperties"}:
            return schema
        if names.keys() - _NOTES == {"$ref"}:
            names = as_object(referenced(self.closing.root, str(names["$ref"])))
        words = {"type": "string"} | {k: v for k, v in names.items() if k not in _NOTES}
        others, pattern = schema.get("additionalProperties", True), str(words.get("pattern"))
        if words == {"type": "string", "enum": words.get("enum")}:
            texts = (text for text in as_list(words["enum"]) if isinstance(text, str))
            named: JsonObject = {"properties": dict.fromkeys(texts, others)}
        elif words == {"type": "string", "pattern": pattern} and not _BEYOND_REGULAR.search(
            pattern
        ):
            named = {"patternProperties": {pattern: others}}
        else:
            return schema
        kept = {key: value for key, value in schema.items() if key != "propertyNames"}
        return kept | named | {"additionalProperties": False}

    def _breaks_with_repeats(self, schema: JsonObject, *, is_part: bool) -> bool:
        """Whether a value that does not fit comes of a name that is written twice.

        llguidance never repeats a named property. Of two others with one name, each fits; they only
        count as one.
        """
        is_open = _has_free_names(schema)
        distinct = len(as_list(schema.get("required"))) + 1
        too_few = schema.get("minProperties", 0) > distinct and (is_open or is_part)
        return too_few or (is_open and not is_part and self.has_escapes)

    def _keyword(
        self, key: str, value: Any, schema: JsonObject, depth: int, *, is_part: bool
    ) -> Any:
        """The value of a keyword of `schema`, with the schemas in it prepared."""
        makes_part = self.closing.makes_part(key, schema, is_part=is_part)

        def visit(inner: Any, *, is_shared: bool = False) -> Any:
            return self.visit(inner, depth + 1, is_part=makes_part or is_shared)

        if key in _MAPS and isinstance(value, dict):
            shared = self.closing.shared if key in ("$defs", "definitions") else ()
            schemas = cast(JsonObject, value).items()
            return {name: visit(inner, is_shared=name in shared) for name, inner in schemas}
        if key in _LISTS and isinstance(value, list):
            return [visit(inner) for inner in cast(list[Any], value)]
        if key in _COUNTS and isinstance(value, float) and value.is_integer():
            return int(value)  # llguidance refuses 2.0
        return visit(value) if key in _ONE else value

    def _drops(self, key: str, value: Any) -> bool:
        """Whether a keyword is left out, so that llguidance does not refuse the whole schema."""
        if key in _NOTHING or value in _WITHOUT_EFFECT.get(key, ()):
            return True
        if self.strict or key != "pattern":
            return False  # a strict schema must be enforced completely, or be refused
        is_beyond = isinstance(value, str) and _BEYOND_REGULAR.search(value) is not None
        if is_beyond:
            self.unenforced.add(key)
        return is_beyond


def _with_choices(schema: JsonObject) -> JsonObject:
    """What depends on a name, in keywords that llguidance has: the name is missing, or it fits."""
    choices: list[JsonObject] = []
    for keyword in _DEPENDENT:
        for name, needs in as_object(schema.get(keyword)).items():
            names = as_list(needs)
            rest = {"required": names} if names or needs == [] else needs
            choices.append({"anyOf": [{"properties": {name: False}}, rest]})
    if not 0 < len(choices) <= MAX_CHOICES:
        return schema
    kept = {key: value for key, value in schema.items() if key not in _DEPENDENT}
    return kept | {"allOf": [*as_list(schema.get("allOf")), *choices]}


def _as_complete(schema: JsonObject) -> JsonObject:
    """A tuple without a length is complete: it has all of its items, and no others."""
    # Draft 2020-12 has `prefixItems` and `items`, earlier ones `items` and `additionalItems`.
    for tuple_key, others_key in (("items", "additionalItems"), ("prefixItems", "items")):
        items: Any = schema.get(tuple_key)
        has_length = schema.keys() & {others_key, "minItems", "maxItems"}
        if isinstance(items, list) and not has_length:
            return {**schema, others_key: False, "minItems": len(cast(list[Any], items))}
    return schema


def _imply_type(schema: JsonObject) -> None:
    """Add the type that the other keywords imply."""
    if schema.keys() & {"type", "const", "enum"}:  # constants have their own types
        return
    kinds = [kind for kind, words in _IMPLIED.items() if schema.keys() & words]
    if len(kinds) == 1:  # else each keyword counts only for values of its own type
        schema["type"] = kinds[0]


def _bound_integer(schema: JsonObject) -> None:
    """Give an integer bounds if nothing else limits it: it could have endless digits."""
    limits = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    limits |= {"enum", "const"}
    types = _declared_types(schema)
    is_integer = "integer" in types and "number" not in types
    if is_integer and not schema.keys() & limits:
        schema["minimum"], schema["maximum"] = -MAX_INTEGER, MAX_INTEGER


def _has_free_names(schema: JsonObject) -> bool:
    """Whether it describes an object that allows other names than the listed ones."""
    if schema.get("patternProperties"):
        return True
    has_object_keyword = "additionalProperties" in schema or "required" in schema
    is_object = has_object_keyword or "object" in _declared_types(schema)
    # llguidance itself refuses the second keyword.
    others = (schema.get("additionalProperties"), schema.get("unevaluatedProperties"))
    return is_object and False not in others
