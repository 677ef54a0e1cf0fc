"""The directories in which a command of a line may run."""

import os
from functools import cache
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools import paths
from shepherd.tools.shell.syntax import Command, Word, expand_glob

_MAX_PLACES = 8


class Places:
    """Where the next command of a line may run: a `cd` before it may also have failed.

    `known` is False if it may run anywhere.
    """

    def __init__(self, cwd: Path) -> None:
        self._start = cwd
        # a line may name the same place thousands of times
        self._resolved = cache(_resolved)
        self.all = [cwd]
        self.known = True

    @property
    def may_have_moved(self) -> bool:
        """Whether a command may run outside of the directory where the line began."""
        return not self.known or len(self.all) > 1

    def follow(self, command: Command) -> None:
        """Follow a `cd` to a directory below, in whose path is neither a link nor `..`."""
        if command.program != "cd":
            return
        target = command.words[1] if len(command.words) == 2 else Word("")
        is_plain = bool(target.text) and not (target.dynamic or target.glob or target.tilde)
        # with CDPATH, a plain name may lead elsewhere
        says_where = is_plain and target.text[0] != "-" and not os.environ.get("CDPATH")
        entered = {place / target.text for place in self.all} if says_where else set[Path]()
        are_below = all(
            Path(os.path.realpath(new)) == new and new.is_relative_to(self._start)
            for new in entered
        )
        self.all = sorted({*self.all, *entered})
        self.known = self.known and says_where and are_below and len(self.all) <= _MAX_PLACES
        del self.all[_MAX_PLACES:]

    def paths(self, word: Word) -> list[Path]:
        """The paths that a word may name, with every link followed.

        Raises OverflowError if its wildcards match too many.
        """
        resolved: list[Path | None] = []
        for place in self.all:
            names = [word.text, *(expand_glob(word, place) if word.glob else ())]
            # a `~` stands for the home directory only where the shell expands it
            plain = (n if word.tilde or n[:1] != "~" else f"./{n}" for n in names)
            resolved += [self._resolved(name, place) for name in plain]
        return [path for path in resolved if path is not None]

    def named(self, text: str) -> list[Path]:
        """The paths that a text may stand for; a leading `~` is expanded."""
        resolved = (self._resolved(text, place) for place in self.all if text)
        return [path for path in resolved if path is not None]


def _resolved(text: str, place: Path) -> Path | None:
    """The path that a text names in `place`; None if it is not a path."""
    try:
        return paths.resolve_path(text, place)
    except ToolError:
        return None
