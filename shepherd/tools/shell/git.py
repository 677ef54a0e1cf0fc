"""What git commands do: which only read, and which lines may change a repository."""

import re
import shlex
from collections.abc import Sequence

from shepherd.tools.access import Access, AccessKind, Claim

_READING_NAMES = """
status log diff show blame describe shortlog ls-files ls-tree rev-parse rev-list cat-file
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
_SHORT_OPTIONS = re.compile(r"-(?:[abcdehilnpqrstuvwz]+|[nULSGM].*|\d+|-)")
"""None of them writes a file or runs a program, whatever the reading subcommand."""

_HARMLESS_BUILTINS = frozenset({"cd", "pwd", "true", "echo"})


def files_of_git(arguments: Sequence[str]) -> list[str] | None:
    """The words behind `git` that may be files; None if it may change something."""
    line = arguments[1:] if arguments[:1] == ["--no-pager"] else arguments
    if line and " ".join(line) in _READING_LINES:
        return []
    options = [word for word in line if word.startswith("-")]
    known = (_SHORT_OPTIONS.fullmatch(o) or o.partition("=")[0] in _LONG_OPTIONS for o in options)
    if not line or line[0] not in _READING or not all(known):
        return None
    # `blame -Sa.txt` and `log -L1,9:a.txt` read the file, too
    return [word[2:] if word.startswith("-") else word for word in line[1:]]


def is_git_line(accesses: Sequence[Access]) -> bool:
    """Whether the call is parsed in full and runs only git and harmless builtins of the shell."""
    commands = [access for access in accesses if access.kind is AccessKind.SHELL]
    programs = [(_words(access) or [""])[0] for access in commands]
    is_certain = all(access.claim in (Claim.EXACT, Claim.HELD) for access in commands)
    writes = any(access.kind is AccessKind.WRITE for access in accesses)
    only_git = {"git", *_HARMLESS_BUILTINS}.issuperset(programs)
    return is_certain and not writes and only_git and "git" in programs


def changes_repository(accesses: Sequence[Access]) -> bool:
    """Whether the call is a git line that may change the repository."""
    commands = (access for access in accesses if access.kind is AccessKind.SHELL)
    return is_git_line(accesses) and not all(map(_only_reads, map(_words, commands)))


def _only_reads(words: Sequence[str]) -> bool:
    """Whether a command of a git line changes nothing in the repository, with any options."""
    line = words[1:]
    is_read = not _READING.isdisjoint(line[:1]) or " ".join(line) in _READING_LINES
    return is_read or words[0] != "git"


def _words(access: Access) -> list[str]:
    """The words of a command; none if its quotes do not match."""
    try:
        return shlex.split(access.target)
    except ValueError:
        return []
