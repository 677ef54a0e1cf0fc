"""What a command touches: each command of the line, the files it names, those it redirects to."""

import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.pathglob import has_magic
from shepherd.tools.paths import resolve_path
from shepherd.tools.shell.split import split_line
from shepherd.tools.shell.syntax import Command, Direction, Redirect, UnreadableError, Word
from shepherd.tools.shell.wrappers import inner_commands, runs_code, runs_more

_CHANGES_PLACE = frozenset({"cd", "pushd", "popd"})
_CHANGES_SHELL = frozenset({"eval", "source", ".", "builtin", "command"})
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/zero"})
_TAKES_TEXT = frozenset({"cat", "tee", "grep", "wc", "head", "tail", "sort", "uniq", "cut", "tr"})
_MAX_GLOB = 500
_MAX_ACCESSES = 2000
_FRAGMENTS = re.compile(r"[=:,@]+")
_CODE_FRAGMENTS = re.compile(r"[\s'\"(){}\[\]<>;|&=:,@`$+]+")
_ROUGH = re.compile(r"[;&|\n(){}`]+|\$\(")


def line_accesses(line: str, cwd: Path) -> list[Access]:
    """What a line does that is given to a shell in `cwd`."""
    try:
        commands = split_line(line)
    except UnreadableError:
        return _limited([Access(AccessKind.SHELL, line, Claim.OPAQUE), *_rough(line, cwd)], line)
    if not commands:
        return [Access(AccessKind.SHELL, shlex.join([line]))]
    return _limited(_all(commands, cwd), line)


def argv_accesses(argv: Sequence[str], cwd: Path) -> list[Access]:
    """What a program does that is started with these words, without a shell."""
    command = Command([Word(word, bare=False) for word in argv])
    return _limited(_command(command, _Places(cwd)), shlex.join(argv))


def _all(commands: Iterable[Command], cwd: Path) -> Iterator[Access]:
    places = _Places(cwd)
    for command in commands:
        yield from _command(command, places)
        places.follow(command)


class _Places:
    """The directories in which the next command may run."""

    def __init__(self, cwd: Path) -> None:
        self._start = cwd
        self.all = [cwd]
        self.known = True

    def follow(self, command: Command) -> None:
        words = command.words
        program = words[0].text if words else ""
        if program in _CHANGES_SHELL:
            self.known = False
        if program not in _CHANGES_PLACE:
            return
        target = words[1] if len(words) == 2 else None
        if program != "cd" or target is None or not _is_plain(target):
            self.known = False
            return
        moved = {_resolved(target, place) for place in self.all}
        below = all(place and place.is_relative_to(self._start) for place in moved)
        if not below or target.text.startswith("-"):
            self.known = False
        self.all = sorted({*self.all, *(place for place in moved if place)})


def _command(command: Command, places: _Places) -> Iterator[Access]:
    words = [word.text for word in command.words]
    plain = places.known and _is_readable(command)
    if words and "/" in words[0] and not words[0].startswith("/") and len(places.all) > 1:
        plain = False
    if words and runs_more(words):
        plain = False
    claim = Claim.EXACT if plain else Claim.OPAQUE
    assignments = [word.text for word in command.assignments]
    if words or assignments:
        yield Access(AccessKind.SHELL, shlex.join([*assignments, *words]), claim)
    elif claim is Claim.OPAQUE:
        yield Access(AccessKind.SHELL, ">", claim)
    if words:
        yield from _mentioned_commands(words, places, itself=bool(assignments))
    for redirect in command.redirects:
        yield from _redirect(redirect, places)
    code = runs_code(words)
    for word in [*command.words, *command.assignments]:
        yield from _mentioned_files(word, places, code=code)


def _is_readable(command: Command) -> bool:
    words = [*command.words, *command.assignments]
    if any(word.dynamic for word in words):
        return False
    if command.words and (command.words[0].glob or command.words[0].tilde):
        return False
    if any(_is_wide_glob(word) for word in words):
        return False
    if command.fed and (not command.words or command.words[0].text not in _TAKES_TEXT):
        return False
    return all(_is_plain(redirect.target) for redirect in command.redirects)


def _is_plain(word: Word) -> bool:
    return not word.dynamic and not word.glob


def _is_wide_glob(word: Word) -> bool:
    """Whether expanding the word could mean to walk half the disk."""
    return word.glob and sum(map(has_magic, word.text.split("/"))) > 2


def _mentioned_commands(words: list[str], places: _Places, *, itself: bool) -> Iterator[Access]:
    if itself:
        yield Access(AccessKind.SHELL, shlex.join(words), Claim.MENTION)
    for inner in inner_commands(words):
        if isinstance(inner, str):
            for access in line_accesses(inner, places.all[0]):
                yield Access(access.kind, access.target, Claim.MENTION)
        else:
            yield Access(AccessKind.SHELL, shlex.join(inner), Claim.MENTION)


def _redirect(redirect: Redirect, places: _Places) -> Iterator[Access]:
    if redirect.target.text in _HARMLESS_TARGETS:
        return
    for place in places.all:
        path = _resolved(redirect.target, place)
        if path is None:
            continue
        if redirect.direction is not Direction.WRITE:
            yield Access(AccessKind.READ, str(path))
        if redirect.direction is not Direction.READ:
            yield Access(AccessKind.WRITE, str(path))


def _mentioned_files(word: Word, places: _Places, *, code: bool) -> Iterator[Access]:
    for place in places.all:
        names = [word.text, *_fragments(word.text, code=code)]
        if word.glob and not word.dynamic and not _is_wide_glob(word):
            names += _expanded(word.text, place)
        yield from _mentions(names, place)


def _fragments(text: str, *, code: bool) -> list[str]:
    if code:
        return _CODE_FRAGMENTS.split(text)
    if " " in text or "\n" in text:
        return []
    short_option = [text[2:]] if re.match(r"-[A-Za-z].", text) else []
    parts = _FRAGMENTS.split(text)
    return [*short_option, *(parts if len(parts) > 1 else [])]


def _expanded(text: str, place: Path) -> Iterable[str]:
    pattern = os.path.expanduser(text)  # noqa: PTH111 - a glob, not a path
    return islice(glob.iglob(pattern, root_dir=place, include_hidden=False), _MAX_GLOB)  # noqa: PTH207


def _mentions(names: Iterable[str], place: Path) -> Iterator[Access]:
    for name in names:
        path = _resolved(Word(name, tilde=True), place) if name else None
        if path is not None:
            yield Access(AccessKind.READ, str(path), Claim.MENTION)


def _resolved(word: Word, place: Path) -> Path | None:
    text = word.text if word.tilde or not word.text.startswith("~") else f"./{word.text}"
    try:
        return resolve_path(text, place)
    except ToolError:
        return None


def _rough(line: str, cwd: Path) -> Iterator[Access]:
    """What an unreadable line might do, for the rules that deny."""
    for part in _ROUGH.split(line):
        words = [word.strip("'\"") for word in part.split()]
        for start in range(min(len(words), 4)):
            yield Access(AccessKind.SHELL, shlex.join(words[start:]), Claim.MENTION)
    yield from _mentions(_CODE_FRAGMENTS.split(line), cwd)


def _limited(found: Iterable[Access], line: str) -> list[Access]:
    accesses = list(dict.fromkeys(islice(found, _MAX_ACCESSES)))
    if len(accesses) >= _MAX_ACCESSES:
        accesses.append(Access(AccessKind.SHELL, line, Claim.OPAQUE))
    return accesses
