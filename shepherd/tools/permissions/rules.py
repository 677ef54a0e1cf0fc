"""A permission rule: a tool or kind of access, a pattern of targets, and a decision."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from shepherd.errors import ConfigError
from shepherd.tools.text import one_line


class Decision(StrEnum):
    """The decision of a rule."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return _STRICTNESS[self]


_STRICTNESS = {Decision.ALLOW: 0, Decision.ASK: 1, Decision.DENY: 2}


class Lifetime(StrEnum):
    """The lifetime of a rule."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    `tool` is a tool's name or glob, or a kind of access (read, write, shell, shell_network,
    unsandboxed, network, environment, mcp, tool). The kind of access decides how `pattern` is
    read: as a path glob, a command, a host or a name. `scope` is the directory in and below which
    the rule holds; "" means everywhere.
    """

    tool: str
    pattern: str
    decision: Decision
    scope: str = ""
    lifetime: Lifetime = Lifetime.ALWAYS

    def __str__(self) -> str:
        return one_line(f"{self.decision} {self.tool} {self.pattern}")

    def describe(self) -> str:
        """The rule in full, as it is shown to the user before it is stored."""
        where = one_line(f"in {self.scope}") if self.scope else "everywhere"
        return f"{self} ({where}, {_LIFETIME_TEXT[self.lifetime]})"

    def lasting(self, lifetime: Lifetime) -> "Rule":
        """The same rule with another lifetime."""
        return replace(self, lifetime=lifetime)


_LIFETIME_TEXT = {
    Lifetime.ONCE: "this call only",
    Lifetime.SESSION: "until this session ends",
    Lifetime.ALWAYS: "kept for later sessions",
}
_RULE = re.compile(r"\s*(allow|ask|deny)\s+([a-z0-9_*?]+)\s+(\S(?:.*\S)?)\s*")


def parse_rule(text: str) -> Rule:
    """The rule written as `allow shell git status *`; raises ConfigError."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"not a permission rule: {text!r}; write DECISION TOOL PATTERN, "
            "as in 'allow shell git status *' or 'deny read secrets/**'"
        )
    return Rule(match[2], match[3], Decision(match[1]))
