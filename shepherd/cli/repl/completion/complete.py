"""Completion of slash commands, their arguments, `@file` paths and lines after `!`."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from shepherd.cli.repl.completion.complete_shell import shell_completions
from shepherd.cli.repl.completion.file_list import FileList, scan
from shepherd.tools.search.ignore import Ignored

MAX_COMPLETIONS = 50
Offers: TypeAlias = tuple[list[tuple[str, str]], list[str]]


def no_offers() -> Offers:
    """The offers of no server."""
    return [], []


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


class PromptCompleter(Completer):
    """Offers commands on a line that begins with a slash, and files after an @.

    On a line that begins with `!`, it offers programs and paths.
    `offers` returns the prompts of MCP servers with their descriptions, and their resources.
    """

    def __init__(
        self, commands: Iterable[CommandEntry], cwd: Path, offers: Callable[[], Offers] = no_offers
    ) -> None:
        self._commands = commands
        self._cwd = cwd
        self._offers = offers
        self._list = FileList(cwd)

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
        for prompt, summary in () if space else self._offers()[0]:
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
        names = [name for name in self._offers()[1] if ":" in typed and name.startswith(typed)]
        yield from (Completion(n, -len(typed)) for n in names[:MAX_COMPLETIONS] if " " not in n)

    def _files(self, typed: str, *, quoted: bool) -> Iterator[Completion]:
        for name in islice(self._find(typed), MAX_COMPLETIONS):
            if any(not c.isprintable() or c == '"' for c in name):
                continue
            if " " in name or quoted:
                close = "" if name.endswith("/") else '"'
                back = len(typed) + (1 if quoted else 0)
                yield Completion(f'"{name}{close}', -back, name)
            else:
                yield Completion(name, -len(typed), name)

    def _find(self, typed: str) -> Iterator[str]:
        """Entries that begin with `typed`, then similar files of subdirectories."""
        directory, _, start = typed.rpartition("/")
        prefix = typed[: len(typed) - len(start)]
        base = (self._cwd / Path(directory or ("/" if prefix else ".")).expanduser()).resolve()
        ignored = Ignored(base)
        seen: set[str] = set()
        for entry in scan(base):
            is_dir = entry.is_dir()
            name = prefix + entry.name + ("/" if is_dir else "")
            is_hidden = entry.name[0] == "." and not start
            is_match = entry.name.lower().startswith(start.lower()) and not is_hidden
            if is_match and not ignored.has(entry.name, is_dir=is_dir):
                seen.add(name)
                yield name
        if len(start) > 1 and not (prefix and seen):
            yield from (path for path in self._list.ranked(typed) if path not in seen)


def _next_words(choices: Iterable[str], typed: int) -> list[str]:
    """The choices up to the end of word number `typed`, each once."""
    ends = ((choice, choice.find(" ", typed)) for choice in choices)
    return list(dict.fromkeys(choice if end < 0 else choice[:end] for choice, end in ends))
