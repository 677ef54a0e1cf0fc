"""The directories in which a command of a line may run; follows `cd` as the shell does."""

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools import access, paths
from shepherd.tools.shell.git import git_places
from shepherd.tools.shell.programs import inner_commands, name_of, trees, words_to_name
from shepherd.tools.shell.syntax import Command, Word

_CHANGES_PLACE = frozenset({"cd", "pushd", "popd", "chdir", "dirs"})
_MAKES_LINKS = frozenset({"ln", "cp", "mv", "tar", "unzip", "cpio", "rsync", "install", "patch"})
_CHECKS_OUT = frozenset({"git", "svn", "hg"})
_MAX_PLACES = 8


class Places:
    """The directories in which the next command may run.

    Each is a logical path, like `$PWD`: it keeps symbolic links, so that `cd ..` leads back.
    `known` is False if any other directory is possible. `makes_links` means that a command of the
    line may create links, so that a path may lead elsewhere later.
    """

    def __init__(self, cwd: Path, commands: Iterable[Command] = ()) -> None:
        self._start = cwd
        self._cd_searches = bool(os.environ.get("CDPATH"))
        # a line may name the same place thousands of times
        self._resolved = cache(resolved)
        self._entered = cache(_entered)
        self.all = [cwd]
        self.known = True
        self.makes_links = any(command.program in _MAKES_LINKS for command in commands)

    def file(self, name: str, place: Path) -> Path | None:
        """The path that a name may stand for in `place`; a leading `~` is expanded."""
        return self._resolved(Word(name, tilde=True), place) if name else None

    @property
    def may_have_moved(self) -> bool:
        """Whether a command may run outside of the directory where the line began."""
        return not self.known or len(self.all) > 1

    def follow(self, command: Command) -> None:
        """Follow a `cd`, which may also fail and change nothing."""
        self.makes_links = self.makes_links or command.program in _CHECKS_OUT
        if command.program not in _CHANGES_PLACE:
            return
        is_cd = command.program == "cd" and len(command.words) == 2
        target = command.words[1] if is_cd else None
        # a link that is made before the `cd` could lead anywhere
        if self.makes_links or target is None or not self._says_where(target):
            self.known = False
            return
        entered = {new for place in self.all for new in self._entered(target, place)}
        # rules cover commands in the directory of the line and below only
        if not all(self._is_below_start(place) for place in entered):
            self.known = False
        self.all = sorted({*self.all, *entered})
        if len(self.all) > _MAX_PLACES:
            self.known = False
            del self.all[_MAX_PLACES:]

    def _says_where(self, target: Word) -> bool:
        """Whether the word says where `cd` leads; with CDPATH a plain name may lead elsewhere."""
        text = target.text
        if target.dynamic or target.glob or not text or text.startswith("-"):
            return False
        return not self._cd_searches or text.startswith(("/", "./", "../")) or target.tilde

    def _is_below_start(self, place: Path) -> bool:
        """Whether a place is in the directory of the line, after its links are followed."""
        real = self._resolved(Word(str(place)), self._start)
        return real is not None and real.is_relative_to(self._start)


def _entered(target: Word, place: Path) -> list[Path]:
    """The directories that `cd` may enter: `..` removes the last name; if that fails, the system
    resolves it."""
    physical = resolved(target, place)
    text = paths.expand_home(target.text) if target.tilde else target.text
    logical = Path(os.path.normpath(os.path.join(place, text)))  # noqa: PTH118 - keeps `..`
    return [logical, physical] if physical is not None else [logical]


def resolved(word: Word, place: Path) -> Path | None:
    """The path that a word names in `place`, with every link followed; None if it is not a path."""
    text = word.text if word.tilde or not word.text.startswith("~") else f"./{word.text}"
    try:
        return paths.resolve_path(text, place)
    except ToolError:
        return None


def named_words(command: Command) -> int:
    """The number of words of the command that a rule must name, including assignments."""
    named = words_to_name(command.texts) if command.texts else 0
    # words are counted from the first one, and the assignments stand before it
    return named + len(command.assignments) if named else 0


def directory_accesses(command: Command, places: Places) -> Iterator[access.Access]:
    """The repositories that git uses, and the directories that may be read as a whole."""
    for place in places.all:
        for folder, claim in trees(command.texts, place):
            yield access.Access(access.AccessKind.READ, str(folder), claim)
        for git in _git_commands(command.texts):
            for repository in git_places(git, place):
                yield access.Access(access.AccessKind.REPOSITORY, os.path.realpath(repository))


def _git_commands(words: Sequence[str]) -> list[list[str]]:
    """The command if it is git's, and those of git that it runs, as in `env X=1 git status`."""
    commands = [list(words), *(c for c in inner_commands(words) if isinstance(c, list))]
    return [command for command in commands if name_of(command[0]) == "git"]
