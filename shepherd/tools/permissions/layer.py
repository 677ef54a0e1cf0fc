"""An ordered list of rules, quick to ask: tools that walk a tree ask for every file."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from shepherd.tools.base import Access, AccessKind
from shepherd.tools.permissions.index import PathIndex
from shepherd.tools.permissions.match import pattern_matches, speaks_of
from shepherd.tools.permissions.rules import Rule

_Relevant: TypeAlias = dict[tuple[str, AccessKind], Callable[[str], list[Rule]]]


class RuleLayer:
    """Rules of equal trust in one working directory; the last match wins.

    A rule may be added while another thread asks: what that thread found before is not kept.
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
        """Add rules behind the others."""
        self._rules = [*self._rules, *rules]
        self._relevant = {}

    def extended(self, rules: Iterable[Rule]) -> "RuleLayer":
        """A copy with more rules."""
        return RuleLayer([*self._rules, *rules], self._cwd)

    def last(self, tool: str, access: Access) -> Rule | None:
        """The last rule that meets the access."""
        key = (tool, access.kind)
        relevant = self._relevant  # before the rules: an older one is thrown away with them
        candidates = relevant.get(key)
        if candidates is None:
            candidates = relevant[key] = self._find_relevant(tool, access.kind)
        for rule in candidates(access.target):
            if pattern_matches(rule, access, self._cwd):
                return rule
        return None

    def _find_relevant(self, tool: str, kind: AccessKind) -> Callable[[str], list[Rule]]:
        """What gives the rules that may meet a target, the last first."""
        rules = [r for r in reversed(self._rules) if speaks_of(r, tool, kind, self._cwd)]
        if kind in (AccessKind.READ, AccessKind.WRITE):
            return PathIndex(rules, self._cwd).candidates
        return lambda _target: rules
