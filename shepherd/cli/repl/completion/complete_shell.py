"""Completion of programs and paths in lines that begin with `!`."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import Completion

MAX_COMPLETIONS = 50
MAX_SCANNED = 5000
"""Directory entries that are read for one completion, in each directory."""

_WORD = re.compile(r"(?:\\.|[^\s\\|;&()<>])*$")
_COMMAND_FOLLOWS = re.compile(r"(?:^|[|;&(])\s*$")


def shell_completions(cwd: Path, text: str) -> Iterator[Completion]:
    """Completions of the last word of a shell line: a program, else a path."""
    match = _WORD.search(text)
    word = match[0] if match else ""
    is_program = _COMMAND_FOLLOWS.search(text[: len(text) - len(word)]) is not None
    if is_program and "/" not in word:
        names = islice(programs(word), MAX_COMPLETIONS) if word else ()
        yield from (Completion(name, -len(word)) for name in names)
    else:
        yield from islice(_paths(cwd, word), MAX_COMPLETIONS)


def programs(prefix: str) -> Iterator[str]:
    """The names of the programs on the PATH that begin with `prefix`."""
    names: set[str] = set()
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        for entry in _scan(Path(directory or ".")):
            if entry.name.startswith(prefix) and os.access(entry.path, os.X_OK):
                names.add(entry.name)
    yield from sorted(names)


def _paths(cwd: Path, word: str) -> Iterator[Completion]:
    typed = re.sub(r"\\(.)", r"\1", word)
    folder, _, start = typed.rpartition("/")
    prefix = typed[: len(typed) - len(start)]
    base = cwd / Path(folder or ("/" if prefix else ".")).expanduser()
    for entry in _scan(base):
        is_hidden = entry.name.startswith(".") and not start
        if not entry.name.startswith(start) or is_hidden or not entry.name.isprintable():
            continue
        end = "/" if entry.is_dir() else ""
        name = f"{entry.name}{end}"
        yield Completion(_escaped(prefix + name), -len(word), name)


def _escaped(path: str) -> str:
    """The path as one word of a shell line."""
    head = "~" if path.startswith("~/") else ""
    return head + re.sub(r"([^\w@%+=:,./~-])", r"\\\1", path[len(head) :])


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_SCANNED), key=lambda entry: entry.name)
    except OSError:
        return []
