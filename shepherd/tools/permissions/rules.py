"""A permission rule: a tool or kind of access, a pattern of targets, and a decision."""

import json
import os
import re
import stat
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from shepherd.config.files import exclusive, write_private
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

    SESSION = "session"
    ALWAYS = "always"


class Rule(Struct, frozen=True):
    """One rule.

    `tool` is a tool's name or glob, or a kind of access (read, write, effect, shell,
    shell_network, unsandboxed, network, environment, mcp, tool). The kind of access decides how
    `pattern` is read: as a path glob, a change, a command, a host or a name. `scope` is the
    directory in and below which the rule holds; "" means everywhere.
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


_LIFETIME_TEXT = {
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
    decision, tool, pattern = match.groups()
    check_pattern(tool, pattern)
    return Rule(tool, pattern, Decision(decision))


EFFECT_PATTERN = re.compile(
    r"(?P<deed>write|delete|any) (?:(?P<untracked>untracked)|below (?P<files>\d{1,9}) files?"
    r"|(?P<path>\S(?:.*\S)?))"
)


def check_pattern(tool: str, pattern: str) -> None:
    """Raise ConfigError for a pattern that could never match."""
    if tool == "effect" and pattern != "*" and EFFECT_PATTERN.fullmatch(pattern) is None:
        raise ConfigError(
            f"not a pattern of changes: {pattern!r}; write `write PATHS`, `delete PATHS` or "
            "`any PATHS`, with `untracked` or `below 20 files` in place of PATHS"
        )


_HEADER = '# Rules that were answered with "always". The last match wins; delete what you regret.\n'


class PermissionStore(Struct, frozen=True):
    """A file of rules; `path` need not exist yet."""

    path: Path

    def load(self) -> list[Rule]:
        """The stored rules in order.

        Raises ConfigError if the file is broken, or if others can write to it and it can't be
        trusted.
        """
        try:
            with self.path.open("rb") as file:
                _check_owner(self.path, os.fstat(file.fileno()))
                data = tomllib.load(file)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: {error}; repair or delete the file") from error
        entries = data.pop("rule", [])
        if data or not isinstance(entries, list):
            raise ConfigError(
                f"{self.path}: it holds [[rule]] tables and nothing else; repair or delete the file"
            )
        return [self._rule(entry) for entry in cast(list[object], entries)]

    def add(self, rule: Rule) -> None:
        """Append a rule; an equal rule moves to the end."""
        with exclusive(self.path):
            rules = [r for r in self.load() if r != rule]
            self._save([*rules, rule])

    def remove(self, rule: Rule) -> bool:
        """Delete a rule; False if it was not stored."""
        with exclusive(self.path):
            rules = self.load()
            remaining = [r for r in rules if r != rule]
            if len(remaining) < len(rules):
                self._save(remaining)
            return len(remaining) < len(rules)

    def _rule(self, entry: object) -> Rule:
        """The rule in a table of the file; raises ConfigError, also for a key that is unknown."""
        try:
            table = dict(cast(dict[str, Any], entry))
            tool, pattern, scope = table.pop("tool"), table.pop("pattern"), table.pop("scope", "")
            rule = Rule(tool, pattern, Decision(table.pop("decision")), scope)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.path}: bad rule {entry!r}; repair or delete it") from error
        if table or not all(isinstance(text, str) for text in (tool, pattern, scope)):
            raise ConfigError(f"{self.path}: bad rule {entry!r}; repair or delete it")
        return rule

    def _save(self, rules: list[Rule]) -> None:
        """Write the file; rules of a session are not for later ones."""
        tables = [_as_table(rule) for rule in rules if rule.lifetime is Lifetime.ALWAYS]
        write_private(self.path, "\n".join([_HEADER, *tables]))


def _as_table(rule: Rule) -> str:
    """The rule as a table `[[rule]]` of TOML; its lifetime is that of the file."""
    fields = {"tool": rule.tool, "pattern": rule.pattern, "decision": rule.decision.value}
    if rule.scope:
        fields["scope"] = rule.scope
    lines = [f"{name} = {_toml_string(value)}" for name, value in fields.items()]
    return "\n".join(["[[rule]]", *lines, ""])


def _toml_string(text: str) -> str:
    """A string of TOML, which is one of JSON except that it escapes DEL too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError for a file that another user could fill with rules."""
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path}: others can write to it; run: chmod 600 {path}")
