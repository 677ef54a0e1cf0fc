"""Plan mode: nothing is written, and nothing runs that could change something."""

import shlex

from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.permissions.rules import Decision

PLAN_MODE = "plan mode allows no changes; present the plan first, and the user decides"

_READERS = frozenset(
    {
        AccessKind.READ,
        AccessKind.ENVIRONMENT,
        AccessKind.REPOSITORY,
        AccessKind.HOOK,
        AccessKind.PLAN,
    }
)

_PROGRAM_NAMES = """
ls pwd cat head tail wc stat du df which basename dirname realpath readlink cmp
"""
_READING_PROGRAMS = frozenset(_PROGRAM_NAMES.split())
"""Programs that can't write or run anything, whatever their options are."""


def plan_decision(tool: str, access: Access, *, contained: bool) -> Decision:
    """The loosest decision on an access in plan mode; kinds that are not listed are denied.

    `contained` means that the call runs in a read-only sandbox without network.
    """
    match access.kind:
        case AccessKind.NONE:
            return Decision.ALLOW
        case kind if kind in _READERS:
            return Decision.ALLOW
        case AccessKind.SHELL:
            reads = contained or is_reading_command(access)
            return Decision.ALLOW if reads else Decision.DENY
        case AccessKind.WRITE if contained and access.claim is Claim.MENTION:
            return Decision.ALLOW  # the sandbox refuses it
        case AccessKind.NETWORK if tool in ("http_get", "task") or tool.startswith("ask_"):
            return Decision.ALLOW  # a model that is asked has the same rules
        case AccessKind.TOOL | AccessKind.MCP:
            return Decision.ASK
        case _:
            return Decision.DENY


def is_reading_command(access: Access) -> bool:
    """Whether a command can be read in full and only reads, with any options."""
    if access.claim is Claim.OPAQUE:
        return False
    try:
        words = shlex.split(access.target)
    except ValueError:
        return False
    return bool(words) and words[0] in _READING_PROGRAMS
