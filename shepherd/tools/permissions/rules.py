"""A permission rule: a tool or kind of access, a pattern of targets, and a decision."""

import json
import logging
import os
import re
import stat
import tomllib
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from msgspec import DecodeError, Struct, field, structs
from msgspec.json import decode, encode

from shepherd.config.files import exclusive, write_private
from shepherd.errors import ConfigError
from shepherd.tools.text import one_line, pluralize

_log = logging.getLogger(__name__)


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
        """The stored rules in order; raises like `dated`."""
        return list(self.dated())

    def dated(self) -> dict[Rule, str]:
        """The stored rules in order, each with the day when it was stored, "" if unknown.

        Raises ConfigError if the file is broken, or if others can write to it and it can't be
        trusted.
        """
        try:
            with self.path.open("rb") as file:
                _check_owner(self.path, os.fstat(file.fileno()))
                data = tomllib.load(file)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: {error}; repair or delete the file") from error
        entries = data.pop("rule", [])
        if data or not isinstance(entries, list):
            raise ConfigError(
                f"{self.path}: it holds [[rule]] tables and nothing else; repair or delete the file"
            )
        rules: dict[Rule, str] = {}
        for rule, since in map(self._rule, cast(list[object], entries)):
            rules.pop(rule, None)  # of equal ones, the last one counts
            rules[rule] = since
        return rules

    def add(self, rule: Rule) -> None:
        """Append a rule; an equal rule moves to the end."""
        with exclusive(self.path):
            rules = self.dated()
            rules.pop(rule, None)
            self._save({**rules, rule: today()})

    def remove(self, rule: Rule) -> bool:
        """Delete a rule; False if it was not stored."""
        with exclusive(self.path):
            rules = self.dated()
            if rules.pop(rule, None) is None:
                return False
            self._save(rules)
            return True

    def _rule(self, entry: object) -> tuple[Rule, str]:
        """The rule and its day in a table of the file; raises ConfigError, also for other keys."""
        try:
            table = dict(cast(dict[str, Any], entry))
            tool, pattern, scope = table.pop("tool"), table.pop("pattern"), table.pop("scope", "")
            since = table.pop("since", "")
            rule = Rule(tool, pattern, Decision(table.pop("decision")), scope)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.path}: bad rule {entry!r}; repair or delete it") from error
        if table or not all(isinstance(text, str) for text in (tool, pattern, scope, since)):
            raise ConfigError(f"{self.path}: bad rule {entry!r}; repair or delete it")
        return rule, since

    def _save(self, rules: dict[Rule, str]) -> None:
        """Write the file; rules of a session are not for later ones."""
        lasting = {r: day for r, day in rules.items() if r.lifetime is Lifetime.ALWAYS}
        tables = [_as_table(rule, since) for rule, since in lasting.items()]
        write_private(self.path, "\n".join([_HEADER, *tables]))


class RuleUse(Struct, frozen=True):
    """How often a rule has decided on a call, and the day of the last time."""

    rule: Rule
    count: int = 0
    day: str = ""

    def describe(self) -> str:
        """`used 3 times, last on 2026-01-31`."""
        if not self.count:
            return "never used"
        return f"used {pluralize(self.count, 'time')}, last on {one_line(self.day)}"


class RuleUses(Struct):
    """Counts the uses of rules, for the user to read; no rule comes from here.

    They are kept in memory until `save` adds them to the file; without a `path`, for good.
    """

    path: Path | None
    _new: dict[Rule, RuleUse] = field(default_factory=dict[Rule, RuleUse])

    def note(self, rule: Rule) -> None:
        """Count one use, of today."""
        count = self._new.get(rule, RuleUse(rule)).count
        self._new[rule] = RuleUse(rule, count + 1, today())

    def all(self) -> dict[Rule, RuleUse]:
        """The uses of now and of earlier sessions; a broken file has none."""
        uses: dict[Rule, RuleUse] = {}
        if self.path is not None:
            # without a file that can be read the counts begin anew, which changes no decision
            with suppress(OSError, DecodeError):
                uses = {u.rule: u for u in decode(self.path.read_bytes(), type=list[RuleUse])}
        for rule, use in self._new.items():
            count = uses.get(rule, RuleUse(rule)).count + use.count
            uses[rule] = structs.replace(use, count=count)
        return uses

    def save(self) -> None:
        """Add what is new to the file, whole or not at all; if that fails, it stays in memory."""
        if self.path is None or not any(r.lifetime is Lifetime.ALWAYS for r in self._new):
            return
        try:
            with exclusive(self.path):
                uses = [u for u in self.all().values() if u.rule.lifetime is Lifetime.ALWAYS]
                write_private(self.path, encode(uses))
        except OSError as error:
            _log.info("uses of rules not saved: %s", error)  # a warning would be on the screen
        else:
            self._new = {r: u for r, u in self._new.items() if r.lifetime is Lifetime.SESSION}


def today() -> str:
    """The day here, as `2026-01-31`."""
    return datetime.now().astimezone().date().isoformat()


def _as_table(rule: Rule, since: str) -> str:
    """The rule as a table `[[rule]]` of TOML; its lifetime is that of the file."""
    fields = {"tool": rule.tool, "pattern": rule.pattern, "decision": rule.decision.value}
    if rule.scope:
        fields["scope"] = rule.scope
    if since:
        fields["since"] = since
    lines = [f"{name} = {_toml_string(value)}" for name, value in fields.items()]
    return "\n".join(["[[rule]]", *lines, ""])


def _toml_string(text: str) -> str:
    """A string of TOML, which is one of JSON except that it escapes DEL too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError for a file that another user could fill with rules."""
    if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path}: others can write to it; run: chmod 600 {path}")
