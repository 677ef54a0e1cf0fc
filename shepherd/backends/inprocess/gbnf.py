"""GBNF, the grammars of llama.cpp, written for llguidance with the same meaning.

llguidance splits a text into the longest matching lexemes. A grammar without recursion is therefore
one regular expression, that is one lexeme. In any other grammar every character is a lexeme. Its
own converter (`gbnf_to_lark`) makes a lexeme of each rule that could be one: `("a" | "ab") "bc"`
then takes nothing.
"""

import re
import sys
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct, field

from shepherd.backends.inprocess.lark import Rules, characters, escaped, literal
from shepherd.errors import InvalidRequestError

MAX_TEXT = 65_536
"""Characters of the longest grammar in a request."""

MAX_NESTING = 100
MAX_REPEATS = 2_000

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_COUNT = re.compile(
    r"\{[ \t]*(?P<low>\d{1,9})[ \t]*(?:(?P<comma>,)[ \t]*(?P<high>\d{1,9})?[ \t]*)?\}"
)
_TOKEN = re.compile(r"(?P<others>!?)<\[(?P<number>\d{1,7})\]>")
_SPACE = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_SPACE_AND_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_DIGITS = {"x": 2, "u": 4, "U": 8}
_NOTHING = '""'
_ANY = "/(?s:.)/"


def add_gbnf(rules: Rules, text: str) -> str:
    """Add a grammar in GBNF; returns the name of its root.

    Raises InvalidRequestError for a grammar that can't be parsed.
    """
    parsed = GbnfParser(text, regular=True).parse()
    # What the grammar is shows only at its end, so the other kind is read once more.
    if _is_recursive(parsed) or any(rule.has_token for rule in parsed.values()):
        parsed = GbnfParser(text, regular=False).parse()
    for rule in parsed.values():
        rules.add(rule.name, rule.body)
    return parsed["root"].name


def _is_recursive(rules: dict[str, "_Rule"]) -> bool:
    """Whether some rule contains itself."""
    try:
        TopologicalSorter({name: rule.uses for name, rule in rules.items()}).prepare()
    except CycleError:
        return True
    return False


class _Rule(Struct):
    """A rule under its `name` in llguidance's grammar; `uses` are the GBNF names in its `body`."""

    name: str
    body: str = ""
    uses: set[str] = field(default_factory=set[str])
    has_token: bool = False


class GbnfParser:
    """Reads one grammar, and writes each rule in llguidance's language while it reads.

    The rules of a `regular` grammar are parts of one lexeme, and llguidance wants capital letters
    for the names of such rules.
    """

    def __init__(self, text: str, *, regular: bool) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self._regular = regular
        self._written: dict[str, _Rule] = {}
        self._current_rule = _Rule("")

    def parse(self) -> dict[str, _Rule]:
        """The rules that the root uses, by their names in GBNF.

        Raises InvalidRequestError for an invalid or too long grammar.
        """
        if not self.text.strip() or "\0" in self.text:
            raise InvalidRequestError("The grammar is empty or has a zero character in it.")
        if len(self.text) > MAX_TEXT:
            raise InvalidRequestError(f"The grammar is longer than {MAX_TEXT} characters.")
        self._skip(_SPACE_AND_LINES)
        while self.at < len(self.text):
            self._rule()
            self._skip(_SPACE_AND_LINES)
        if not self._rule_called("root").body:
            raise InvalidRequestError("The grammar has no rule named 'root'.")
        return self._reachable()

    def _reachable(self) -> dict[str, _Rule]:
        """The root and what it uses, at whatever depth; raises InvalidRequestError."""
        result: dict[str, _Rule] = {}
        names = ["root"]
        while names:
            name = names.pop()
            if name in result:
                continue
            result[name] = self._written[name]
            if not result[name].body:  # the rule was used, but never defined
                raise InvalidRequestError(
                    f"The grammar can't be parsed: Undefined rule identifier {name[:80]!r}."
                )
            names.extend(result[name].uses)
        return result

    def _rule_called(self, name: str) -> _Rule:
        """The rule, which has no body before its definition is read."""
        letter = "G" if self._regular else "g"
        return self._written.setdefault(name, _Rule(f"{letter}{len(self._written)}"))

    def _rule(self) -> None:
        """Read one definition, such as `list ::= item ("," item)*`."""
        name = self._name()
        self._skip(_SPACE)
        if not self.text.startswith("::=", self.at):
            raise self._wrong("expecting ::=")
        self.at += 3
        self._skip(_SPACE_AND_LINES)
        rule = self._current_rule = self._rule_called(name)
        rule.uses, rule.has_token = set(), False  # a later definition replaces an earlier one
        rule.body = self._choice()
        if self._next() not in ("", "\r", "\n"):
            raise self._wrong("expecting the end of the line")

    def _choice(self) -> str:
        """Read alternatives with `|` between them."""
        alternatives = [self._row()]
        while self._next() == "|":
            self.at += 1
            self._skip(_SPACE_AND_LINES)
            alternatives.append(self._row())
        return " | ".join(alternatives)

    def _row(self) -> str:
        """Read elements that follow each other, with their counts."""
        parts: list[str] = []
        space = _SPACE_AND_LINES if self.depth else _SPACE  # outside brackets a line ends the rule
        while part := self._part():
            self._skip(space)
            parts.append(self._repeated(part, space))
        return " ".join(parts) or _NOTHING

    def _repeated(self, part: str, space: re.Pattern[str]) -> str:
        """The part with all counts behind it, since `"a"+?` and the like may follow each other."""
        for _ in range(MAX_NESTING):
            counted = self._counted(part)
            if counted is None:
                return part
            part = counted
            self._skip(space)
        raise InvalidRequestError(f"The grammar nests more than {MAX_NESTING} repetitions.")

    def _part(self) -> str:
        """One element of a row; "" at the end of the row."""
        match self._next():
            case '"':
                return self._literal()
            case "[":
                return self._class()
            case ".":
                self.at += 1
                return _ANY
            case "(":
                return self._group()
            case "<" | "!":
                return self._token()
            case _:
                return self._reference() if _NAME.match(self.text, self.at) else ""

    def _reference(self) -> str:
        """Read a rule's name, and note that the current rule uses it."""
        name = self._name()
        self._current_rule.uses.add(name)
        return self._rule_called(name).name

    def _group(self) -> str:
        """Read a choice in round brackets."""
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
        return f"({inner})"

    def _literal(self) -> str:
        """Read a text in quotes."""
        self.at += 1
        result: list[str] = []
        while self._next() != '"':
            result.append(self._character())
        self.at += 1
        text = "".join(result)
        # Outside of one regular expression each character is a lexeme of its own.
        return literal(text) if self._regular else f"({characters(text)})"

    def _class(self) -> str:
        """Read a class of characters, such as `[^a-z_]`."""
        self.at += 1
        excludes = self._next() == "^"
        if excludes:
            self.at += 1
        inside = ""
        while self._next() != "]":
            first = last = self._character()
            behind_dash = self.text[self.at + 1 : self.at + 2]
            if self._next() == "-" and behind_dash not in ("", "]"):  # in `[a-]` it is a character
                self.at += 1
                last = self._character()
            if last < first:
                raise self._wrong("expecting a range that goes up")
            inside += escaped(first) if first == last else f"{escaped(first)}-{escaped(last)}"
        self.at += 1
        if not inside and not excludes:
            raise self._wrong("expecting a character in []")
        caret = "^" if excludes else ""
        return f"/[{caret}{inside}]/" if inside else _ANY

    def _token(self) -> str:
        """Read a token by its number: `<[1000]>`, or `!<[1000]>` for any other one."""
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a token by its number, such as <[1000]>")
        self.at = match.end()
        self._current_rule.has_token = True
        caret = "^" if match["others"] else ""
        return f"<[{caret}{int(match['number'])}]>"

    def _counted(self, part: str) -> str | None:
        """The part with the count that stands behind it; None if there is none."""
        sign = self._next()
        if sign and sign in "*+?":  # at the end of the text it is ""
            self.at += 1
            return f"({part}){sign}"
        if sign != "{":
            return None
        match = _COUNT.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a count such as {1,3}")
        self.at = match.end()
        low = int(match["low"])
        is_open = match["comma"] and not match["high"]  # `{2,}` has no upper limit
        high = None if is_open else int(match["high"] or low)
        if max(low, high or 0) > MAX_REPEATS:
            raise InvalidRequestError(
                f"The grammar can't be parsed: repetitions are limited to {MAX_REPEATS}."
            )
        if high is not None and high < low:
            raise self._wrong("expecting a count that goes up")
        if high == 0:
            return _NOTHING
        return f"({part}){{{low},{'' if high is None else high}}}"

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
        count = _DIGITS.get(kind, 0)
        digits = self.text[self.at : self.at + count]
        if len(digits) != count or not re.fullmatch("[0-9a-fA-F]+", digits):
            raise self._wrong("unknown escape")
        self.at += count
        code = int(digits, 16)
        is_surrogate = 0xD800 <= code < 0xE000
        if code > sys.maxunicode or is_surrogate:
            raise self._wrong("no such character")
        return chr(code)

    def _name(self) -> str:
        """Read the name of a rule."""
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self._wrong("expecting a name")
        self.at = match.end()
        return match[0]

    def _next(self) -> str:
        """The next character, which stays unread; "" at the end."""
        return self.text[self.at : self.at + 1]

    def _skip(self, space: re.Pattern[str]) -> None:
        match = space.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _wrong(self, reason: str) -> InvalidRequestError:
        """The error for what stands at the current place."""
        line = self.text.count("\n", 0, self.at) + 1
        near = self.text[self.at : self.at + 20]
        return InvalidRequestError(
            f"The grammar can't be parsed: {reason} in line {line} at {near!r}."
        )
