"""Completion of commands, arguments, `@file` paths and lines after `!`, and its menu."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from shepherd.cli.terminal.attachments import resolved
from shepherd.conversation.commands.command import Command
from shepherd.own_programs import own_program
from shepherd.tools.program import git_paths

MAX_COMPLETIONS = 50
_MENTION = re.compile(r'(?:^|(?<=\s))@(?P<quote>"?)(?P<path>[^\s"]*|(?<=@")[^"]*)$')

Offers: TypeAlias = tuple[list[tuple[str, str]], list[str]]
"""The prompts of MCP servers, each with its description, and the names of their resources."""


def no_offers() -> Offers:
    """The offers of no server."""
    return [], []


class PromptCompleter(Completer):
    """Offers commands on a line that begins with a slash, and files after an @.

    On a line that begins with `!`, it offers programs and paths.
    `offers` returns the prompts of MCP servers with their descriptions, and their resources.
    """

    def __init__(
        self, commands: Iterable[Command[str]], cwd: Path, offers: Callable[[], Offers] = no_offers
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
        if text.startswith("!"):  # an @ in a line of the shell is no mention
            yield from shell_completions(self._cwd, text.lstrip("!"))
        elif mention:
            typed = mention["path"]
            yield from self._resources(typed)
            yield from self._files(typed, quoted=bool(mention["quote"]))
        elif text.startswith("/") and "\n" not in text:
            name, space, argument = text[1:].partition(" ")
            yield from self._choices(name, argument) if space else self._names(name)

    def _names(self, typed: str) -> Iterator[Completion]:
        """The prompts of MCP servers, once a letter is typed, and the commands."""
        prompts, _resources = self._offers() if typed else no_offers()
        commands = ((command.name, command.summary) for command in self._commands)
        for name, summary in (*prompts, *commands):
            if name.startswith(typed):
                yield Completion(name, -len(typed), f"/{name}", display_meta=summary)

    def _choices(self, name: str, typed: str) -> Iterator[Completion]:
        """The arguments of a command, whole or word by word."""
        for command in self._commands:
            if command.name == name and command.choices is not None:
                choices = [choice for choice in command.choices() if choice.startswith(typed)]
                if command.by_words:
                    choices = _next_words(choices, len(typed))
                yield from (Completion(choice, -len(typed)) for choice in choices)

    def _resources(self, typed: str) -> Iterator[Completion]:
        """The resources of MCP servers, once a server's name is typed."""
        _prompts, resources = self._offers() if ":" in typed else no_offers()
        # a mention ends at a blank, so it can't have one
        names = (name for name in resources if name.startswith(typed) and " " not in name)
        yield from (Completion(name, -len(typed)) for name in islice(names, MAX_COMPLETIONS))

    def _files(self, typed: str, *, quoted: bool) -> Iterator[Completion]:
        """Paths after an @, in quotation marks where they need them."""
        for name in islice(self._find(typed), MAX_COMPLETIONS):
            if '"' in name or not name.isprintable():  # it can't be typed in a mention
                continue
            if " " in name or quoted:
                closing_mark = "" if name.endswith("/") else '"'  # a file of the directory follows
                replaced = len(typed) + (1 if quoted else 0)  # with the opening mark
                yield Completion(f'"{name}{closing_mark}', -replaced, display=name)
            else:
                yield Completion(name, -len(typed), name)

    def _find(self, typed: str) -> Iterator[str]:
        """Entries that begin with `typed`, then similar files of subdirectories."""
        prefix, start = _split(typed)
        base = resolved(self._cwd, prefix or ".")
        matching = [
            entry
            for entry in scan(base)
            if entry.name.lower().startswith(start.lower()) and (start or entry.name[0] != ".")
        ]
        names = [".", *(entry.name for entry in matching)]
        ignored = git_paths(base, ["check-ignore", "-z", "--stdin"], names)
        offered: set[str] = set()
        for entry in matching:
            # who types an ignored directory means what is in it
            if entry.name not in ignored or "." in ignored:
                path = prefix + entry.name + ("/" if entry.is_dir() else "")
                offered.add(path)
                yield path
        # one letter is in most names; and who types a directory means what is in it
        if len(start) > 1 and not (prefix and offered):
            yield from (path for path in self._list.ranked(typed) if path not in offered)


def _split(path: str) -> tuple[str, str]:
    """The directory with its slash, and the beginning of a name: `src/` and `ma` for `src/ma`."""
    directory, slash, start = path.rpartition("/")
    return directory + slash, start


def _next_words(choices: Iterable[str], typed: int) -> list[str]:
    """The choices up to the end of the word at the position `typed`, each once.

    `show git`, `show web` and `stop git` are `show` and `stop` at 0.
    """
    cut = (choice[:typed] + choice[typed:].partition(" ")[0] for choice in choices)
    return list(dict.fromkeys(cut))  # in their order


_WORD = re.compile(r"(?:\\.|[^\s\\|;&()<>])*$")
_COMMAND_FOLLOWS = re.compile(r"(?:^|[|;&(])\s*$")


def shell_completions(cwd: Path, text: str) -> Iterator[Completion]:
    """Completions of the last word of a shell line: a program, else a path."""
    match = _WORD.search(text)
    word = match[0] if match else ""  # it always matches, if only the end
    is_program = _COMMAND_FOLLOWS.search(text[: len(text) - len(word)]) is not None
    if is_program and "/" not in word:
        names = programs(word)[:MAX_COMPLETIONS] if word else ()
        yield from (Completion(name, -len(word)) for name in names)
    else:
        yield from islice(_paths(cwd, word), MAX_COMPLETIONS)


def programs(prefix: str) -> list[str]:
    """The names of the programs on the PATH that begin with `prefix`, sorted."""
    directories = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # for a shell, an empty directory is the current one
    entries = (entry for directory in directories for entry in scan(Path(directory or ".")))
    fitting = (entry for entry in entries if entry.name.startswith(prefix))
    return sorted({entry.name for entry in fitting if os.access(entry.path, os.X_OK)})


def _paths(cwd: Path, word: str) -> Iterator[Completion]:
    r"""Entries that begin as a word of a shell line, in which a blank is written `\ `."""
    typed = re.sub(r"\\(.)", r"\1", word)
    prefix, start = _split(typed)
    for entry in scan(resolved(cwd, prefix or ".")):
        is_hidden = entry.name.startswith(".") and not start
        if not entry.name.startswith(start) or is_hidden or not entry.name.isprintable():
            continue
        name = f"{entry.name}/" if entry.is_dir() else entry.name
        as_one_word = re.sub(r"([^\w@%+=:,./~-])", r"\\\1", prefix + name)
        yield Completion(as_one_word, -len(word), display=name)


def mark_first_command(buffer: Buffer) -> None:
    """Mark the first command of the menu, or the one that is typed whole; Enter runs it."""
    state = buffer.complete_state
    # an index: the user has marked one
    if state is None or state.complete_index is not None or not _is_command_name(buffer):
        return
    names = [completion.text for completion in state.completions]
    typed = buffer.text.removeprefix("/")
    if names and names != [typed]:  # a single one that is typed whole runs without a mark
        state.go_to_index(names.index(typed) if typed in names else 0)


def _is_command_name(buffer: Buffer) -> bool:
    """Whether the text is a slash and at most one word."""
    return buffer.text.startswith("/") and not any(map(str.isspace, buffer.text))


def choose_command(buffer: Buffer) -> bool:
    """Complete the marked command; False if none is marked or it is there already."""
    state = buffer.complete_state
    marked = state.current_completion if state is not None else None
    if marked is None or not _is_command_name(buffer) or buffer.text == f"/{marked.text}":
        return False
    buffer.apply_completion(marked)
    return True


def chose_file(buffer: Buffer) -> bool:
    """Whether an entry that is not a command was chosen."""
    state = buffer.complete_state
    chosen = state is not None and state.current_completion is not None
    # with a slash, it is a command or its argument, which Enter runs
    return chosen and not buffer.text.startswith("/")


MAX_FILES = 50_000
MAX_SCANNED = 5000
"""Directory entries that are read of one directory, or where there is no git repository."""
MAX_DEPTH = 4
MAX_LIST_BYTES = 8_388_608
GIT_SECONDS = 2.0
CACHE_SECONDS = 5.0
SKIPPED = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})
_LIST = ("-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others",
         "--exclude-standard")  # fmt: skip


class FileList:
    """Paths below `cwd`, read again after a few seconds; directories end with a slash."""

    def __init__(self, cwd: Path) -> None:
        self._cwd = cwd
        self._paths: list[str] = []
        self._read_at = float("-inf")

    def ranked(self, typed: str) -> list[str]:
        """The paths that contain the letters of `typed` in their order, the best first.

        Only names are compared, unless `typed` has a slash.
        """
        if time.monotonic() - self._read_at > CACHE_SECONDS:  # reading takes longer than a key
            self._paths, self._read_at = self._read(), time.monotonic()
        query = typed.lower()
        scored = ((score(path, query), len(path), path) for path in self._paths)
        return [path for grade, _, path in sorted(scored) if grade < NO_MATCH]

    def _read(self) -> list[str]:
        """The paths, from git if it can tell them."""
        files = _git_files(self._cwd)
        if files is None:
            return list(_walk(self._cwd))
        # git lists no directories
        parents = {f"{parent}/" for path in files for parent in _parents(path)}
        return [*files, *parents]


NO_MATCH = 9
MIN_LETTERS = 3
"""Fewer letters must stand together in a name."""


def score(path: str, query: str) -> int:
    """How well a path fits, 0 for the best; NO_MATCH if it does not.

    `src/needle.py` has the score 0 for `need`, 1 for `edl` and 2 for `ndl`.
    """
    whole = path.lower().rstrip("/")
    # a slash in the query is in none of the names
    text = whole if "/" in query else whole.rpartition("/")[2]
    if text.startswith(query):
        return 0
    if query in text:
        return 1
    remaining = iter(text)  # each search goes on behind the letter before
    is_long = len(query) >= MIN_LETTERS
    return 2 if is_long and all(letter in remaining for letter in query) else NO_MATCH


def _parents(path: str) -> Iterator[str]:
    """`a` and `a/b` for `a/b/c`."""
    at = path.find("/")
    while at >= 0:
        yield path[:at]
        at = path.find("/", at + 1)


def _git_files(cwd: Path) -> list[str] | None:
    """The files that git knows or would add; None without git or a repository."""
    git = own_program("git")
    if git is None:
        return None
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # it runs beside the user's own git
    try:
        result = subprocess.run(
            [git, *_LIST], cwd=cwd, env=env, capture_output=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # a code: there is no repository
    if result.returncode or len(result.stdout) > MAX_LIST_BYTES:
        return None
    names = (os.fsdecode(name) for name in result.stdout.split(b"\0") if name)
    return list(dict.fromkeys(islice(names, MAX_FILES)))  # in a conflict, git repeats a name


def _walk(base: Path) -> Iterator[str]:
    """The visible files and directories, those near `base` first; up to MAX_SCANNED are read."""
    entries_left = MAX_SCANNED
    level = [""]  # the directories of one depth, each with its slash
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for directory in level:
            for entry in scan(base / directory):
                entries_left -= 1
                if entries_left < 0:
                    return
                if entry.name[0] == "." or entry.name in SKIPPED:
                    continue
                path = f"{directory}{entry.name}"
                if entry.is_dir(follow_symlinks=False):  # a link could lead into a circle
                    path += "/"
                    below.append(path)
                yield path
        level = below


def scan(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory, sorted by name; [] if it can't be read."""
    try:
        with os.scandir(directory) as entries:
            return sorted(islice(entries, MAX_SCANNED), key=lambda entry: entry.name)
    except OSError:
        return []
