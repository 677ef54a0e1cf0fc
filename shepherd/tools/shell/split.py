"""Taking a shell line apart into its simple commands.

Understood: quotes, `;`, `&`, `&&`, `||`, pipes, newlines, subshells, command and process
substitution, redirections, here-documents, comments. What else there is in the shell's language
(loops, functions, arithmetic, `case`, arrays …) raises UnreadableError: better to ask once too
often than to misread once.
"""

import re

from shepherd.tools.shell.syntax import Command, Direction, Redirect, UnreadableError, Word
from shepherd.tools.shell.words import Cursor, WordReader

_KEYWORDS = """
if then elif else fi for in do done while until case esac select function { } [[ ]] coproc
"""
_RESERVED = frozenset(_KEYWORDS.split())
_OPERATOR = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||>|<")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_DUPLICATE = re.compile(r"[0-9]*-?")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|[^\S \t\n]")
_MAX_DEPTH = 20
_MAX_LENGTH = 50_000


def split_line(text: str) -> list[Command]:
    """All simple commands of the line, those of substitutions before the one that uses them.

    Raises UnreadableError.
    """
    if len(text) > _MAX_LENGTH:
        raise UnreadableError("too long")
    if _UNPRINTABLE.search(text):
        raise UnreadableError("a control character")
    commands: list[Command] = []
    _Parser(Cursor(text), commands, 0).parse(until="")
    return commands


class _Parser:
    def __init__(self, cursor: Cursor, commands: list[Command], depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise UnreadableError("nested too deep")
        self._cursor = cursor
        self._commands = commands
        self._depth = depth
        self._heredocs: list[tuple[Word, bool]] = []

    def parse(self, until: str) -> None:
        """Read commands up to the bracket `until`, or to the end of the text."""
        cursor = self._cursor
        while True:
            cursor.skip_blanks()
            char = cursor.peek()
            if char in ("", ")"):
                break
            self._statement(char)
        if char != until or self._heredocs:
            raise UnreadableError("brackets do not match" if char != until else "here-document")
        cursor.at += len(until)

    def _statement(self, char: str) -> None:
        cursor = self._cursor
        if char == "#":
            self._comment()
        elif char == "\n":
            cursor.at += 1
            self._read_heredocs()
        elif char in ";|" or (char == "&" and cursor.peek(1) != ">"):
            self._separator(char)
        elif char == "(":
            self._subshell()
        elif char == "!" and cursor.peek(1) in (" ", "\t"):
            cursor.at += 1
        else:
            self._add(self._simple())

    def _comment(self) -> None:
        end = self._cursor.text.find("\n", self._cursor.at)
        self._cursor.at = len(self._cursor.text) if end == -1 else end

    def _separator(self, char: str) -> None:
        if char == ";" and self._cursor.peek(1) in (";", "&"):
            raise UnreadableError("case")
        self._cursor.at += 2 if self._cursor.peek(1) == char or self._cursor.starts("|&") else 1

    def _subshell(self) -> None:
        if self._cursor.starts("(("):
            raise UnreadableError("arithmetic")
        self._cursor.at += 1
        self._nested(None)
        after = self._simple()
        if after.words or after.assignments:
            raise UnreadableError("a word behind a subshell")
        if after.redirects:
            self._commands.append(after)

    def _nested(self, inner: str | None) -> None:
        """Parse what stands in brackets: `inner`, or what follows at the cursor."""
        cursor = self._cursor if inner is None else Cursor(inner)
        parser = _Parser(cursor, self._commands, self._depth + 1)
        parser.parse(until=")" if inner is None else "")

    def _simple(self) -> Command:
        command = Command()
        cursor = self._cursor
        while True:
            cursor.skip_blanks()
            char = cursor.peek()
            if char in ("", "\n", ";", "|", ")") or (char == "&" and cursor.peek(1) != ">"):
                return command
            if char == "#":
                self._comment()
            elif char == "(":
                raise UnreadableError("a function or an array")
            elif char == "&" or (char in "<>" and cursor.peek(1) != "("):
                self._redirect(command)
            else:
                self._word(command)

    def _word(self, command: Command) -> None:
        word = self._read_word()
        if word.bare and word.text.isdigit() and self._cursor.peek() in ("<", ">"):
            self._redirect(command)
        elif not command.words and word.bare and word.text in _RESERVED:
            raise UnreadableError(f"the keyword {word.text}")
        elif not command.words and _ASSIGNMENT.match(word.text):
            command.assignments.append(word)
        else:
            command.words.append(word)

    def _read_word(self) -> Word:
        return WordReader(self._cursor, self._nested).read()

    def _redirect(self, command: Command) -> None:
        found = _OPERATOR.match(self._cursor.text, self._cursor.at)
        if found is None:
            raise UnreadableError("a redirection")
        operator = found[0]
        self._cursor.at = found.end()
        self._cursor.skip_blanks()
        start = self._cursor.at
        target = self._read_word()
        if self._cursor.at == start:
            raise UnreadableError("a redirection without a target")
        if operator in ("<<", "<<-"):
            command.fed = True
            self._heredocs.append((target, operator == "<<-"))
        elif operator == "<<<":
            command.fed = True
            command.redirects.append(Redirect(Direction.READ, Word("/dev/null", target.dynamic)))
        elif operator in (">&", "<&") and _DUPLICATE.fullmatch(target.text):
            return
        elif operator == "<&":
            raise UnreadableError("a redirection")
        else:
            command.redirects.append(Redirect(_DIRECTIONS.get(operator, Direction.WRITE), target))

    def _read_heredocs(self) -> None:
        for delimiter, tabs in self._heredocs:
            if delimiter.dynamic:
                raise UnreadableError("here-document")
            self._read_heredoc(delimiter, strip_tabs=tabs)
        self._heredocs.clear()

    def _read_heredoc(self, delimiter: Word, *, strip_tabs: bool) -> None:
        cursor = self._cursor
        while cursor.at < len(cursor.text):
            end = cursor.text.find("\n", cursor.at)
            end = len(cursor.text) if end == -1 else end
            line = cursor.text[cursor.at : end]
            cursor.at = min(end + 1, len(cursor.text))
            if (line.lstrip("\t") if strip_tabs else line) == delimiter.text:
                return
            if delimiter.bare and any(c in line for c in "$`\\"):
                raise UnreadableError("an expansion in a here-document")
        raise UnreadableError("here-document")

    def _add(self, command: Command) -> None:
        if command.words or command.assignments or command.redirects or command.fed:
            self._commands.append(command)


_DIRECTIONS = {"<": Direction.READ, "<>": Direction.BOTH}
