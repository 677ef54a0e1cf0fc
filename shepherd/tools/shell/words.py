"""Reads one word of a shell line: quotes, escapes, expansions."""

import re
from collections.abc import Callable

from shepherd.tools.shell.syntax import UnreadableError, Word

META = frozenset(" \t\n;&|()<>")
_NAME = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*_-])")
_BRACED = re.compile(r"\$\{[^{}$`'\"\\\n()<>]*\}")
_BRACE_SEPARATOR = re.compile(r",|\.\.")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_INNER_TILDE = re.compile(r"[=:]~")
_QUOTED = "\0"
_ODD_BYTES = frozenset({0x85, 0xA0})
"""Whitespace in some encodings; macOS treats them as whitespace also within UTF-8."""

_BEHIND_DOLLAR = frozenset(" \t\n;&|).,/:%=+^~]")
"""The characters that may follow a literal `$`."""


def _has_braces(outline: str) -> bool:
    """Whether the text has a brace, later a comma or `..`, and later a closing brace."""
    start = outline.find("{")
    separator = _BRACE_SEPARATOR.search(outline, start) if start != -1 else None
    return separator is not None and outline.rfind("}") > separator.start()


class Cursor:
    """A position in a line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The character at the position, "" at the end."""
        return self.text[self.at + ahead : self.at + ahead + 1]

    def starts(self, prefix: str) -> bool:
        """Whether `prefix` comes next."""
        return self.text.startswith(prefix, self.at)

    def skip_whitespace(self) -> None:
        """Skip spaces, tabs, and a line continuation after one of them."""
        while True:
            if self.peek() in (" ", "\t"):
                self.at += 1
            elif self.starts("\\\n") and self.text[: self.at].endswith((" ", "\t")):
                self.at += 2
            else:
                return


class WordReader:
    """Reads the word at a cursor.

    `nested` parses a substitution: its text argument or, for None, the text from the cursor up
    to the closing bracket.
    """

    def __init__(self, cursor: Cursor, nested: Callable[[str | None], None]) -> None:
        self._cursor = cursor
        self._nested = nested
        self._text = ""
        self._outline = ""  # the text with each quoted character as NUL
        self._dynamic = False
        self._plain_length: int | None = None  # the text before the first quote

    def read(self) -> Word:
        """The word; an empty one if there is none. Raises UnreadableError."""
        cursor = self._cursor
        while (char := cursor.peek()) and not self._ends(char):
            if char == "'":
                self._single()
            elif char == '"':
                self._double()
            elif char == "\\":
                self._escape()
            elif char in "$`<>":
                self._expansion(quoted=False)
            else:
                self._plain(char)
        return self._word()

    def _ends(self, char: str) -> bool:
        return char in META and not (char in "<>" and self._cursor.peek(1) == "(")

    def _word(self) -> Word:
        outline, plain = self._outline, self._outline[: self._plain_length]
        bare = self._plain_length is None
        tilde = plain.startswith("~/") or (bare and outline == "~")
        odd = outline.startswith("~") and not tilde
        odd = odd or _has_braces(outline) or bool(_INNER_TILDE.search(outline))
        glob = any(c in outline for c in "*?[")
        assignment = _ASSIGNMENT.match(plain) is not None
        return Word(self._text, self._dynamic or odd, glob, tilde, bare, outline, assignment)

    def _add(self, text: str, *, quoted: bool) -> None:
        if quoted and self._plain_length is None:
            self._plain_length = len(self._text)
        self._text += text
        self._outline += _QUOTED * len(text) if quoted else text

    def _plain(self, char: str) -> None:
        if not char.isascii() and not _ODD_BYTES.isdisjoint(char.encode()):
            raise UnreadableError("a character that some shells read as a space")
        self._add(char, quoted=False)
        self._cursor.at += 1

    def _single(self) -> None:
        end = self._cursor.text.find("'", self._cursor.at + 1)
        if end == -1:
            raise UnreadableError("a quote is not closed")
        self._add(self._cursor.text[self._cursor.at + 1 : end], quoted=True)
        self._cursor.at = end + 1

    def _double(self) -> None:
        cursor = self._cursor
        cursor.at += 1
        self._add("", quoted=True)
        while (char := cursor.peek()) != '"':
            if not char:
                raise UnreadableError("a quote is not closed")
            if char == "\\" and cursor.peek(1) and cursor.peek(1) in '$`"\\\n':
                self._escape()
            elif char in "$`":
                self._expansion(quoted=True)
            else:
                self._add(char, quoted=True)
                cursor.at += 1
        cursor.at += 1

    def _escape(self) -> None:
        char = self._cursor.peek(1)
        if char in ("", "\n"):
            raise UnreadableError("a line continued within a word")
        self._add(char, quoted=True)
        self._cursor.at += 2

    def _expansion(self, *, quoted: bool) -> None:
        cursor = self._cursor
        start = cursor.at
        if cursor.peek() == "`":
            self._backticks()
        elif cursor.peek(1) == "(":
            if cursor.starts("$(("):
                raise UnreadableError("arithmetic")
            cursor.at += 2
            self._nested(None)
        elif result := _NAME.match(cursor.text, cursor.at) or _BRACED.match(cursor.text, cursor.at):
            cursor.at = result.end()
        elif cursor.peek(1) in _BEHIND_DOLLAR or (quoted and cursor.peek(1) in ("'", '"')):
            self._add("$", quoted=True)
            cursor.at += 1
            return
        else:
            raise UnreadableError("an expansion")
        self._dynamic = True
        self._add(cursor.text[start : cursor.at], quoted=True)

    def _backticks(self) -> None:
        cursor = self._cursor
        end = cursor.text.find("`", cursor.at + 1)
        inner = cursor.text[cursor.at + 1 : end]
        if end == -1 or "\\" in inner:
            raise UnreadableError("backticks")
        self._nested(inner)
        cursor.at = end + 1
