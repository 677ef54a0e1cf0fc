"""Grammars in the dialect of Lark that llguidance reads."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from shepherd.backends.inprocess.grammar.gbnf import (
    Alternation,
    CharacterClass,
    Concatenation,
    GbnfParser,
    Literal,
    Name,
    Node,
    Repeat,
    Token,
)
from shepherd.errors import InvalidRequestError
from shepherd.messages import JsonObject

MAX_GRAMMAR = 1_000_000
"""Characters of the longest grammar."""

_HEADER = '%llguidance {"no_forcing": true}'
"""Every matching token is allowed, not only the usual tokens of a forced text."""

_ESCAPES = 'nrbtf\\"'
"""Without \\u, which could disguise a named property as a free name."""

_CONTROL = re.compile(r"\\u00[01]")

MAX_OPEN = 4_000
"""The limit of places in a grammar that a parser may have to follow at once, without ambiguity."""


class Rules:
    """A growing set of named rules; equal bodies with the same name are one rule."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._size = 0

    def add(self, name: str, body: str) -> str:
        """The name of the rule: `name`, with a number if another rule has it.

        Raises InvalidRequestError if the grammar gets too long.
        """
        free, number = name, 1
        while free in self._bodies and self._bodies[free] != body:
            number += 1
            free = f"{name}_{number}"
        if free not in self._bodies:
            self._size += len(free) + len(body)
            if self._size > MAX_GRAMMAR:
                raise InvalidRequestError(
                    f"The schema or the tools are too large to be enforced: they take more than "
                    f"{MAX_GRAMMAR} characters."
                )
        self._bodies[free] = body
        return free

    def text(self, start: str) -> str:
        """All rules, `start` first."""
        rules = [f"{name}: {body}" for name, body in self._bodies.items()]
        return "\n".join((_HEADER, f"start: {start}", *rules))


def literal(text: str) -> str:
    """Exactly this text, as one lexeme: alternatives must not share its beginning."""
    return json.dumps(_clean(text), ensure_ascii=False).replace("\x7f", r"\u007f")


def characters(text: str) -> str:
    """Exactly this text, one character at a time, so that other text may share its beginning."""
    return " ".join(map(literal, text)) or '""'


def through(rules: Rules, name: str, marker: str) -> str:
    """A rule for any text up to and including the first `marker`."""
    held = "".join(map(escaped, _clean(marker)))
    anything = "/(?s:.)*/"
    return rules.add(name.upper(), f"({anything} & ~/(?s:.)*{held}(?s:.)*/) {literal(marker)}")


def json_value(schema: Any, comma: str = ", ", colon: str = ": ", *, strict: bool = False) -> str:
    """A value that fits a prepared schema; with `strict`, exactly one of its `oneOf`.

    The whitespace is fixed, so there is no endless whitespace between two values.
    """
    options: JsonObject = {
        "whitespace_flexible": False,
        "item_separator": comma,
        "key_separator": colon,
        "coerce_one_of": not strict,
    }
    base = cast(JsonObject, schema) if isinstance(schema, dict) else {"allOf": [schema]}
    text = json.dumps(base)
    options["json_allowed_escapes"] = _ESCAPES + ("u" if _CONTROL.search(text) else "")
    return f"%json {json.dumps({**base, 'x-guidance': options})}"


def escaped(character: str) -> str:
    """A character inside a regular expression or a character class."""
    return f"\\x{{{ord(character):X}}}"


def _clean(text: str) -> str:
    """The text without lone surrogates, which no answer can contain."""
    return text.encode("utf-8", "replace").decode()


def add_gbnf(rules: Rules, text: str) -> str:
    """Add a grammar in GBNF; returns the name of its root.

    Raises InvalidRequestError for a grammar that can't be parsed or is too expensive.
    """
    bodies = _reachable(GbnfParser(text).parse())
    regular = not _is_recursive(bodies) and not any(
        isinstance(node, Token) for body in bodies.values() for node in _within(body)
    )
    if not regular:
        _check_width(bodies)
    prefix = "G" if regular else "g"
    writer = _Writer({name: f"{prefix}{i}" for i, name in enumerate(bodies)}, regular=regular)
    for name, body in bodies.items():
        rules.add(writer.names[name], writer.write(body))
    return writer.names["root"]


@dataclass(frozen=True, slots=True)
class _Writer:
    names: Mapping[str, str]
    regular: bool

    def write(self, node: Node) -> str:
        match node:
            case Literal(text=text):
                return literal(text) if self.regular else characters(text)
            case CharacterClass():
                return _character_class(node)
            case Token(number=number, others=others):
                return f"<[{'^' if others else ''}{number}]>"
            case Name(name=name):
                return self.names[name]
            case Concatenation(parts=parts):
                return " ".join(map(self._inner, parts)) or '""'
            case Alternation(alternatives=alternatives):
                return " | ".join(map(self._inner, alternatives))
            case Repeat():
                return self._repeat(node)

    def _inner(self, node: Node) -> str:
        text = self.write(node)
        return text if isinstance(node, CharacterClass | Token | Name | Repeat) else f"({text})"

    def _repeat(self, node: Repeat) -> str:
        inner = f"({self.write(node.node)})"
        if node.high == 0:
            return '""'
        symbols = {(0, None): "*", (1, None): "+", (0, 1): "?", (1, 1): ""}
        high = "" if node.high is None else node.high
        return inner + symbols.get((node.low, node.high), f"{{{node.low},{high}}}")


def _character_class(node: CharacterClass) -> str:
    if not node.ranges:
        return "/(?s:.)/"
    inside = "".join(
        escaped(first) if first == last else f"{escaped(first)}-{escaped(last)}"
        for first, last in node.ranges
    )
    return f"/[{'^' if node.others else ''}{inside}]/"


def _reachable(rules: Mapping[str, Node]) -> dict[str, Node]:
    result: dict[str, Node] = {}
    waiting = ["root"]
    while waiting:
        name = waiting.pop()
        if name in result:
            continue
        if name not in rules:
            raise InvalidRequestError(
                f"The grammar can't be parsed: Undefined rule identifier {name[:80]!r}."
            )
        result[name] = rules[name]
        waiting.extend(_names(rules[name]))
    return result


def _within(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Concatenation(parts=inner) | Alternation(alternatives=inner):
            for part in inner:
                yield from _within(part)
        case Repeat(node=part):
            yield from _within(part)
        case _:
            pass


def _names(node: Node) -> list[str]:
    return [part.name for part in _within(node) if isinstance(part, Name)]


def _is_recursive(rules: Mapping[str, Node]) -> bool:
    """Whether some rule contains itself: removing rules without references leaves some."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    open_names = dict.fromkeys(rules, 0)
    for name, body in rules.items():
        for used in _names(body):
            users[used].append(name)
            open_names[name] += 1
    done = [name for name, count in open_names.items() if not count]
    left = len(rules)
    while done:
        left -= 1
        for user in users[done.pop()]:
            open_names[user] -= 1
            if not open_names[user]:
                done.append(user)
    return left > 0


def _check_width(rules: Mapping[str, Node]) -> None:
    """Refuse a grammar with too many open places at once.

    Each place that can be empty opens the next one, and each rule that begins opens its own.
    """
    empty = _nullable(rules)
    runs = [_runs(body, empty) for body in rules.values()]
    width = max(peak for _, peak in runs) + sum(first for first, _ in runs)
    if width > MAX_OPEN:
        raise InvalidRequestError(
            f"The grammar is too ambiguous: {width} of its places can be open at once, and "
            f"{MAX_OPEN} are the most. It has too many optional parts or alternatives."
        )


def _nullable(rules: Mapping[str, Node]) -> set[str]:
    """The rules that can be empty."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        for used in _names(body):
            users[used].append(name)
    result: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in result and _can_be_empty(rules[name], result):
            result.add(name)
            waiting.extend(users[name])
    return result


def _can_be_empty(node: Node, empty: set[str]) -> bool:
    match node:
        case Literal(text=text):
            return not text
        case Name(name=name):
            return name in empty
        case Concatenation(parts=parts):
            return all(_can_be_empty(part, empty) for part in parts)
        case Alternation(alternatives=alternatives):
            return any(_can_be_empty(alternative, empty) for alternative in alternatives)
        case Repeat(node=inner, low=low):
            return not low or _can_be_empty(inner, empty)
        case _:
            return False


def _runs(node: Node, empty: set[str]) -> tuple[int, int]:
    """The number of open places where the node begins, and the maximum anywhere in it."""
    match node:
        case Concatenation(parts=parts):
            first = peak = 0
            for part in reversed(parts):
                own, inner = _runs(part, empty)
                first = own + (first if _can_be_empty(part, empty) else 0)
                peak = max(peak, first, inner)
            return first, peak
        case Alternation(alternatives=alternatives):
            result = [_runs(alternative, empty) for alternative in alternatives]
            return sum(own for own, _ in result) + 1, sum(inner for _, inner in result)
        case Repeat(node=inner, low=low, high=high):
            own, peak = _runs(inner, empty)
            count = high or low + 1
            times = count if _can_be_empty(inner, empty) or high else 1
            return own * min(times, 64) + 1, peak + own * min(times, 64)
        case _:
            return 1, 1
