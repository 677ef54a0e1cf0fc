"""Files of lines with the rules that hold for each: RULE;RULE … <TAB> LINE."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.rules import parse_rule
from shepherd.tools.shell.accesses import line_accesses

HERE = Path(__file__).parent


class Case(NamedTuple):
    """A line, and what the user allows the shell."""

    line: str
    rules: tuple[str, ...]


def read_lines(name: str, *, separator: str) -> list[Case]:
    r"""The entries of a file here; in a line, `\n` is a line break and `\\` a backslash."""
    entries = [line.split("\t") for line in (HERE / name).read_text().splitlines()[1:]]
    return [
        Case(
            line.replace("\\n", "\n").replace("\\\\", "\\"),
            tuple(rule.strip() for rule in rules.split(separator)),
        )
        for rules, line in entries
    ]


def decide(cwd: Path, cases: Iterable[Case]) -> list[tuple[Case, Verdict]]:
    """The verdict on each line in `cwd`; lines with the same rules share a policy."""

    @cache
    def policy(rules: tuple[str, ...]) -> PermissionPolicy:
        user = [parse_rule(f"allow shell {rule}") for rule in rules]
        return PermissionPolicy(cwd, user=user)

    return [
        (case, policy(case.rules).decide("execute_command", line_accesses(case.line, cwd)))
        for case in cases
    ]
