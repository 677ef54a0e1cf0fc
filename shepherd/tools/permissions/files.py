"""Applies the rules to the files of a tree: which are hidden, and which are read-only."""

import glob
import os
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path

from shepherd.config.section import ApproveMode
from shepherd.tools.access import EXECUTE_COMMAND, WRITE_FILE, Access, AccessKind
from shepherd.tools.paths import expand_braces, glob_regex, has_magic
from shepherd.tools.permissions.defaults import default_rules, original_names
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.repository import OBEYED, has_parts
from shepherd.tools.permissions.rules import Decision, Rule

MAX_EXPANDED = 500
"""The maximum number of paths outside the tree that one pattern may name."""

MAX_REMEMBERED = 100_000
"""The maximum number of answers of each kind, kept for the next scan of the same tree."""

_TREE = re.compile(r"^\{cwd\}/(?:\*\*/)?|(?:/\*\*)+$")
_ABOUT_FILES = (AccessKind.READ.value, AccessKind.WRITE.value)


class FileRules:
    """A snapshot of a policy's rules, applied to the files that a command could reach.

    A file is hidden if the rules deny reading it. It is protected if the mode `edits` does not
    allow writing it: a program runs it unasked, or a rule denies or asks.
    """

    def __init__(self, policy: PermissionPolicy, home: Path) -> None:
        self._policy = policy
        self._in_edits = copy(policy)
        self._in_edits.mode = ApproveMode.EDITS
        self._in_edits.awaits_first = False
        defaults = len(default_rules())  # they come first, and would concern every file
        rules = [*policy.rules()[defaults:], *self._in_edits.rules()[defaults:]]
        patterns = {
            pattern
            for rule in rules
            if _keeps_command_away(rule)
            for pattern in expand_braces(rule.pattern)
        }
        # below the working directory, without its `{cwd}/**/`
        self._local_patterns = sorted(
            {_TREE.sub("", p) for p in patterns if p.startswith("{cwd}/")}
        )
        # the names of all files that a rule could concern, and where such files usually are
        names = sorted({_last_name(pattern) for pattern in patterns})
        self._names = re.compile("|".join(names) or "(?!)", re.DOTALL | re.IGNORECASE)
        self._places = sorted({*filter(None, (_place(p, home) for p in patterns))})
        remembering = lru_cache(MAX_REMEMBERED)
        self.concerns = remembering(self._concerns)
        """Whether a rule may apply to a file of this name; fast, and never wrongly False."""
        self.hides = remembering(self._hides)
        """Whether reading the path is denied."""
        self.protects = remembering(self._protects)
        """Whether writing the path needs approval."""

    @property
    def startup_names(self) -> tuple[str, ...]:
        """Names in the working directory that no command may create: programs run them unasked."""
        return tuple(name for name in self._local_patterns if name and not has_magic(name))

    @staticmethod
    def obeyed(names: AbstractSet[str]) -> AbstractSet[str]:
        """Those of a directory's names by which git runs programs, if it is a repository."""
        return names & OBEYED if has_parts(names) else frozenset()

    def known_paths(self) -> Iterator[str]:
        """The existing paths that the patterns name: known places of secrets."""
        for place in self._places:
            if has_magic(place):
                matches = glob.iglob(place, include_hidden=True)  # noqa: PTH207 - quicker
                yield from islice(matches, MAX_EXPANDED)
            elif os.path.lexists(place):
                yield place

    def _concerns(self, name: str) -> bool:
        names = (name, *original_names(name))  # a copy of a secret is a secret, too
        return any(self._names.fullmatch(n.rpartition("/")[2]) for n in names)

    def _hides(self, path: str) -> bool:
        return self._policy.denies(EXECUTE_COMMAND, Access(AccessKind.READ, path))

    def _protects(self, path: str) -> bool:
        # in the mode `edits` a question means that even a user who trusts edits is asked
        verdict = self._in_edits.decide_one(WRITE_FILE, Access(AccessKind.WRITE, path))
        return verdict.decision is not Decision.ALLOW


def _keeps_command_away(rule: Rule) -> bool:
    """Whether a rule may keep a command from a file."""
    names_tool = any(fnmatchcase(tool, rule.tool) for tool in (EXECUTE_COMMAND, WRITE_FILE))
    is_about_files = rule.tool in _ABOUT_FILES or names_tool
    return is_about_files and rule.decision is not Decision.ALLOW


def _last_name(pattern: str) -> str:
    """The regular expression of the last part of a path that `pattern` can match."""
    name = re.sub(r"(?:/\*\*)+$", "", pattern).rpartition("/")[2]
    is_any_name = not name or name == "{cwd}" or "**" in name
    return ".*" if is_any_name else glob_regex(name)


def _place(pattern: str, home: Path) -> str:
    """The glob of the known places that a pattern names; "" if it covers the whole disk."""
    pattern = re.sub(r"(?:/\*\*)+$", "", pattern)
    if pattern.startswith(("/**/", "~/")):
        pattern = f"{glob.escape(str(home))}/{pattern.removeprefix('/**/').removeprefix('~/')}"
    # the working directory is scanned in full; a box has its own devices and processes
    elsewhere = pattern.startswith("/") and not pattern.startswith(("/proc/", "/dev/"))
    return pattern if elsewhere and "**" not in pattern else ""
