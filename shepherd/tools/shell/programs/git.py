"""The risky words of a git command, and the directories in which it runs.

A rule must name every word that is not known to be harmless. Examples are other subcommands,
aliases, and options that run programs, write files or change settings. No wildcard covers them.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.shell.programs.git_options import subcommand

_FLAGS = """
--no-pager -P -p --paginate --no-replace-objects --no-optional-locks --literal-pathspecs
--glob-pathspecs --noglob-pathspecs --icase-pathspecs --version -v --help -h --no-advice
--no-lazy-fetch
"""
_GLOBAL_FLAGS = frozenset(_FLAGS.split())
_VALUES = "-c -C --git-dir --work-tree --namespace --exec-path --config-env"
_GLOBAL_VALUES = frozenset(_VALUES.split())
_PLACES = ("-C", "--git-dir", "--work-tree")

_VERBS = {
    "stash": "push pop list show apply drop branch",
    "remote": "get-url",
    "worktree": "list prune",
    "submodule": "status summary",
    "bisect": "start good bad new old skip reset log next",
    "sparse-checkout": "list",
    "notes": "list show",
    "reflog": "show exists",
    "config": "list get",
}
"""The known first operands of subcommands with operations; a rule must name any other one."""

_REMOTE_COMMANDS = frozenset({"fetch", "pull", "push", "ls-remote"})
_OPERAND_COMMANDS = _REMOTE_COMMANDS | _VERBS.keys() | {"clone"}
"""The effect of these depends on their first operand, at any position."""

_REMOTE = re.compile(r"[A-Za-z0-9][\w.-]*")
_URL = re.compile(r"(?:https|ssh|git)://[\w.@:/~+-]+|[\w.-]+@[\w.-]+:[\w./~+-]+")
_OUTSIDE = re.compile(r"[/~]|(?:.*/)?\.\.(?:/|\Z)")
"""Paths outside of the repository; `git diff` compares them as plain files."""

_BESIDE = frozenset({"cd", "pwd", "true", "echo"})
_READING = frozenset(
    {"status", "log", "diff", "show", "blame", "grep", "describe", "shortlog", "ls-files"}
    | {"ls-tree", "rev-parse", "rev-list", "cat-file", "merge-base", "name-rev", "for-each-ref"}
    | {"check-ignore", "count-objects", "version", "help"}
)
_READING_LINES = frozenset({"branch", "branch -a", "branch -v", "branch -vv", "tag", "remote -v"})


def git_words_to_name(words: Sequence[str], exists: Callable[[str], bool]) -> int:
    """The number of a git command's words that a rule must name; 0 if none of them is risky.

    `exists` says whether a file has this name: git reads an unknown remote as a path.
    """
    start = _start_of_subcommand(words)
    risky = [index + 1 for index in range(1, start) if not _is_harmless(words, index)]
    if start < len(words):
        risky += _risky_words(words, start, exists)
    return max(risky, default=0)


def git_places(words: Sequence[str], place: Path) -> list[Path]:
    """The directories in which a git command that starts in `place` may look for a repository."""
    places = [place]
    for index in range(1, _start_of_subcommand(words)):
        option, is_attached, value = words[index].partition("=")
        if option in _PLACES:
            value = value if is_attached else "".join(words[index + 1 : index + 2])
            places.append(places[-1] / value)
    return places[1:] or places


def _start_of_subcommand(words: Sequence[str]) -> int:
    index = 1
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] in _GLOBAL_VALUES else 1
    return min(index, len(words))


def _is_harmless(words: Sequence[str], index: int) -> bool:
    """Whether a word before the subcommand is harmless; other code checks directories of `-C`."""
    return words[index] in _GLOBAL_FLAGS or "-C" in words[index - 1 : index + 1]


def _risky_words(words: Sequence[str], start: int, exists: Callable[[str], bool]) -> Iterator[int]:
    """The indices, from 1, of the words from the subcommand on that a rule must name."""
    name = words[start]
    known = subcommand(name)
    if known is None:
        yield start + 1
        return
    operands: list[int] = []
    for index in range(start + 1, len(words)):
        if words[index] == "--":
            # a verb or a remote may also come after it
            operands += range(index + 1, len(words) if name in _OPERAND_COMMANDS else 0)
            break
        if not words[index].startswith("-") or words[index] == "-":
            operands.append(index)
        elif not known.knows(words[index]):
            yield index + 1
    if operands and not _are_operands(name, words, operands, exists):
        yield operands[-1] + 1
    if name == "diff":
        paths = range(start + 1, len(words))
        yield from (index + 1 for index in paths if _OUTSIDE.match(words[index]))


def _are_operands(
    name: str, words: Sequence[str], indices: list[int], exists: Callable[[str], bool]
) -> bool:
    """Whether the first operand is a known verb, or a remote of this repository."""
    operands = [words[index] for index in indices]
    if name == "config" and any(w.startswith(("--get", "--list", "-l")) for w in words):
        return True
    if name in _VERBS:
        return operands[0] in _VERBS[name].split()
    if name == "clone":
        addresses = [operand for operand in operands if ":" in operand]
        is_plain = len(addresses) == 1 and _URL.fullmatch(addresses[0]) is not None
        return is_plain and not any(map(exists, operands))
    if name not in _REMOTE_COMMANDS:
        return True
    remotes = [operand for operand in operands if not operand.isdigit()][:1]
    numbers = any(operand.isdigit() and exists(operand) for operand in operands)
    return not numbers and all(_REMOTE.fullmatch(name) and not exists(name) for name in remotes)


def is_git_line(accesses: Sequence[Access]) -> bool:
    """Whether the call is parsed in full and runs only git and harmless builtins of the shell."""
    programs = [_words(access)[:1] for access in accesses if access.kind is AccessKind.SHELL]
    is_plain = all(
        access.claim is Claim.EXACT or access.kind is AccessKind.READ for access in accesses
    )
    writes = any(access.kind is AccessKind.WRITE for access in accesses)
    alone = all(program and program[0] in {"git", *_BESIDE} for program in programs)
    return is_plain and not writes and alone and ["git"] in programs


def changes_repository(accesses: Sequence[Access]) -> bool:
    """Whether the call is a git line that may change the repository."""
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
