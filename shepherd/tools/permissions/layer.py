"""An ordered list of rules with a fast lookup, because tools that walk a tree check every file."""

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from shepherd.tools.base import Access, AccessKind
from shepherd.tools.paths import expand_braces, glob_regex, has_magic, has_open_braces
from shepherd.tools.permissions.match import applies_to, path_regex, pattern_matches
from shepherd.tools.permissions.rules import Rule

_ANYWHERE = ("/**/", "{cwd}/**/", "~/**/")

_Relevant: TypeAlias = dict[tuple[str, AccessKind], Callable[[str], list[Rule]]]


class PathIndex:
    """Rules indexed by a name in every path that they match; the others share one expression."""

    def __init__(self, rules: tuple[Rule, ...], cwd: Path) -> None:
        self._rules = rules
        self._named: dict[str, set[int]] = {}
        self._unnamed: list[int] = []
        for number, rule in enumerate(rules):
            keys = _keys(rule.pattern)
            if None in keys:
                self._unnamed.append(number)
            for key in filter(None, keys):
                self._named.setdefault(key, set()).add(number)
        self._any_unnamed = _any_regex([rules[number] for number in self._unnamed], cwd)

    def candidates(self, path: str) -> list[Rule]:
        """The rules that may match the path, in their order."""
        names = path.casefold().split("/")
        numbers: set[int] = set()
        for key in (*names, *_endings(names[-1])):
            numbers |= self._named.get(key, set())
        if self._any_unnamed.fullmatch(path):
            numbers.update(self._unnamed)
        return [self._rules[number] for number in sorted(numbers)]


@lru_cache(maxsize=64)
def _path_index(rules: tuple[Rule, ...], cwd: Path, _home: str) -> PathIndex:
    """The index of the rules; all tools that the same rules apply to share it."""
    return PathIndex(rules, cwd)


@lru_cache(maxsize=2048)
def _keys(pattern: str) -> frozenset[str | None]:
    """The names of which each path of the pattern contains one; None if some paths need none."""
    return frozenset(_key(tail) for tail in _relative_patterns(pattern))


def _relative_patterns(pattern: str) -> list[str]:
    """The pattern relative to any directory; unchanged if it starts at a fixed place."""
    for prefix in _ANYWHERE:
        if pattern.startswith(prefix) and not has_open_braces(pattern):
            return expand_braces(pattern.removeprefix(prefix))
    return ["*"]


def _key(tail: str) -> str | None:
    """A name, or the ending `*.x` of the last name, that each path of the glob contains."""
    first, *more = tail.split("/")
    if more or not has_magic(first):
        return None if has_magic(first) or not first else first.casefold()
    ending = first.removeprefix("*")
    plain = first.startswith("*.") and not has_magic(ending) and "{" not in ending
    return f"*{ending.casefold()}" if plain else None


def _endings(name: str) -> list[str]:
    parts = name.split(".")
    return ["*." + ".".join(parts[start:]) for start in range(1, len(parts))]


def _any_regex(rules: list[Rule], cwd: Path) -> re.Pattern[str]:
    """An expression for all paths of the rules; names in any directory share one search."""
    names: list[str] = []
    patterns: list[str] = []
    for rule in rules:
        name = rule.pattern.removeprefix("/**/")
        if name != rule.pattern and "/" not in name and not has_open_braces(name):
            names.append(glob_regex(name))
        else:
            patterns.append(path_regex(rule, cwd).pattern)
    if names:
        patterns.append(f"(?>.*/)(?:{'|'.join(names)})")
    either = "|".join(f"(?:{pattern})" for pattern in patterns) or "(?!)"
    return re.compile(either, re.DOTALL | re.IGNORECASE)


class RuleLayer:
    """Rules of equal trust in one working directory; the last match wins.

    A rule may be added while another thread looks one up; the result of that lookup is not cached.
    """

    def __init__(self, rules: Iterable[Rule], cwd: Path) -> None:
        self._rules = list(rules)
        self._cwd = cwd
        self._relevant: _Relevant = {}

    @property
    def rules(self) -> list[Rule]:
        """All rules in order."""
        return list(self._rules)

    def add(self, *rules: Rule) -> None:
        """Append rules."""
        self._rules = [*self._rules, *rules]
        self._relevant = {}

    def extended(self, rules: Iterable[Rule]) -> "RuleLayer":
        """A copy with more rules."""
        return RuleLayer([*self._rules, *rules], self._cwd)

    def last(self, tool: str, access: Access) -> Rule | None:
        """The last rule that matches the access."""
        key = (tool, access.kind)
        relevant = self._relevant  # read before the rules, which replace it
        candidates = relevant.get(key)
        if candidates is None:
            candidates = relevant[key] = self._find_relevant(tool, access.kind)
        for rule in candidates(access.target):
            if pattern_matches(rule, access, self._cwd):
                return rule
        return None

    def _find_relevant(self, tool: str, kind: AccessKind) -> Callable[[str], list[Rule]]:
        """A function that returns the rules that may match a target, the last rule first."""
        rules = [r for r in reversed(self._rules) if applies_to(r, tool, kind, self._cwd)]
        if kind in (AccessKind.READ, AccessKind.WRITE):
            is_fixed = all(rule.pattern.startswith(("/", "~/")) for rule in rules)
            cwd = Path("/") if is_fixed else self._cwd
            return _path_index(tuple(rules), cwd, os.environ.get("HOME", "")).candidates
        return lambda _target: rules
