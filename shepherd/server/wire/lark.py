"""Lark grammars of the text in a call, rewritten so that the call itself can be held to them.

A model writes the text inside of a JSON string: a newline as `\\n`, a quote as `\\"`. So each
character of the client's grammar becomes the one that is written. llguidance takes the longest
lexeme and looks one byte ahead; with a backslash before several characters it would take wrong
ones. Without recursion the whole grammar is therefore one lexeme, and otherwise each character is
one, as for GBNF.
"""

import json
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from shepherd.backends.inprocess.lark import literal
from shepherd.errors import InvalidRequestError

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|(?:\#|//)[^\n]*|%llguidance\s*\{\s*\})+)
    | (?P<head>[?!]{0,2}(?P<defined>_*[A-Za-z][\w-]*)(?:\.-?\d+)?\s*:(?!:))
    | (?P<range>"(?P<low>\\.[^"]*|[^"\\]+)"\s*\.\.\s*"(?P<high>\\.[^"]*|[^"\\]+)")
    | "(?P<text>(?:\\.|[^"\\\n])*)"(?P<any_case>i?)
    | /(?P<regex>(?:\\.|[^/\\])+)/(?P<flags>[a-z]*)
    | (?P<name>_*[A-Za-z][\w-]*)
    | (?P<repeat>~\s*(?P<least>\d+)(?:\s*\.\.\s*(?P<most>\d+))?)
    | (?P<alias>->\s*\w+)
    | (?P<imports>%import\s+common\s*(?:\.\s*(?P<item>\w+)(?:\s*->\s*(?P<new>\w+))?
                                        |\((?P<items>[\w\s,]+)\)))
    | (?P<ignore>%ignore\b)
    | (?P<mark>[()|*+?&~\[\]]|\{\s*\d*\s*,?\s*\d*\s*\})
    """,
    re.VERBOSE | re.DOTALL,
)
_UNIT = re.compile(
    r"""
    (?P<flags>\(\?(?P<on>[ims]*)(?:-(?P<off>[ims]+))?(?P<end>[:)]))
    | (?P<open>\(\?P?<\w+>|\((?!\?))
    | (?P<mark>[)|*+?]|\{\d*,?\d*\})
    | (?P<set>\[\^?\]?(?:\\.|\[[^\]]*\]|[^\]\\\[])*\]
            |\\(?:[xuUpP]\{[^}]*\}|[pP].|x..|u.{4}|[^bBAzZG<>])|[^\[\\($^])
    | (?P<wrong>.+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x(..)|.)", re.DOTALL)
_REPEATS = ("*", "+", "?", "{")

_ESCAPED = '"\\\n\r\t\b\f'
"""Characters that JSON writes with a backslash and one character."""

_SPECIAL = "".join(map(chr, range(32))) + '"\\'
"""Characters that JSON can't have as they are."""

_OPERATION = re.compile(r"(?<!\\)\[|&&|--|~~|\|\|")
"""Sets within a set, which Python reads otherwise than llguidance."""

_PLAIN = r'[^\x00-\x1f"\\]'
_EXPONENT = r"[eE][+-]?[0-9]+"
_DECIMAL = r"([0-9]+\.[0-9]*|\.[0-9]+)"
_FLOAT = f"({_DECIMAL}({_EXPONENT})?|[0-9]+{_EXPONENT})"
_COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": _DECIMAL,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": f"[+-]?{_FLOAT}",
    "NUMBER": f"([0-9]+|{_FLOAT})",
    "SIGNED_NUMBER": f"[+-]?([0-9]+|{_FLOAT})",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": "//[^\\n]*",
    "C_COMMENT": r"/\*[^*]*\*+([^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""What `%import common` has. llguidance's own can't be written as JSON writes them."""

MAX_SETS = 256
"""Different sets of characters in one grammar: each takes a moment."""


START = "start"
_IGNORED = "%ignore"


class _Atom(NamedTuple):
    """A piece of a rule: a `name`, a `text`, a `regex` with its flags, or a `mark` as it is."""

    kind: str
    value: str
    flags: str = ""
    line: int = 0


_Rules = dict[str, list[_Atom]]


def arguments_rule(definition: str, argument: str) -> str:
    """llguidance's rule for `{"argument": "…"}`, with a text in it that fits the grammar.

    Raises InvalidRequestError that names what is wrong in the grammar, and where.
    """
    rules = _read(definition)
    uses = {
        name: {atom.value for atom in body if atom.kind == "name"} for name, body in rules.items()
    }
    for atom in (_Atom("name", START), *(atom for body in rules.values() for atom in body)):
        if atom.kind == "name" and atom.value not in rules:
            raise _wrong(f"has no rule or terminal {atom.value[:80]!r}", atom.line)
    try:
        TopologicalSorter(uses).prepare()
        letter = "T"  # llguidance makes one lexeme of what begins with a capital letter
    except CycleError:
        letter = "r"
    writer = _Writer({name: f"{letter}{number}" for number, name in enumerate(rules)})
    lines = [f"{writer.names[name]}: {writer.body(name, body)}" for name, body in rules.items()]
    opening, closing = literal(f'{{{json.dumps(argument)}: "'), literal('"}')
    before = writer.ignored()
    call = f"{letter}: {opening} {before} {writer.names[START]} {closing}"
    return "\n".join((f"%lark {{\nstart: {letter}", call, *lines, "}"))


def _read(definition: str) -> _Rules:
    """The rules and terminals by their names, and all that is ignored as one more."""
    rules: _Rules = {}
    body: list[_Atom] = []
    at = 0
    while at < len(definition):
        line = definition.count("\n", 0, at) + 1
        match = _TOKEN.match(definition, at)
        if match is None:
            raise _wrong(f"has {definition[at : at + 20]!r}, which can't be read or enforced", line)
        at = match.end()
        if match["defined"]:
            if match["defined"] in rules:
                raise _wrong(f"defines {match['defined'][:80]!r} twice", line)
            body = rules.setdefault(match["defined"], [])
        elif match["ignore"]:
            body = rules.setdefault(_IGNORED, [])
            body += [_Atom("mark", "|")] if body else []
        elif match["imports"]:
            rules |= _imported(match, line)
        else:
            body += _atoms(match, line)
    return rules


def _imported(match: re.Match[str], line: int) -> _Rules:
    """The terminals of one import."""
    names = re.findall(r"\w+", match["items"] or match["item"])
    for name in names:
        if name not in _COMMON:
            raise _wrong(f"imports {name[:80]!r}; there are {', '.join(_COMMON)}", line)
    return {match["new"] or name: [_Atom("regex", _COMMON[name])] for name in names}


def _atoms(match: re.Match[str], line: int) -> Iterator[_Atom]:
    """The pieces of a rule that one token stands for."""
    if match["low"]:
        low, high = (_text(match[end], line) for end in ("low", "high"))
        if len(low) != 1 or len(high) != 1 or low > high:
            raise _wrong("has a range that is not of two characters that go up", line)
        yield _Atom("regex", f"[{re.escape(low)}-{re.escape(high)}]", "", line)
    elif match["text"] is not None:
        yield _Atom("text", _text(match["text"], line), match["any_case"], line)
    elif match["regex"]:
        yield _Atom("regex", match["regex"], match["flags"], line)
    elif match["name"]:
        yield _Atom("name", match["name"], "", line)
    elif match["repeat"]:
        least = match["least"]
        yield _Atom("mark", f"{{{least},{match['most'] or least}}}", "", line)
    elif match["mark"]:
        marks = {"[": "(", "]": ")?"}  # `[a]` may be left out
        yield _Atom("mark", marks.get(match["mark"], match["mark"]), "", line)


def _text(written: str, line: int) -> str:
    """What a text between quotes stands for."""
    as_json = _ESCAPE.sub(lambda m: f"\\u00{m[1]}" if m[1] else m[0], written)
    try:
        return str(json.loads(f'"{as_json}"', strict=False))
    except ValueError:
        raise _wrong(f'has a text with an unknown escape, "{written[:40]}"', line) from None


class _Writer:
    """Writes rules under their new `names`, with each character as JSON writes it."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self._sets: set[str] = set()

    def body(self, name: str, atoms: list[_Atom]) -> str:
        """What a rule consists of."""
        is_rule = name.lstrip("_")[:1].islower()  # what is ignored may stand only between terminals
        parts = [self._atom(atom, is_rule=is_rule) for atom in atoms]
        return f"({' '.join(parts)})*" if name == _IGNORED else " ".join(parts) or '""'

    def ignored(self) -> str:
        """What may stand between two terminals."""
        return self.names.get(_IGNORED, "")

    def _atom(self, atom: _Atom, *, is_rule: bool) -> str:
        match atom.kind:
            case "name":
                written = self.names[atom.value]
                is_rule = is_rule and atom.value.lstrip("_")[:1].isupper()
            case "text":
                written = " ".join(map(_character, atom.value)) or '""'
                if atom.flags:
                    units = (self._set(re.escape(c), {"i"}, atom.line) for c in atom.value)
                    written = " ".join(units) or '""'
            case "regex":
                written = self._regex(atom)
            case _:
                return atom.value
        return f"({written} {self.ignored()})" if is_rule and self.ignored() else f"({written})"

    def _regex(self, atom: _Atom) -> str:
        """A regular expression in Lark's own marks around sets of one character."""
        parts: list[str] = []
        flags = [set(atom.flags)]  # of each group around the current place
        if set(atom.flags) - set("ims"):
            raise _wrong(f"has the flags {atom.flags!r}; there are i, m and s", atom.line)
        for unit in _UNIT.finditer(atom.value):
            if unit["wrong"] or (unit["mark"] == ")" and len(flags) == 1):
                raise _wrong(f"has {unit[0][:40]!r} in a regular expression", atom.line)
            if unit["flags"] or unit["open"]:
                on, off = set(unit["on"] or ""), set(unit["off"] or "")
                changed = (flags[-1] | on) - off
                if unit["end"] == ")":
                    flags[-1] = changed
                else:
                    flags.append(changed)
                    parts.append("(")
            elif unit["mark"]:
                parts += self._mark(unit["mark"], parts)
                if unit["mark"] == ")":
                    flags.pop()
            else:
                parts.append(self._set(unit["set"], flags[-1], atom.line))
        if len(flags) > 1:
            raise _wrong(f"has no ) at the end of {atom.value[:40]!r}", atom.line)
        return " ".join((*parts, *self._mark("", parts)))

    def _mark(self, mark: str, parts: list[str]) -> Iterator[str]:
        """A mark behind other parts, with what Lark wants in front of it."""
        if mark in ("|", ")", "") and (not parts or parts[-1] in ("(", "|")):
            yield '""'
        # `a*?` prefers short texts, and has the same ones as `a*`.
        if mark and not (mark == "?" and parts and parts[-1].startswith(_REPEATS)):
            yield mark

    def _set(self, source: str, flags: set[str], line: int) -> str:
        """One character out of a set, in the words of a regular expression."""
        if source not in r"\." and len(source) == 1 and "i" not in flags:
            return _character(source)
        if source == ".":
            source = r"[\s\S]" if "s" in flags else r"[^\n]"
        if _OPERATION.search(source, 1):
            raise _wrong(f"has {source[:40]!r}, a set made of sets, which is refused", line)
        case = "i" if "i" in flags else ""
        try:
            special = re.findall(source, _SPECIAL)
        except re.error as error:
            raise _wrong(f"has {source[:40]!r}, which is refused: {error}", line) from error
        self._sets.add(source)
        if len(self._sets) > MAX_SETS:
            raise _wrong(f"has more than {MAX_SETS} sets of characters", line)
        if not special:
            return f"/{source}/{case}"
        escaped = (_character(c) for c in special if c in _ESCAPED)
        return f"({' | '.join((f'/[{source}&&{_PLAIN}]/{case}', *escaped))})"


def _character(character: str) -> str:
    """A character as JSON writes it."""
    return literal(json.dumps(character, ensure_ascii=False)[1:-1])


def _wrong(reason: str, line: int) -> InvalidRequestError:
    place = f" in line {line}" if line else ""
    return InvalidRequestError(f"The Lark grammar {reason}{place}.")
