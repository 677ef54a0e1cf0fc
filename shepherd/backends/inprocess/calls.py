"""Grammars of calls, made from the description of how a model writes them."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.inprocess.lark import Rules, characters, json_value, literal, through
from shepherd.backends.inprocess.schema import prepare
from shepherd.backends.output import notation as n
from shepherd.backends.output.catalog import properties, types_of
from shepherd.backends.output.notation import Fields, Language, Notation
from shepherd.errors import InvalidRequestError
from shepherd.json_text import as_list, as_object
from shepherd.messages import JsonObject, ToolSpec

_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_PATTERNS = {
    n.ID: ("ID", n.ID_PATTERN),
    n.FROM_0: ("NUMBER", n.NUMBER_PATTERN),
    n.FROM_1: ("NUMBER", n.NUMBER_PATTERN),
}
_RAW_LIMITS = frozenset(("pattern", "minLength", "maxLength", "format"))
"""Limits of a string that can't be kept where it is not written as JSON."""

_COMMAS = {Language.JSON: ", ", Language.BARE: ","}
_COLONS = {Language.JSON: ": ", Language.BARE: ":"}
"""What stands in lists and objects in another language than JSON's; JSON here means Python's."""

_JSON = ("", '"')
_PYTHON_STRING = r"""/(?s:'([^'\\]|\\.)*')/ | /(?s:"([^"\\]|\\.)*")/"""
"""The quotes of strings that are JSON, and a string of Python."""


def calls_rule(
    rules: Rules, notation: Notation, tools: Sequence[ToolSpec], *, many: bool, behind: str = ""
) -> str:
    """The name of a rule for a call of these tools, or for `many`.

    `behind` is the part of the text before the first name that comes before the rule. Raises
    InvalidRequestError for a schema that can't be expressed.
    """
    alternatives = [
        rules.add(f"tool{i}", _call(rules, notation, tool)) for i, tool in enumerate(tools)
    ]
    call = rules.add("call", " | ".join(alternatives))
    again = " ".join(_pieces(rules, notation.between + notation.open))
    more = f" ({again} {call})*" if many and notation.many else ""
    opening = " ".join(_pieces(rules, notation.lead.removeprefix(behind or notation.prompted)))
    return rules.add("calls", f"{opening} {call}{more} {characters(notation.end)}")


def json_text(text: str) -> str:
    """The text inside a JSON string, without the quotes: `a"b` gives `a\\"b`."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _call(rules: Rules, notation: Notation, tool: ToolSpec) -> str:
    """The body of a rule for a call of the tool, from its name to its end."""
    schema = prepare(tool.parameters).value
    if notation.ordered:
        schema = {**schema, "properties": dict(sorted(properties(schema).items()))}
    name = json_text(tool.name)
    head = " ".join(_pieces(rules, name + notation.middle.replace(n.NAME, name), whole=True))
    close = " ".join(_pieces(rules, notation.close.replace(n.NAME, name)))
    if notation.fields is None:
        value = tool.grammar or json_value(schema, notation.comma, notation.colon)
        arguments = rules.add("arguments", value)
    elif tool.grammar:
        raise InvalidRequestError("The text of a tool can't be held in this model's calls.")
    else:
        arguments = _Arguments(rules, notation.fields, as_object(schema), tool.enforced).rule()
    return f"{head} {arguments} {close}"


def _pieces(rules: Rules, text: str, *, whole: bool = False) -> list[str]:
    """The text as parts of a rule; `whole`: what is between two holes is one lexeme."""
    write = literal if whole else characters
    parts: list[str] = []
    pos = 0
    for hole in n.HOLES.finditer(text):
        if hole[0] not in _PATTERNS:
            continue
        parts += [write(text[pos : hole.start()])] if hole.start() > pos else []
        name, pattern = _PATTERNS[hole[0]]
        parts.append(rules.add(name, f"/{pattern}/"))
        pos = hole.end()
    return [*parts, write(text[pos:])] if text[pos:] or not parts else parts


def _sequence(rules: Rules, name: str, items: Sequence[tuple[str, bool]], between: str) -> str:
    """A rule for items in this order, of which those that are not required may be left out."""
    separator = f"{literal(between)} " if between else ""
    rest, behind = '""', '""'
    for body, is_required in reversed(items):
        # `rest` begins the list with what follows, `behind` goes on with it.
        skipped = "" if is_required else f" | {rest}"
        rest = rules.add(name, f"{body} {behind}{skipped}")
        optional = "" if is_required else "?"
        behind = rules.add(f"{name}_behind", f"({separator}{body}){optional} {behind}")
    return rest


class _Arguments(Struct):
    """Arguments that are written one by one."""

    rules: Rules
    fields: Fields
    root: JsonObject
    enforced: bool

    def rule(self) -> str:
        """The name of a rule for all arguments of the tool."""
        known = properties(self.root)
        required = as_list(self.root.get("required"))
        if not known:
            return self._free()
        items = [
            (self.rules.add("field", self._field(key, schema)), key in required)
            for key, schema in known.items()
        ]
        return _sequence(self.rules, "fields", items, self.fields.between)

    def _free(self) -> str:
        """Arguments of any name, if the schema allows them."""
        if self.enforced and self.root.get("additionalProperties") is not False:
            raise InvalidRequestError("The calls of a tool without named arguments aren't held.")
        return '""'

    def _field(self, key: str, schema: Any) -> str:
        """One argument: its key, and a value of one of its types."""
        fields = self.fields
        kinds = [kind for kind in _TYPES if kind in types_of(schema, self.root)] or ["string"]
        close = fields.close.replace(n.KEY, key)
        # The end of the call may share the beginning of a field.
        opening = f"{characters(fields.open)} " if fields.open else ""
        name = json_text(key)
        if n.TYPE not in fields.middle:
            value = self._value(schema, kinds, close)
            return f"{opening}{literal(name + fields.middle)} {value}"
        words = dict(fields.types)
        choices = [
            f"{literal(name + fields.middle.replace(n.TYPE, words.get(kind, words['integer'])))} "
            f"{self._value(schema, [kind], close)}"
            for kind in kinds
        ]
        return f"{opening}({' | '.join(choices)})"

    def _value(self, schema: Any, kinds: Sequence[str], close: str) -> str:
        """The value with the text behind it."""
        has_inner = self.fields.language is Language.ELEMENTS and {"array", "object"} & {*kinds}
        if has_inner:
            return self._elements(as_object(schema), close)
        if self.fields.quote or "string" not in kinds:
            written = self._written(schema, kinds)
            return f"({written}) {characters(close)}" if close else f"({written})"
        node = as_object(schema)
        choices = as_list(node.get("enum")) or ([node["const"]] if "const" in node else [])
        if choices:
            texts = (c if isinstance(c, str) else json.dumps(c) for c in choices)
            return (
                f"({' | '.join(literal(text) for text in dict.fromkeys(texts))}) {literal(close)}"
            )
        self._check_limits(node)
        core = close.strip()
        return f"{through(self.rules, core)} {characters(close.partition(core)[2])}"

    def _check_limits(self, node: JsonObject) -> None:
        """Raise InvalidRequestError for a string that is not JSON and whose text is not free."""
        if self.enforced and node.keys() & _RAW_LIMITS:
            raise InvalidRequestError("The limits of strings can't be held in this model's calls.")

    def _elements(self, node: JsonObject, close: str) -> str:
        """A list or an object as elements; any text if its schema does not name what is in it."""
        inner = as_object(node.get("items")) if "items" in node else {}
        if inner:
            item = self.rules.add("item", self._field(self.fields.item, inner))
            return f"{item}* {characters(close)}"
        if properties(node):
            inside = replace(self, root={**self.root, **node})
            return f"{inside.rule()} {characters(close)}"
        return through(self.rules, close)

    def _written(self, schema: Any, kinds: Sequence[str], *, inside: bool = False) -> str:
        """Alternatives for a value of these types; `inside` one that is not written as JSON."""
        fields, node = self.fields, as_object(schema)
        choices = as_list(node.get("enum")) or ([node["const"]] if "const" in node else [])
        if choices:
            return " | ".join(self._constant(choice) for choice in choices)
        is_own = inside or fields.language is not Language.JSON
        own = [
            kind
            for kind in kinds
            if is_own or kind in fields.pythons or (kind == "string" and fields.quote not in _JSON)
        ]
        parts = [self._own(kind, node, python=inside or kind in fields.pythons) for kind in own]
        others = [kind for kind in kinds if kind not in own]
        if others:
            definitions = {k: self.root[k] for k in ("$defs", "definitions") if k in self.root}
            value = {**node, **definitions, "type": others}
            parts.append(self.rules.add("value", json_value(value)))
        return " | ".join(parts)

    def _own(self, kind: str, node: JsonObject, *, python: bool) -> str:
        """A value of one type that is not JSON."""
        is_python = python and self.fields.language is not Language.BARE
        match kind:
            case "string":
                self._check_limits(node)
                return self._string()
            case "boolean":
                return '"True" | "False"' if is_python else '"true" | "false"'
            case "null":
                return '"None"' if is_python or python else '"null"'
            case "array":
                return self._list(node.get("items"))
            case "object":
                return self._object(node)
            case _:
                return self.rules.add("number", json_value({"type": kind}))

    def _string(self) -> str:
        """A string in its quotes."""
        quote = self.fields.quote
        if quote in ("'", *_JSON):
            return self.rules.add("STRING", _PYTHON_STRING)
        return f"{literal(quote)} {through(self.rules, quote)}"

    def _constant(self, choice: Any) -> str:
        """A constant as the model may write it."""
        quote = self.fields.quote
        texts = [json.dumps(choice, ensure_ascii=False)]
        if not isinstance(choice, str) or quote == "'":
            texts += [repr(choice)] if self.fields.pythons else []
        elif quote not in _JSON:
            texts = [f"{quote}{choice}{quote}"]
        return " | ".join(literal(text) for text in dict.fromkeys(texts))

    def _list(self, items: Any) -> str:
        """A list."""
        comma = literal(_COMMAS[self.fields.language])
        item = self.rules.add("item", self._inner(items))
        return f'"[" ({item} ({comma} {item})*)? "]"'

    def _object(self, node: JsonObject) -> str:
        """An object, whose keys may be any words if none is named."""
        colon, comma = _COLONS[self.fields.language], _COMMAS[self.fields.language]
        known, required = properties(node), as_list(node.get("required"))
        is_bare = self.fields.language is Language.BARE
        if not known:
            key = self.rules.add("WORD", r"/[\w.-]+/") if is_bare else self._string()
            pair = self.rules.add("pair", f"{key} {literal(colon)} ({self._inner(None)})")
            return f'"{{" ({pair} ({literal(comma)} {pair})*)? "}}"'
        items: list[tuple[str, bool]] = []
        for key, schema in known.items():
            written = key if is_bare else repr(key)
            body = f"{literal(written + colon)} ({self._inner(schema)})"
            items.append((self.rules.add("pair", body), key in required))
        return f'"{{" {_sequence(self.rules, "pairs", items, comma)} "}}"'

    def _inner(self, schema: Any) -> str:
        """A value inside another one; of any type if the schema names none."""
        known = types_of(schema, self.root)
        kinds = [kind for kind in _TYPES if kind in known]
        if kinds:
            return self._written(schema, kinds, inside=True)
        simple = self._written({}, ("string", "number", "boolean", "null"), inside=True)
        item, comma = "anything", literal(_COMMAS[self.fields.language])
        is_bare = self.fields.language is Language.BARE
        key = self.rules.add("WORD", r"/[\w.-]+/") if is_bare else self._string()
        pair = f"{key} {literal(_COLONS[self.fields.language])} {item}"
        nested = f'"[" ({item} ({comma} {item})*)? "]" | "{{" ({pair} ({comma} {pair})*)? "}}"'
        return self.rules.add(item, f"{simple} | {nested}")
