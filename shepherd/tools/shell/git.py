"""What git commands do: which only read, and in which directories they run."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from shepherd.tools.access import Access, AccessKind, Claim

_VALUES = "-c -C --git-dir --work-tree --namespace --exec-path --config-env"
_GLOBAL_VALUES = frozenset(_VALUES.split())
_PLACES = ("-C", "--git-dir", "--work-tree")

_HARMLESS_BUILTINS = frozenset({"cd", "pwd", "true", "echo"})
_READING_NAMES = """
status log diff show blame grep describe shortlog ls-files ls-tree rev-parse rev-list cat-file
merge-base name-rev for-each-ref check-ignore count-objects version
"""
_READING = frozenset(_READING_NAMES.split())
_LINES = """
branch,branch -a,branch -v,branch -vv,branch --show-current,tag,tag -l,remote,remote -v,stash list
worktree list,submodule status,config --list,config -l,clean -n,clean -nd,clean -ndx,reflog
"""
_READING_LINES = frozenset(_LINES.replace("\n", ",").split(","))

_OPTION_NAMES = """
abbrev-commit abbrev-ref after all always author before cached check color count date decorate
exclude-standard follow format graph grep is-inside-work-tree long max-count merges name-only
name-status no-color no-merges no-renames numstat oneline others patch porcelain pretty reverse
short shortstat show-current show-toplevel since staged stat summary tags until untracked-files
verify word-diff
"""
_LONG_OPTIONS = frozenset(f"--{name}" for name in _OPTION_NAMES.split())
_SHORT_OPTIONS = re.compile(r"-(?:[abcdehilnpqrstuvwz]+|[nULSGM].*|\d+)")
"""None of them writes a file or runs a program, whatever the reading subcommand."""


_OUTSIDE = re.compile(r"[/~]|(?:.*/)?\.\.(?:/|\Z)")
"""Paths outside of the repository; `git diff` compares them as plain files."""


def only_reads(words: Sequence[str]) -> bool:
    """Whether a git command is of a form that is known to change nothing."""
    start = _start_of_subcommand(words)
    options, line = words[1:start], words[start:]
    if [word for word in options if word != "--no-pager"] not in ([], ["-C", *options[-1:]]):
        return False
    if " ".join(line) in _READING_LINES:
        return True
    known = (
        _SHORT_OPTIONS.fullmatch(word) or word.partition("=")[0] in _LONG_OPTIONS or word == "--"
        for word in line
        if word.startswith("-")
    )
    is_known = bool(line) and line[0] in _READING and all(known)
    return is_known and not (line[0] == "diff" and any(map(_OUTSIDE.match, line)))


def git_places(words: Sequence[str], place: Path) -> list[Path]:
    """The directories in which a git command that starts in `place` may look for a repository."""
    places = [place]
    for index in range(1, _start_of_subcommand(words)):
        option, is_attached, value = words[index].partition("=")
        if option in _PLACES:
            value = value if is_attached else "".join(words[index + 1 : index + 2])
            places.append(places[-1] / value)  # a second `-C` is relative to the first
    # the directory where it starts counts only without such an option
    return places[1:] or places


def _start_of_subcommand(words: Sequence[str]) -> int:
    """The index of `log` in `git -C dir --no-pager log`; the number of words if there is none."""
    index = 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _GLOBAL_VALUES else 1
    return min(index, len(words))


def is_git_line(accesses: Sequence[Access]) -> bool:
    """Whether the call is parsed in full and runs only git and harmless builtins of the shell."""
    programs = [_words(access)[:1] for access in accesses if access.kind is AccessKind.SHELL]
    # what it reads does not matter: the question is whether it may write to the repository
    is_certain = all(
        access.claim is Claim.EXACT or access.kind is AccessKind.READ for access in accesses
    )
    writes = any(access.kind is AccessKind.WRITE for access in accesses)
    only_git = all(program and program[0] in {"git", *_HARMLESS_BUILTINS} for program in programs)
    return is_certain and not writes and only_git and ["git"] in programs


def changes_repository(accesses: Sequence[Access]) -> bool:
    """Whether the call is a git line that may change the repository."""
    return is_git_line(accesses) and not all(
        _words(access)[:1] != ["git"] or _may_only_read(_words(access))
        for access in accesses
        if access.kind is AccessKind.SHELL
    )


def _may_only_read(words: Sequence[str]) -> bool:
    """Whether a git command changes nothing in the repository, with any options."""
    return (len(words) > 1 and words[1] in _READING) or " ".join(words[1:]) in _READING_LINES


def _words(access: Access) -> list[str]:
    """The words of a command; none if its quotes do not match."""
    try:
        return shlex.split(access.target)
    except ValueError:
        return []
