"""Reading one word of a shell line: quotes, escapes, expansions."""

import re
from collections.abc import Callable

from shepherd.tools.shell.syntax import UnreadableError, Word

META = frozenset(" \t\n;&|()<>")
_NAME = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9?$!#@*_-])")
_BRACED = re.compile(r"\$\{[^{}$`'\"\\\n()<>]*\}")
_BRACE_EXPANSION = re.compile(r"\{.*(?:,|\.\.).*\}", re.DOTALL)


class Cursor:
    """A place in a line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The character there, "" at the end."""
        return self.text[self.at + ahead : self.at + ahead + 1]

    def starts(self, prefix: str) -> bool:
        """Whether `prefix` comes next."""
        return self.text.startswith(prefix, self.at)

    def skip_blanks(self) -> None:
        """Pass spaces, tabs and continued lines."""
        while self.peek() in (" ", "\t") or self.starts("\\\n"):
            self.at += 2 if self.peek() == "\\" else 1


class WordReader:
    """Reads the word at a cursor.

    `nested` parses a substitution: the text it is given, or with None what follows at the cursor
    up to its closing bracket.
    """

    def __init__(self, cursor: Cursor, nested: Callable[[str | None], None]) -> None:
        self._cursor = cursor
        self._nested = nested
        self._text = ""
        self._outline = ""  # the text with every quoted character as "q"
        self._dynamic = False
        self._bare = True

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
                self._add(char, quoted=False)
                cursor.at += 1
        return self._word()

    def _ends(self, char: str) -> bool:
        return char in META and not (char in "<>" and self._cursor.peek(1) == "(")

    def _word(self) -> Word:
        outline = self._outline
        tilde = outline == "~" or outline.startswith("~/")
        odd = outline.startswith("~") and not tilde
        dynamic = self._dynamic or odd or bool(_BRACE_EXPANSION.search(outline))
        glob = any(c in outline for c in "*?[")
        return Word(self._text, dynamic, glob, tilde, self._bare, outline)

    def _add(self, text: str, *, quoted: bool) -> None:
        self._text += text
        self._outline += "q" * len(text) if quoted else text
        self._bare = self._bare and not quoted

    def _single(self) -> None:
        end = self._cursor.text.find("'", self._cursor.at + 1)
        if end == -1:
            raise UnreadableError("a quote is not closed")
        self._add(self._cursor.text[self._cursor.at + 1 : end], quoted=True)
        self._bare = False
        self._cursor.at = end + 1

    def _double(self) -> None:
        cursor = self._cursor
        cursor.at += 1
        self._bare = False
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
        if not char:
            raise UnreadableError("a backslash ends the line")
        if char != "\n":
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
        elif found := _NAME.match(cursor.text, cursor.at) or _BRACED.match(cursor.text, cursor.at):
            cursor.at = found.end()
        elif cursor.peek(1) in ("{", "[") or (not quoted and cursor.peek(1) in ("'", '"')):
            raise UnreadableError("an expansion")
        else:
            self._add("$", quoted=True)
            cursor.at += 1
            return
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
