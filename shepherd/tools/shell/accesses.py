"""The accesses of a shell line: its commands, the files they name, and its redirections."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.shell.doubts import is_doubtful, opens_file
from shepherd.tools.shell.places import Places, directory_accesses, named_words, resolved
from shepherd.tools.shell.programs import inner_commands, runs_code, writes_files
from shepherd.tools.shell.split import split_line
from shepherd.tools.shell.syntax import (
    Command,
    Direction,
    Redirect,
    UnreadableError,
    Word,
    command_text,
    expand_glob,
    literal,
)

_MAX_CLUSTER = 40
_FRAGMENTS = re.compile(r"[=:,@]+")
_CODE_FRAGMENTS = re.compile(r"[\s'\"(){}\[\]<>;|&=:,@`$+]+")
_SHORT_OPTION = re.compile(r"-[A-Za-z0-9]+")


def mentioned_files(word: Word, places: Places, *, code: bool, writes: bool) -> Iterator[Access]:
    """The files that a word may name; `code` if it may hold a program's text.

    They are also written if the program `writes` its arguments. Raises OverflowError if a
    wildcard matches too many files.
    """
    fragments = [word.text, *_fragments(word.text, code=code)]
    for place in places.all:
        names = [*fragments, *(expand_glob(word, place) if word.glob else ())]
        for access in _mentions(names, places, place):
            yield access
            if writes:
                yield replace(access, kind=AccessKind.WRITE)


def rough_mentions(text: str, place: Path) -> Iterator[Access]:
    """The files that a text which can't be parsed may name."""
    return _mentions(dict.fromkeys(_CODE_FRAGMENTS.split(text)), Places(place), place)


def _mentions(names: Iterable[str], places: Places, place: Path) -> Iterator[Access]:
    for name in names:
        path = places.file(name, place)
        if path is not None:
            yield Access(AccessKind.READ, str(path), Claim.MENTION)


def _fragments(text: str, *, code: bool) -> list[str]:
    if code:
        return _CODE_FRAGMENTS.split(text)
    if " " in text or "\n" in text:
        return []
    parts = _FRAGMENTS.split(text)
    return [*_attached_values(text), *(parts if len(parts) > 1 else [])]


def _attached_values(text: str) -> list[str]:
    """The possible values in `-sT.env`: the text after each letter of the cluster."""
    match = _SHORT_OPTION.match(text)
    end = min(match.end(), _MAX_CLUSTER) if match else 0
    return [text[start:] for start in range(2, end + 1) if start < len(text)]


_MAX_ACCESSES = 2000
_MAX_DISTINCT = 20_000
_MAX_CONSIDERED = 200_000
_MAX_LINES = 5
"""The maximum depth of nested lines (`sh -c "sh -c …"`)."""

_ROUGH = re.compile(r"[;&|\n(){}`]+|\$\(")


def line_accesses(line: str, cwd: Path, depth: int = 0) -> list[Access]:
    """The accesses of a line that a shell runs in `cwd`; `depth` counts the enclosing lines."""
    try:
        commands = split_line(line)
    except UnreadableError:
        commands = None
    if commands is None or depth > _MAX_LINES:
        return _limited([Access(AccessKind.SHELL, line, Claim.OPAQUE), *_rough(line, cwd)], line)
    if not commands:
        return [Access(AccessKind.SHELL, shlex.join([line]))]
    return _limited(_all(commands, cwd, depth), line)


def argv_accesses(argv: Sequence[str], cwd: Path) -> list[Access]:
    """The accesses of a program that is started with these words, without a shell."""
    command = Command([literal(word) for word in argv])
    return _limited(_command(command, Places(cwd), 0), shlex.join(argv))


def _all(commands: Sequence[Command], cwd: Path, depth: int) -> Iterator[Access]:
    places = Places(cwd, commands)
    for command in commands:
        yield from _command(command, places, depth)
        places.follow(command)


def _command(command: Command, places: Places, depth: int) -> Iterator[Access]:
    claim = Claim.OPAQUE if is_doubtful(command, places) else Claim.EXACT
    if command.words or command.assignments:
        text = command_text([*command.assignments, *command.words])
        yield Access(AccessKind.SHELL, text, claim, named_words(command, places))
    elif claim is Claim.OPAQUE:
        yield Access(AccessKind.SHELL, ">", claim)
    if command.words:
        yield from _inner(command, places, depth)
        yield from directory_accesses(command, places)
    for redirect in command.redirects:
        yield from _redirect(redirect, places)
    texts = [word.text for word in command.words]
    code, writes = runs_code(texts), writes_files(texts)
    for word in [*command.words, *command.assignments]:
        yield from mentioned_files(word, places, code=code, writes=writes)


def _inner(command: Command, places: Places, depth: int) -> Iterator[Access]:
    """The commands that a command runs in turn; a line that can't be parsed stays opaque."""
    if command.assignments:
        yield Access(AccessKind.SHELL, command_text(command.words), Claim.MENTION)
    for inner in inner_commands([word.text for word in command.words]):
        if isinstance(inner, str):
            for access in line_accesses(inner, places.all[0], depth + 1):
                claim = Claim.OPAQUE if access.claim is Claim.OPAQUE else Claim.MENTION
                yield Access(access.kind, access.target, claim)
        else:
            yield Access(AccessKind.SHELL, shlex.join(inner), Claim.MENTION)


def _redirect(redirect: Redirect, places: Places) -> Iterator[Access]:
    if not opens_file(redirect):
        return
    for place in places.all:
        path = resolved(redirect.target, place)
        if path is None:
            continue
        if redirect.direction is not Direction.WRITE:
            yield Access(AccessKind.READ, str(path))
        if redirect.direction is not Direction.READ:
            yield Access(AccessKind.WRITE, str(path))


def _rough(line: str, cwd: Path) -> Iterator[Access]:
    """The possible accesses of a line that can't be parsed, for the rules that deny."""
    for part in _ROUGH.split(line):
        words = [word.strip("'\"") for word in part.split()]
        for start in range(min(len(words), 4)):
            yield Access(AccessKind.SHELL, shlex.join(words[start:]), Claim.MENTION)
    yield from rough_mentions(line, cwd)


def _limited(accesses: Iterable[Access], line: str) -> list[Access]:
    """The accesses without duplicates; beyond the limit the line is opaque as a whole.

    They are counted before duplicates are removed, so that nothing uncounted can run unasked.
    Raises ToolError if they are too many to check even against the rules that deny.
    """
    distinct: dict[Access, None] = {}
    count = 0
    try:
        for count, access in enumerate(accesses, 1):
            distinct[access] = None
            if len(distinct) > _MAX_DISTINCT or count > _MAX_CONSIDERED:
                raise OverflowError("too many files and commands")
    except OverflowError as error:
        raise ToolError(f"the command has {error}; split it into several") from error
    if count > _MAX_ACCESSES:
        distinct[Access(AccessKind.SHELL, line, Claim.OPAQUE)] = None
    return list(distinct)
