"""Matches rules with accesses."""

import os
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from shepherd.tools.base import OPENS_SANDBOX, Access, AccessKind
from shepherd.tools.paths import glob_regex, has_open_braces
from shepherd.tools.permissions.command_pattern import command_matches
from shepherd.tools.permissions.rules import Decision, Rule


def applies_to(rule: Rule, tool: str, kind: AccessKind, cwd: Path) -> bool:
    """Whether a rule is about this tool or kind of access, and holds in `cwd`.

    A rule that opens the sandbox names the kind: `allow execute_command *` opens nothing.
    """
    if rule.scope and not cwd.is_relative_to(rule.scope):
        return False
    if kind in OPENS_SANDBOX and rule.decision is Decision.ALLOW:
        return rule.tool == kind.value
    return rule.tool == kind.value or fnmatchcase(tool, rule.tool)


def pattern_matches(rule: Rule, access: Access, cwd: Path) -> bool:
    """Whether the rule's pattern matches the target of the access."""
    match access.kind:
        case AccessKind.READ | AccessKind.WRITE:
            return path_regex(rule, cwd).fullmatch(access.target) is not None
        case AccessKind.SHELL | AccessKind.SHELL_NETWORK | AccessKind.UNSANDBOXED:
            return command_matches(rule, access.target, access.named)
        case AccessKind.NETWORK:
            return host_matches(rule.pattern, access.target)
        case AccessKind.ENVIRONMENT:
            return fnmatchcase(access.target.upper(), rule.pattern.upper())
        case AccessKind.TOOL | AccessKind.MCP | AccessKind.MEMORY | AccessKind.PROCESS:
            return fnmatchcase(access.target, rule.pattern)
        case AccessKind.REPOSITORY | AccessKind.PLAN | AccessKind.HOOK | AccessKind.NONE:
            return True


def path_regex(rule: Rule, cwd: Path) -> re.Pattern[str]:
    """The regular expression of the paths that a rule covers.

    `{cwd}/` and relative globs start in the working directory, `~/` in the home directory. Rules
    that do not allow ignore case, as some file systems do. If a glob has too many alternatives, a
    rule that allows matches nothing; other rules match everything.
    """
    home = _real_home(os.environ.get("HOME", ""))
    ignore_case = rule.decision is not Decision.ALLOW
    return _path_regex(rule.pattern, str(cwd), home, ignore_case=ignore_case)


@lru_cache(maxsize=8)
def _real_home(_home: str) -> str:
    return os.path.realpath(Path("~").expanduser())


@lru_cache(maxsize=2048)
def _path_regex(pattern: str, cwd: str, home: str, *, ignore_case: bool) -> re.Pattern[str]:
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    if has_open_braces(pattern):
        return re.compile(".*" if ignore_case else "(?!)", flags)
    for prefix, base in (("{cwd}", cwd), ("~", home)):
        if pattern == prefix:
            return re.compile(re.escape(base), flags)
        if pattern.startswith(prefix + "/"):
            return re.compile(_below(base, pattern[len(prefix) + 1 :]), flags)
    if pattern.startswith("/"):
        return re.compile(glob_regex(pattern), flags)
    return re.compile(_below(cwd, pattern.removeprefix("./")), flags)


def _below(base: str, pattern: str) -> str:
    head = re.escape(base.rstrip("/"))
    if pattern == "**":
        return head + "(?:/.*)?"
    return f"{head}/(?:{glob_regex(pattern)})"


def host_matches(pattern: str, url: str) -> bool:
    """Whether `host`, `*.host` or `host:port` matches the URL."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    pattern_host, pattern_port = _split_port(pattern.lower())
    default = {"http": 80, "https": 443}.get(parts.scheme)
    if pattern_port and int(pattern_port) != (port or default):
        return False
    return fnmatchcase(host, pattern_host.strip("[]"))


def _split_port(pattern: str) -> tuple[str, str]:
    host, _, port = pattern.rpartition(":")
    if host and port.isdigit() and (":" not in host or host.endswith("]")):
        return host, port
    return pattern, ""
