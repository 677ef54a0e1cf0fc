"""Reads files that become part of a prompt: only below their root, only what no rule refuses."""

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tools.base import Access, AccessKind, ToolContext
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.files.textfile import detect
from shepherd.tools.permissions.content import is_key_file
from shepherd.tools.permissions.defaults import default_rules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.text import plain_text, valid_text

TOOL = "read_file"
"""The tool whose rules hold for these reads."""

_HIDDEN = re.compile("[\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]")
"""Characters with which a file could say something to a model that no reader sees."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A file's text without hidden characters, and the number of bytes that were not read."""

    path: Path
    text: str
    unread: int = 0


class KnowledgeFiles:
    """Reads files below a root under the rules of a conversation; it asks nobody."""

    def __init__(self, policy: PermissionPolicy, spill_dir: Path) -> None:
        self._policy = policy
        self._spill_dir = spill_dir

    def read(self, path: Path, root: Path, limit: int, name: str = "") -> FileText:
        """At most `limit` bytes of the file; links are followed, but not out of `root`.

        Raises ToolError if it lies elsewhere, if a rule refuses it, or if it is not text. `name`
        is how the error calls it.
        """
        real, name = Path(os.path.realpath(path)), name or str(path)
        access = Access(AccessKind.READ, str(real))
        self._check(real, root, access, name)
        context = ToolContext(
            self._policy.cwd,
            self._spill_dir,
            denies=partial(self._policy.denies, TOOL),
            grants=frozenset({access}),
        )
        with file_errors(name), FileAccess(context).open(real) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1)
        encoding = detect(data)
        if encoding is None:
            raise ToolError(f"it is not text: {name}")
        text = data[:limit].decode(encoding.codec, "ignore")
        clean = _HIDDEN.sub("", plain_text(valid_text(text)))
        return FileText(real, clean, max(0, size - limit))

    def _check(self, real: Path, root: Path, access: Access, name: str) -> None:
        if not real.is_relative_to(root):
            raise ToolError(f"it leads out of {root}: {name}")
        if self._policy.denies(TOOL, access):
            raise ToolError(f"denied by rule: {name}")
        if is_key_file(real):
            raise ToolError(f"it holds a private key: {name}")
        verdict = self._policy.decide_one(TOOL, access)
        if verdict.decision is not Decision.ALLOW and verdict.rule not in default_rules():
            raise ToolError(f"a rule asks before it is read: {name}")
