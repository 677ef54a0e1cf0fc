"""Splits a shell line into its simple commands.

Supported: quotes, `;`, `&`, `&&`, `||`, pipes, newlines, subshells, command and process
substitution, redirections, here-documents, comments. Other syntax (loops, functions, arithmetic,
`case`, arrays …) raises UnreadableError. So does syntax that bash and other shells could read
differently, because a needless question is better than a wrong reading.
"""

import codecs
import locale
import re
from collections.abc import Callable

from msgspec import Struct

from shepherd.tools.shell.syntax import Command, Direction, Redirect, UnreadableError, Word

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
    """Whether a shell may expand braces, as in `{a,b}` and `{1..9}`; rather too often."""
    start = outline.find("{")
    separator = _BRACE_SEPARATOR.search(outline, start) if start != -1 else None
    return separator is not None and outline.rfind("}") > separator.start()


class Cursor(Struct):
    """A position in a line."""

    text: str
    at: int = 0

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


class WordReader(Struct):
    """Reads the word at a cursor.

    `nested` parses a substitution: its text argument or, for None, the text from the cursor up
    to the closing bracket.
    """

    cursor: Cursor
    nested: Callable[[str | None], None]
    _text: str = ""
    _outline: str = ""  # the text with each quoted character as NUL
    _is_dynamic: bool = False
    _plain_length: int | None = None  # of the text before the first quote

    def read(self) -> Word:
        """The word; an empty one if there is none. Raises UnreadableError."""
        cursor = self.cursor
        while (char := cursor.peek()) and not self._ends(char):
            if char == "'":
                self._read_single_quotes()
            elif char == '"':
                self._read_double_quotes()
            elif char == "\\":
                self._read_escape()
            elif char in "$`<>":
                self._read_expansion(quoted=False)
            else:
                self._read_plain(char)
        return self._word()

    def _ends(self, char: str) -> bool:
        # `<(` and `>(` begin a process substitution, which is part of a word
        return char in META and not (char in "<>" and self.cursor.peek(1) == "(")

    def _word(self) -> Word:
        """What was read as a word; only unquoted characters (those of the outline) are special."""
        outline, plain = self._outline, self._outline[: self._plain_length]
        bare = self._plain_length is None
        # `~/x` and `~` are the home directory; `~user` and `a=~` may be others
        tilde = plain.startswith("~/") or (bare and outline == "~")
        other_tilde = (outline.startswith("~") and not tilde) or _INNER_TILDE.search(outline)
        return Word(
            self._text,
            dynamic=self._is_dynamic or bool(other_tilde) or _has_braces(outline),
            glob=any(c in outline for c in "*?["),
            tilde=tilde,
            bare=bare,
            outline=outline,
            assignment=_ASSIGNMENT.match(plain) is not None,
        )

    def _add(self, text: str, *, quoted: bool) -> None:
        """Add text to the word, and as many characters to its outline."""
        if quoted and self._plain_length is None:
            self._plain_length = len(self._text)
        self._text += text
        self._outline += _QUOTED * len(text) if quoted else text

    def _read_plain(self, char: str) -> None:
        """Read an unquoted character without a special meaning."""
        if not char.isascii() and not _ODD_BYTES.isdisjoint(char.encode()):
            raise UnreadableError("a character that some shells read as a space")
        self._add(char, quoted=False)
        self.cursor.at += 1

    def _read_single_quotes(self) -> None:
        """Read `'text'`, in which no character is special."""
        end = self.cursor.text.find("'", self.cursor.at + 1)
        if end == -1:
            raise UnreadableError("a quote is not closed")
        self._add(self.cursor.text[self.cursor.at + 1 : end], quoted=True)
        self.cursor.at = end + 1

    def _read_double_quotes(self) -> None:
        """Read `"text"`, in which expansions and some escapes count."""
        cursor = self.cursor
        cursor.at += 1
        self._add("", quoted=True)  # also empty quotes make the word a quoted one
        while (char := cursor.peek()) != '"':
            if not char:
                raise UnreadableError("a quote is not closed")
            if char == "\\" and cursor.peek(1) and cursor.peek(1) in '$`"\\\n':
                self._read_escape()  # before other characters, a backslash stands for itself
            elif char in "$`":
                self._read_expansion(quoted=True)
            else:
                self._add(char, quoted=True)
                cursor.at += 1
        cursor.at += 1

    def _read_escape(self) -> None:
        r"""Read `\x`, a quoted `x`."""
        char = self.cursor.peek(1)
        if char in ("", "\n"):
            raise UnreadableError("a line continued within a word")
        self._add(char, quoted=True)
        self.cursor.at += 2

    def _read_expansion(self, *, quoted: bool) -> None:
        """A variable or a substitution, whose commands are parsed too; or a `$` for itself."""
        cursor = self.cursor
        start = cursor.at
        variable = _NAME.match(cursor.text, start) or _BRACED.match(cursor.text, start)
        if cursor.peek() == "`":
            self._read_backticks()
        elif cursor.peek(1) == "(":
            if cursor.starts("$(("):
                raise UnreadableError("arithmetic")
            cursor.at += 2
            self.nested(None)
        elif variable is not None:
            cursor.at = variable.end()
        elif cursor.peek(1) in _BEHIND_DOLLAR or (quoted and cursor.peek(1) in ("'", '"')):
            self._add("$", quoted=True)
            cursor.at += 1
            return
        else:
            raise UnreadableError("an expansion")
        self._is_dynamic = True
        # its value is unknown, so the text of it counts as quoted: nothing in it is a wildcard
        self._add(cursor.text[start : cursor.at], quoted=True)

    def _read_backticks(self) -> None:
        """Read a command in backticks, and parse it too."""
        cursor = self.cursor
        end = cursor.text.find("`", cursor.at + 1)
        inner = cursor.text[cursor.at + 1 : end]
        if end == -1 or "\\" in inner:  # a backslash may nest backticks, or quote for either level
            raise UnreadableError("backticks")
        self.nested(inner)
        cursor.at = end + 1


_KEYWORDS = """
if then elif else fi for in do done while until case esac select function { } [[ ]] coproc ! time
"""
_RESERVED = frozenset(_KEYWORDS.split())
_OPERATOR = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||>|<")
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_DUPLICATE = re.compile(r"[0-9]|-")
_EXPANDED_TWICE = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")
"""Safe targets of `>&`: bash expands the target again, so `>& '$(date)'` runs `date`."""

_DESCRIPTOR = re.compile(r"[0-9]+|.*\}", re.DOTALL)
"""A descriptor before `<` or `>`: a number, or `{name}`, a variable that bash sets."""

_DIGITS = frozenset("0123456789")
_DELIMITER = re.compile(r"[A-Za-z0-9_]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]|[^\S \t\n]")
_ENCODINGS = frozenset({"ascii", "utf-8", "iso8859-1", "iso8859-15"})
"""In other encodings, a quote or a backslash may be a part of a longer character."""

_MAX_DEPTH = 20
_MAX_LENGTH = 50_000


def split_line(text: str) -> list[Command]:
    """All simple commands of the line; those of a substitution come before the command around it.

    Raises UnreadableError.
    """
    if len(text) > _MAX_LENGTH:
        raise UnreadableError("too long")
    if _UNPRINTABLE.search(text):
        raise UnreadableError("a control character")
    # in other encodings, a quote may be a part of a longer character
    if not text.isascii() and codecs.lookup(locale.getencoding()).name not in _ENCODINGS:
        raise UnreadableError("a character outside of ASCII")
    commands: list[Command] = []
    _Parser(Cursor(text), commands, 0).parse(until="")
    return commands


class _Parser:
    """Reads the commands between two brackets, or of the whole line, into `commands`."""

    def __init__(
        self, cursor: Cursor, commands: list[Command], depth: int, *, piped: bool = False
    ) -> None:
        if depth > _MAX_DEPTH:
            raise UnreadableError("nested too deep")
        self._cursor = cursor
        self._commands = commands
        self._depth = depth
        # the delimiter of each here-document that begins after this line, and whether it is `<<-`
        self._heredocs: list[tuple[Word, bool]] = []
        self._all_piped = piped  # a pipe before the bracket feeds all commands inside
        self._next_piped = piped

    def parse(self, until: str) -> None:
        """Read commands up to the bracket `until`, or to the end of the text."""
        cursor = self._cursor
        while True:
            cursor.skip_whitespace()
            char = cursor.peek()
            if char in ("", ")"):
                break
            self._read_next(char)
        if char != until:
            raise UnreadableError("brackets do not match")
        if self._heredocs:
            raise UnreadableError("here-document")
        cursor.at += len(until)

    def _read_next(self, char: str) -> None:
        """Read the command, separator or comment that begins with `char`."""
        cursor = self._cursor
        if char == "#":
            self._skip_comment()
        elif char == "\n":
            cursor.at += 1
            self._read_heredocs()
        elif char in ";|" or (char == "&" and cursor.peek(1) != ">"):
            self._read_separator(char)
        elif char == "(":
            self._read_subshell()
        elif char == "!" and cursor.peek(1) in (" ", "\t"):  # it only negates the exit code
            cursor.at += 1
        else:
            self._add(self._read_simple_command())

    def _skip_comment(self) -> None:
        """Skip the text up to the end of the line, where shells agree on what the end is."""
        end = self._cursor.text.find("\n", self._cursor.at)
        end = len(self._cursor.text) if end == -1 else end
        if self._cursor.text[:end].endswith("\\"):
            raise UnreadableError("a comment that ends with a backslash")
        self._cursor.at = end

    def _read_separator(self, char: str) -> None:
        """Read `;`, `&`, `&&`, `|`, `||` or `|&`; note whether it pipes into the next command."""
        if char == ";" and self._cursor.peek(1) in (";", "&"):
            raise UnreadableError("case")
        is_doubled = self._cursor.peek(1) == char
        self._next_piped = self._all_piped or (char == "|" and not is_doubled)
        self._cursor.at += 2 if is_doubled or self._cursor.starts("|&") else 1

    def _read_subshell(self) -> None:
        """Read the commands in brackets, and redirections of all of them after it."""
        if self._cursor.starts("(("):
            raise UnreadableError("arithmetic")
        if self._heredocs:  # their texts would begin inside of the brackets
            raise UnreadableError("here-document")
        self._cursor.at += 1
        self._parse_nested(None, piped=self._next_piped)
        self._next_piped = self._all_piped
        after = self._read_simple_command()
        if after.words or after.assignments:
            raise UnreadableError("a word after a subshell")
        if after.fed or any(r.direction is not Direction.WRITE for r in after.redirects):
            raise UnreadableError("a subshell that reads")
        if after.redirects:
            self._commands.append(after)

    def _parse_nested(self, inner: str | None, *, piped: bool = False) -> None:
        """Parse the text in brackets: `inner`, or the text at the cursor."""
        cursor = self._cursor if inner is None else Cursor(inner)
        parser = _Parser(cursor, self._commands, self._depth + 1, piped=piped)
        parser.parse(until=")" if inner is None else "")

    def _read_simple_command(self) -> Command:
        """The words and redirections up to a separator; an empty command if there are none."""
        command = Command()
        cursor = self._cursor
        while True:
            cursor.skip_whitespace()
            char = cursor.peek()
            if char in ("", "\n", ";", "|", ")") or (char == "&" and cursor.peek(1) != ">"):
                return command
            if char == "#":
                self._skip_comment()
            elif char == "(":
                raise UnreadableError("a function or an array")
            elif char == "&" or (char in "<>" and cursor.peek(1) != "("):
                self._add_redirect(command)
            else:
                self._add_word(command)

    def _add_word(self, command: Command) -> None:
        """Add the next word to the command, or the redirection whose descriptor it is (`2>`)."""
        word = self._read_word()
        if word.bare and self._cursor.peek() in ("<", ">") and _DESCRIPTOR.fullmatch(word.text):
            if word.text not in _DIGITS:  # shells differ in longer numbers
                raise UnreadableError("a redirection")
            self._add_redirect(command)
        elif not command.words and word.bare and word.text in _RESERVED:
            raise UnreadableError(f"the keyword {word.text}")
        elif not command.words and _SUBSCRIPT.match(word.outline):  # `x[$(date)]=1` runs `date`
            raise UnreadableError("a subscript")
        elif not command.words and word.assignment:
            command.assignments.append(word)
        elif command.detached:
            raise UnreadableError("a word after &>")
        else:
            command.words.append(word)

    def _read_word(self) -> Word:
        """The word at the cursor; commands of its substitutions are added to the line's."""
        start = self._cursor.at
        word = WordReader(self._cursor, self._parse_nested).read()
        # shells differ in where the document begins after such a word
        if self._heredocs and "\n" in self._cursor.text[start : self._cursor.at]:
            raise UnreadableError("here-document")
        return word

    def _add_redirect(self, command: Command) -> None:
        """Add the redirection at the cursor to the command; raises UnreadableError."""
        match = _OPERATOR.match(self._cursor.text, self._cursor.at)
        if match is None:
            raise UnreadableError("a redirection")
        operator = match[0]
        command.detached = command.detached or operator.startswith("&>")
        self._cursor.at = match.end()
        self._cursor.skip_whitespace()
        start = self._cursor.at
        target = self._read_word()
        # where a target is missing, a comment may follow
        if self._cursor.at == start or self._cursor.text[start] == "#":
            raise UnreadableError("a redirection without a target")
        if operator in ("<<", "<<-"):
            if target.dynamic or not _DELIMITER.fullmatch(target.text):
                raise UnreadableError("here-document")
            command.fed = True
            self._heredocs.append((target, operator == "<<-"))
        elif operator == "<<<":
            command.fed = True  # with a text and no file, which may still depend on a variable
            command.redirects.append(Redirect(Direction.READ, Word("/dev/null", target.dynamic)))
        elif operator in (">&", "<&") and target.bare and _DUPLICATE.fullmatch(target.text):
            return  # it copies or closes a descriptor, and opens no file
        elif operator == "<&" or (
            operator == ">&" and not _EXPANDED_TWICE.fullmatch(target.outline)
        ):
            raise UnreadableError("a redirection")
        else:
            command.redirects.append(Redirect(_DIRECTIONS.get(operator, Direction.WRITE), target))

    def _read_heredocs(self) -> None:
        """Skip the texts of the here-documents that begin at this place, in their order."""
        for delimiter, tabs in self._heredocs:
            self._read_heredoc(delimiter, strip_tabs=tabs)
        self._heredocs.clear()

    def _read_heredoc(self, delimiter: Word, *, strip_tabs: bool) -> None:
        """Skip the lines up to the delimiter; the shell expands them unless it is quoted."""
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
        """Keep a command that is not empty; the pipe before it feeds only this one."""
        if command.words or command.assignments or command.redirects or command.fed:
            command.piped, self._next_piped = self._next_piped, self._all_piped
            self._commands.append(command)


_DIRECTIONS = {"<": Direction.READ, "<>": Direction.BOTH}
