"""Reads files that become part of a prompt: only below their root, only what no rule refuses."""

import os
import re
from functools import partial
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from shepherd.errors import ToolError
from shepherd.tools.base import READ_FILE, Access, AccessKind, ToolContext
from shepherd.tools.files.access import FileAccess
from shepherd.tools.files.opening import file_errors
from shepherd.tools.files.textfile import detect
from shepherd.tools.permissions.content import is_key_file
from shepherd.tools.permissions.defaults import default_rules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.text import plain_text, valid_text

MAX_CHARACTERS = 16_384
_BLOCK = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^(?P<key>[A-Za-z][\w-]*):[ \t]*(?P<value>\S.*?)[ \t]*$", re.MULTILINE)


class Document(Struct, frozen=True):
    """A text, and the values of its front matter that are texts or numbers."""

    body: str
    values: dict[str, str] = field(default_factory=dict[str, str])

    def line(self, key: str) -> str:
        """The value on one line, "" if there is none."""
        return " ".join(self.values.get(key, "").split())


def split_front_matter(text: str) -> Document:
    """The document; a text without front matter is all body. Raises ToolError."""
    match = _BLOCK.match(text)
    if match is None:
        return Document(text.strip())
    if len(match[1]) > MAX_CHARACTERS:
        raise ToolError(f"the front matter has more than {MAX_CHARACTERS} characters")
    return Document(text[match.end() :].strip(), _values(match[1]))


def _values(block: str) -> dict[str, str]:
    """The values; a block that is not YAML is read line by line, as other agents do."""
    import yaml  # only for files that have front matter

    try:
        data = cast(object, yaml.safe_load(block))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {line["key"]: line["value"].strip("\"'") for line in _LINE.finditer(block)}
    if not isinstance(data, dict):
        return {}
    items = cast(dict[object, object], data).items()
    return {str(key): str(value) for key, value in items if isinstance(value, str | int | float)}


_HIDDEN = re.compile("[\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]")
"""Characters with which a file could say something to a model that no reader sees."""


class FileText(Struct, frozen=True):
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
            denies=partial(self._policy.denies, READ_FILE),
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
        if self._policy.denies(READ_FILE, access):
            raise ToolError(f"denied by rule: {name}")
        if is_key_file(real):
            raise ToolError(f"it holds a private key: {name}")
        verdict = self._policy.decide_one(READ_FILE, access)
        if verdict.decision is not Decision.ALLOW and verdict.rule not in default_rules():
            raise ToolError(f"a rule asks before it is read: {name}")
