"""Lines that run nothing but git."""

import shlex
from collections.abc import Sequence

from shepherd.tools.base import Access, AccessKind, Claim

_BESIDE = frozenset({"cd", "pwd", "true", "echo"})
_READING = frozenset(
    {"status", "log", "diff", "show", "blame", "grep", "describe", "shortlog", "ls-files"}
    | {"ls-tree", "rev-parse", "rev-list", "cat-file", "merge-base", "name-rev", "for-each-ref"}
    | {"check-ignore", "count-objects", "version", "help"}
)
_READING_LINES = frozenset({"branch", "branch -a", "branch -v", "branch -vv", "tag", "remote -v"})


def is_git_line(accesses: Sequence[Access]) -> bool:
    """Whether the call is read in full and runs git alone, beside harmless words of the shell."""
    programs = [_words(access)[:1] for access in accesses if access.kind is AccessKind.SHELL]
    is_plain = all(
        access.claim is Claim.EXACT or access.kind is AccessKind.READ for access in accesses
    )
    writes = any(access.kind is AccessKind.WRITE for access in accesses)
    alone = all(program and program[0] in {"git", *_BESIDE} for program in programs)
    return is_plain and not writes and alone and ["git"] in programs


def changes_repository(accesses: Sequence[Access]) -> bool:
    """Whether the call is such a line and may change the repository."""
    return is_git_line(accesses) and not all(
        _only_reads(_words(access)) for access in accesses if access.kind is AccessKind.SHELL
    )


def _only_reads(words: Sequence[str]) -> bool:
    if words[0] != "git":
        return True
    return (len(words) > 1 and words[1] in _READING) or " ".join(words[1:]) in _READING_LINES


def _words(access: Access) -> list[str]:
    try:
        return shlex.split(access.target)
    except ValueError:
        return []
