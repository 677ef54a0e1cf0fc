"""GBNF, the grammars of llama.cpp, written for llguidance with the same meaning.

llguidance splits a text into the longest matching lexemes. A grammar without recursion is therefore
one regular expression, that is one lexeme. In any other grammar every character is a lexeme. Its
own converter (`gbnf_to_lark`) makes a lexeme of each rule that could be one: `("a" | "ab") "bc"`
then takes nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

from shepherd.backends.inprocess.grammar.lark import Rules, characters, escaped, literal
from shepherd.errors import InvalidRequestError

MAX_TEXT = 65_536
"""Characters of the longest grammar in a request."""

MAX_NESTING = 100
MAX_REPEATS = 2_000

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COUNT = re.compile(r"\{[ \t]*(\d{1,9})[ \t]*(?:(,)[ \t]*(\d{1,9})?[ \t]*)?\}")
_TOKEN = re.compile(r"(!?)<\[(\d{1,7})\]>")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_REPEATS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Literal:
    """A text; "" is nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class CharacterClass:
    """One character: inside these ranges, or outside all of them."""

    ranges: tuple[tuple[str, str], ...]
    others: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token by its number, or any other token."""

    number: int
    others: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """Another rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Several nodes in sequence."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of several nodes."""

    alternatives: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node repeated from `low` to `high` times; None means no limit."""

    node: "Node"
    low: int
    high: int | None


Node: TypeAlias = Literal | CharacterClass | Token | Name | Concatenation | Alternation | Repeat


@dataclass(slots=True)
class GbnfParser:
    """Reads one grammar."""

    text: str
    at: int = 0
    depth: int = 0
    rules: dict[str, Node] = field(default_factory=dict[str, Node])

    def parse(self) -> dict[str, Node]:
        """The rules by name; raises InvalidRequestError for an invalid or too long grammar."""
        if not self.text.strip() or "\0" in self.text:
            raise InvalidRequestError("The grammar is empty or has a zero character in it.")
        if len(self.text) > MAX_TEXT:
            raise InvalidRequestError(f"The grammar is longer than {MAX_TEXT} characters.")
        self._skip(_SPACE_AND_LINES)
        while self.at < len(self.text):
            self._rule()
            self._skip(_SPACE_AND_LINES)
        if "root" not in self.rules:
            raise InvalidRequestError("The grammar has no rule named 'root'.")
        return self.rules

    def _rule(self) -> None:
        name = self._name()
        self._skip(_SPACE)
        if not self.text.startswith("::=", self.at):
            raise self._wrong("expecting ::=")
        self.at += 3
        self._skip(_SPACE_AND_LINES)
        self.rules[name] = self._choice()
        if self._next() not in ("", "\r", "\n"):
            raise self._wrong("expecting the end of the line")

    def _choice(self) -> Node:
        alternatives = [self._row()]
        while self._next() == "|":
            self.at += 1
            self._skip(_SPACE_AND_LINES)
            alternatives.append(self._row())
        return alternatives[0] if len(alternatives) == 1 else Alternation(tuple(alternatives))

    def _row(self) -> Node:
        parts: list[Node] = []
        space = _SPACE_AND_LINES if self.depth else _SPACE
        while (part := self._part()) is not None:
            self._skip(space)
            parts.append(self._repeated(part, space))
        return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))

    def _repeated(self, node: Node, space: re.Pattern[str]) -> Node:
        for _ in range(MAX_NESTING):
            counted = self._counted(node)
            if counted is None:
                return node
            node = counted
            self._skip(space)
        raise InvalidRequestError(f"The grammar nests more than {MAX_NESTING} repetitions.")

    def _part(self) -> Node | None:
        """One element of a row; None at the end of the row."""
        match self._next():
            case '"':
                return self._literal()
            case "[":
                return self._class()
            case ".":
                self.at += 1
                return CharacterClass((), others=True)
            case "(":
                return self._group()
            case "<" | "!":
                return self._token()
            case _:
                return Name(self._name()) if _NAME.match(self.text, self.at) else None

    def _group(self) -> Node:
        self.at += 1
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise InvalidRequestError(f"The grammar nests more than {MAX_NESTING} brackets.")
        self._skip(_SPACE_AND_LINES)
        inner = self._choice()
        if self._next() != ")":
            raise self._wrong("expecting )")
        self.at += 1
        self.depth -= 1
        return inner

    def _literal(self) -> Node:
        self.at += 1
        result: list[str] = []
        while self._next() != '"':
            result.append(self._character())
        self.at += 1
        return Literal("".join(result))

    def _class(self) -> Node:
        self.at += 1
        others = self._next() == "^"
        self.at += others
        ranges: list[tuple[str, str]] = []
        while self._next() != "]":
            first = last = self._character()
            if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                last = self._character()
            if last < first:
                raise self._wrong("expecting a range that goes up")
            ranges.append((first, last))
        self.at += 1
        if not (ranges or others):
            raise self._wrong("expecting a character in []")
        return CharacterClass(tuple(ranges), others=others)

    def _token(self) -> Node:
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a token by its number, such as <[1000]>")
        self.at = match.end()
        return Token(int(match[2]), others=bool(match[1]))

    def _counted(self, node: Node) -> Node | None:
        """The node with the repetition that stands behind it; None if there is none."""
        sign = self._next()
        if sign in _REPEATS:
            self.at += 1
            return Repeat(node, *_REPEATS[sign])
        if sign != "{":
            return None
        match = _COUNT.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a count such as {1,3}")
        self.at = match.end()
        low = int(match[1])
        high = None if match[2] and not match[3] else int(match[3] or low)
        if max(low, high or 0) > MAX_REPEATS:
            raise InvalidRequestError(
                f"The grammar can't be parsed: repetitions are limited to {MAX_REPEATS}."
            )
        if high is not None and high < low:
            raise self._wrong("expecting a count that goes up")
        return Repeat(node, low, high)

    def _character(self) -> str:
        """The next character of a text or a class, which may be escaped."""
        character = self._next()
        self.at += 1
        if not character:
            raise self._wrong("expecting the end of a text or a class")
        if character != "\\":
            return character
        kind = self._next()
        self.at += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        digits = self.text[self.at : self.at + _DIGITS.get(kind, 0)]
        if not re.fullmatch("[0-9a-fA-F]{2,8}", digits) or len(digits) != _DIGITS[kind]:
            raise self._wrong("unknown escape")
        self.at += len(digits)
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise self._wrong("no such character")
        return chr(code)

    def _name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a name")
        self.at = match.end()
        return match[0]

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _skip(self, space: re.Pattern[str]) -> None:
        match = space.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _wrong(self, reason: str) -> InvalidRequestError:
        line = self.text.count("\n", 0, self.at) + 1
        near = self.text[self.at : self.at + 20]
        return InvalidRequestError(
            f"The grammar can't be parsed: {reason} in line {line} at {near!r}."
        )


def add_gbnf(rules: Rules, text: str) -> str:
    """Add a grammar in GBNF; returns the name of its root.

    Raises InvalidRequestError for a grammar that can't be parsed.
    """
    bodies = _reachable(GbnfParser(text).parse())
    regular = not _is_recursive(bodies) and not any(
        isinstance(node, Token) for body in bodies.values() for node in _within(body)
    )
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
        """The node in llguidance's language."""
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
    """The rules that the root uses; raises InvalidRequestError for one that is missing."""
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
    """Whether some rule contains itself."""
    try:
        TopologicalSorter({name: _names(body) for name, body in rules.items()}).prepare()
    except CycleError:
        return True
    return False
