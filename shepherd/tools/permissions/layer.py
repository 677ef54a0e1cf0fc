"""An ordered list of rules, quick to ask: tools that walk a tree ask for every file."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.base import Access, AccessKind
from shepherd.tools.permissions.match import path_regex, pattern_matches, speaks_of
from shepherd.tools.permissions.rules import Rule


class RuleLayer:
    """Rules of equal trust in one working directory; the last match wins."""

    def __init__(self, rules: Iterable[Rule], cwd: Path) -> None:
        self._rules = list(rules)
        self._cwd = cwd
        self._relevant: dict[tuple[str, AccessKind], _Relevant] = {}

    @property
    def rules(self) -> list[Rule]:
        """All rules in order."""
        return list(self._rules)

    def add(self, *rules: Rule) -> None:
        """Add rules behind the others."""
        self._rules += rules
        self._relevant.clear()

    def extended(self, rules: Iterable[Rule]) -> "RuleLayer":
        """A copy with more rules."""
        return RuleLayer([*self._rules, *rules], self._cwd)

    def last(self, tool: str, access: Access) -> Rule | None:
        """The last rule that meets the access."""
        key = (tool, access.kind)
        if key not in self._relevant:
            self._relevant[key] = self._find_relevant(tool, access.kind)
        relevant = self._relevant[key]
        if relevant.paths is not None and not relevant.paths.fullmatch(access.target):
            return None
        for rule in relevant.rules:
            if pattern_matches(rule, access, self._cwd):
                return rule
        return None

    def _find_relevant(self, tool: str, kind: AccessKind) -> "_Relevant":
        rules = [r for r in reversed(self._rules) if speaks_of(r, tool, kind, self._cwd)]
        if kind not in (AccessKind.READ, AccessKind.WRITE):
            return _Relevant(rules)
        regexes = (path_regex(rule, self._cwd) for rule in rules)
        either = "|".join(f"(?i:{r.pattern})" for r in regexes) or "(?!)"
        return _Relevant(rules, re.compile(either, re.DOTALL))


@dataclass(frozen=True, slots=True)
class _Relevant:
    """Rules for one tool and kind, the last first; `paths` meets all paths that any of them do."""

    rules: list[Rule]
    paths: re.Pattern[str] | None = None
