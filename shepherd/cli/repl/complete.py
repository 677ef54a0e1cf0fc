"""Completion of slash commands, their arguments, `@file` paths and lines after `!`."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from shepherd.cli.repl.complete_shell import shell_completions

MAX_SCANNED = 5000
"""Directory entries that are read for one completion."""
MAX_COMPLETIONS = 50
MAX_DEPTH = 4
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})

_MENTION = re.compile(r'(?:^|(?<=\s))@("?)([^\s"]*|(?<=@")[^"]*)$')


class CommandEntry(Protocol):
    """The interface of commands for completion."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def choices(self) -> Callable[[], Iterable[str]] | None: ...
    @property
    def by_words(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _PathMatch:
    path: str
    is_dir: bool


class PromptCompleter(Completer):
    """Offers commands on a line that begins with a slash, and files after an @.

    On a line that begins with `!`, it offers programs and paths.
    `prompts` and `resources` are those of MCP servers.
    """

    def __init__(self, commands: Iterable[CommandEntry], cwd: Path) -> None:
        self._commands = commands
        self._cwd = cwd
        self.prompts: Callable[[], Iterable[tuple[str, str]]] = tuple
        self.resources: Callable[[], Iterable[str]] = tuple

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        """Completions for the text before the cursor."""
        text = document.text_before_cursor
        mention = _MENTION.search(text)
        if text.startswith("!"):
            yield from shell_completions(self._cwd, text.lstrip("!"))
        elif mention:
            yield from self._resources(mention.group(2))
            yield from self._files(mention.group(2), quoted=bool(mention.group(1)))
        elif text.startswith("/") and "\n" not in text:
            yield from self._slash(text[1:])

    def _slash(self, text: str) -> Iterator[Completion]:
        name, space, argument = text.partition(" ")
        for prompt, summary in () if space else self.prompts():
            if prompt.startswith(name) and name:
                yield Completion(prompt, -len(name), f"/{prompt}", display_meta=summary)
        for command in self._commands:
            if not space and command.name.startswith(name):
                yield Completion(
                    command.name, -len(name), f"/{command.name}", display_meta=command.summary
                )
            elif space and command.name == name and command.choices is not None:
                choices = command.choices()
                fitting = [choice for choice in choices if choice.startswith(argument)]
                if command.by_words:
                    fitting = _next_words(fitting, len(argument))
                yield from (Completion(choice, -len(argument)) for choice in fitting)

    def _resources(self, typed: str) -> Iterator[Completion]:
        """The resources of MCP servers, once a server's name is typed."""
        names = [name for name in self.resources() if ":" in typed and name.startswith(typed)]
        yield from (Completion(n, -len(typed)) for n in names[:MAX_COMPLETIONS] if " " not in n)

    def _files(self, typed: str, *, quoted: bool) -> Iterator[Completion]:
        for match in islice(find_files(self._cwd, typed), MAX_COMPLETIONS):
            name = match.path + ("/" if match.is_dir else "")
            if any(not c.isprintable() or c == '"' for c in name):
                continue
            if " " in name or quoted:
                close = "" if match.is_dir else '"'
                back = len(typed) + (1 if quoted else 0)
                yield Completion(f'"{name}{close}', -back, name)
            else:
                yield Completion(name, -len(typed), name)


def _next_words(choices: Iterable[str], typed: int) -> list[str]:
    """The choices up to the end of word number `typed`, each once."""
    ends = ((choice, choice.find(" ", typed)) for choice in choices)
    return list(dict.fromkeys(choice if end < 0 else choice[:end] for choice, end in ends))


def find_files(cwd: Path, typed: str) -> Iterator[_PathMatch]:
    """Files whose name begins with `typed`, then files in subdirectories that contain it."""
    directory, _, start = typed.rpartition("/")
    prefix = typed[: len(typed) - len(start)]
    base = (cwd / Path(directory or ("/" if prefix else ".")).expanduser()).resolve()
    seen: set[str] = set()
    for entry in _scan(base):
        if entry.name.lower().startswith(start.lower()) and (start or entry.name[0] != "."):
            seen.add(entry.name)
            yield _PathMatch(prefix + entry.name, entry.is_dir())
    if len(start) > 1 and not prefix:
        yield from (f for f in _walk(base, start.lower()) if f.path not in seen)


def _walk(base: Path, part: str) -> Iterator[_PathMatch]:
    budget = MAX_SCANNED
    level = [""]
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for directory in level:
            for entry in _scan(base / directory):
                budget -= 1
                if budget < 0:
                    return
                if entry.name[0] == "." or entry.name in SKIPPED:
                    continue
                path = f"{directory}{entry.name}"
                is_dir = entry.is_dir(follow_symlinks=False)
                if part in entry.name.lower():
                    yield _PathMatch(path, is_dir)
                if is_dir:
                    below.append(path + "/")
        level = below


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_SCANNED), key=lambda e: e.name)
    except OSError:
        return []
