"""What to keep before a call: the files that it names, and the tree if it runs programs."""

import os
import shlex
from pathlib import Path

from shepherd.tools.base import AccessKind, Claim
from shepherd.tools.call import PreparedCall
from shepherd.tools.text import one_line, valid_text

MAX_LABEL = 60
MAX_NAMED = 200
"""The limit of files that a command only mentions."""

_READ_ONLY = """
ls cat head tail wc pwd echo printf stat du df grep egrep fgrep diff cmp basename dirname realpath
readlink whoami id uname which type true false test [ cd nl cut tr seq
"""
READ_ONLY = frozenset(_READ_ONLY.split())
"""Commands that write nothing but their output; redirections count as writes of their own."""

_DECLARED = frozenset(
    {AccessKind.READ, AccessKind.WRITE, AccessKind.NETWORK, AccessKind.ENVIRONMENT}
    | {AccessKind.MEMORY, AccessKind.PLAN, AccessKind.NONE}
)
"""Kinds of accesses that name all that they change."""


def written_paths(prepared: PreparedCall) -> list[str]:
    """The paths that a call may write, and their missing parents."""
    writes = [access for access in prepared.accesses if access.kind is AccessKind.WRITE]
    exact = [access.target for access in writes if access.claim is Claim.EXACT]
    others = [access.target for access in writes if access.claim is not Claim.EXACT]
    paths = [*exact, *others[:MAX_NAMED]]
    parents = [parent for path in paths for parent in _missing_parents(path)]
    return list(dict.fromkeys([*parents, *paths]))


def changes_tree(prepared: PreparedCall) -> bool:
    """Whether a call may change files that its accesses do not name."""
    if all(access.kind in _DECLARED for access in prepared.accesses):
        return prepared.tool.starts_programs and not prepared.accesses
    return any(_may_write(prepared, i) for i in range(len(prepared.accesses)))


def call_label(prepared: PreparedCall) -> str:
    """The call in a few words, such as `edit_file notes.txt`."""
    arguments = prepared.call.arguments
    subject = next((arguments[key] for key in ("command", "path") if key in arguments), "")
    text = one_line(" ".join(valid_text(str(subject)).split()))
    short = text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"
    return f"{prepared.call.name} {short}".strip()


def _may_write(prepared: PreparedCall, index: int) -> bool:
    access = prepared.accesses[index]
    if access.kind in _DECLARED or access.kind is AccessKind.REPOSITORY:
        return False
    if access.kind is not AccessKind.SHELL or access.claim is Claim.OPAQUE:
        return True
    try:
        words = shlex.split(access.target)
    except ValueError:
        return True
    return not words or words[0] not in READ_ONLY


def _missing_parents(path: str) -> list[str]:
    parents: list[str] = []
    for parent in Path(path).parents:
        if os.path.lexists(parent):
            break
        parents.append(str(parent))
    return parents
