"""The front matter of Markdown files: YAML between two lines of dashes."""

import re
from dataclasses import dataclass, field
from typing import cast

from shepherd.errors import ToolError

MAX_CHARACTERS = 16_384
_BLOCK = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^([A-Za-z][\w-]*):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
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
        return {match[1]: match[2].strip("\"'") for match in _LINE.finditer(block)}
    if not isinstance(data, dict):
        return {}
    items = cast(dict[object, object], data).items()
    return {str(key): str(value) for key, value in items if isinstance(value, str | int | float)}
