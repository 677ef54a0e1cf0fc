"""What a command reaches beyond the files that it names: repositories, directories, programs."""

import os
from collections.abc import Iterator, Sequence

from shepherd.tools.base import Access, AccessKind
from shepherd.tools.shell.places import Places
from shepherd.tools.shell.programs.git import git_places
from shepherd.tools.shell.programs.risks import name_of, trees, words_to_name
from shepherd.tools.shell.syntax import Command
from shepherd.tools.shell.wrappers import inner_commands


def named_words(command: Command, places: Places) -> int:
    """How many words of the command a rule must name, its assignments counted."""
    words = _texts(command)
    if not words:
        return 0

    def exists(name: str) -> bool:
        return any(os.path.lexists(place / name) for place in places.all)

    named = words_to_name(words, exists)
    return named + len(command.assignments) if named else 0


def reached(command: Command, places: Places) -> Iterator[Access]:
    """The repositories that git uses, and the directories of which all may be read."""
    words = _texts(command)
    for place in places.all:
        for folder, claim in trees(words, place):
            yield Access(AccessKind.READ, str(folder), claim)
        for git in _git_commands(words):
            for repository in git_places(git, place):
                yield Access(AccessKind.REPOSITORY, os.path.realpath(repository))


def _git_commands(words: Sequence[str]) -> list[list[str]]:
    commands = [list(words), *(c for c in inner_commands(words) if isinstance(c, list))]
    return [command for command in commands if name_of(command[0]) == "git"]


def _texts(command: Command) -> list[str]:
    return [word.text for word in command.words]
