"""What the rules say about the files of a tree: which are hidden, which must stay as they are."""

import glob
import os
import re
from collections.abc import Iterator
from copy import copy
from itertools import islice
from pathlib import Path

from shepherd.tools.base import Access, AccessKind
from shepherd.tools.pathglob import expand_braces, glob_regex, has_magic
from shepherd.tools.permissions.defaults import edits_rules
from shepherd.tools.permissions.policy import ApproveMode, PermissionPolicy
from shepherd.tools.permissions.rules import Decision

TOOL = "execute_command"
_TREE = re.compile(r"^\{cwd\}/(?:\*\*/)?|(?:/\*\*)+$")

MAX_EXPANDED = 500
"""Paths outside the tree that one rule may name."""


class FileRules:
    """The rules of a policy over the files that a command could reach.

    A file is hidden if the rules deny reading it, and kept if the mode `edits` would not let it be
    written: it runs by itself, or a rule denies or asks.
    """

    def __init__(self, policy: PermissionPolicy) -> None:
        self._policy = policy
        self._edits = copy(policy)
        self._edits.mode = ApproveMode.EDITS
        self._rules = [rule for rule in policy.rules() if rule.decision is not Decision.ALLOW]
        self._rules += [r for r in self._edits.rules() if r.decision is not Decision.ALLOW]
        self._names = re.compile(
            "|".join(sorted({_last_name(rule.pattern) for rule in self._rules})) or "(?!)",
            re.DOTALL | re.IGNORECASE,
        )

    def concerns(self, name: str) -> bool:
        """Whether a rule may be about a file of this name; quick, and never wrongly False."""
        return self._names.fullmatch(name) is not None

    def hides(self, path: str) -> bool:
        """Whether reading is denied."""
        return self._policy.denies(TOOL, Access(AccessKind.READ, path))

    def keeps(self, path: str) -> bool:
        """Whether nobody may write the file unasked."""
        verdict = self._edits.decide_one("write_file", Access(AccessKind.WRITE, path))
        return verdict.decision is not Decision.ALLOW

    @property
    def run_by_themselves(self) -> tuple[str, ...]:
        """Names in the working directory that no command may make: programs run them unasked."""
        patterns = {r.pattern for r in edits_rules() if r.decision is not Decision.ALLOW}
        names = {_TREE.sub("", part) for pattern in patterns for part in expand_braces(pattern)}
        return tuple(sorted(name for name in names if not has_magic(name) and name[:1] != "/"))

    def named(self, home: Path) -> Iterator[str]:
        """The paths that exist, anywhere, and that the patterns name: known places of secrets."""
        for pattern in {rule.pattern for rule in self._rules}:
            for part in expand_braces(pattern):
                yield from _expanded(part, self._policy.cwd, home)


def _last_name(pattern: str) -> str:
    """The regular expression of the last part of a path that `pattern` can meet."""
    if "{" in pattern.removeprefix("{cwd}"):
        return ".*"
    name = re.sub(r"(?:/\*\*)+$", "", pattern).rpartition("/")[2]
    return ".*" if not name or name == "{cwd}" or "**" in name else glob_regex(name)


def _expanded(pattern: str, cwd: Path, home: Path) -> Iterator[str]:
    pattern = re.sub(r"(?:/\*\*)+$", "", pattern)
    if pattern.startswith("/**/"):
        pattern = f"{glob.escape(str(home))}/{pattern.removeprefix('/**/')}"
    elif pattern.startswith("~/"):
        pattern = f"{glob.escape(str(home))}/{pattern.removeprefix('~/')}"
    elif pattern.startswith("{cwd}/"):
        pattern = f"{glob.escape(str(cwd))}/{pattern.removeprefix('{cwd}/')}"
    elif not pattern.startswith("/"):
        pattern = f"{glob.escape(str(cwd))}/{pattern.removeprefix('./')}"
    if "**" in pattern or pattern.startswith("/proc/"):  # a box has processes of its own
        return
    if has_magic(pattern):
        yield from islice(glob.iglob(pattern, include_hidden=True), MAX_EXPANDED)  # noqa: PTH207
    elif os.path.lexists(pattern):
        yield pattern
