"""The names under which models and rules know the tools of servers."""

import hashlib
import re
from collections.abc import Sequence

MAX_NAME = 64
"""The longest name that the APIs of all providers take."""

_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_NOT_IN_TARGET = re.compile(r"[^A-Za-z0-9_.-]+")
_HASH = 6


def tool_names(server: str, tools: Sequence[str]) -> list[str]:
    """`SERVER__TOOL` for each tool, valid for all APIs and each different."""
    result: list[str] = []
    for tool in tools:
        name = f"{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
        if len(name) > MAX_NAME or name in result:
            name = f"{name[: MAX_NAME - _HASH - 1]}_{_hash(tool)}"
        result.append(name)
    return result


def access_target(server: str, tool: str) -> str:
    """`SERVER/TOOL` as rules read it: without characters that have a meaning in patterns."""
    name = _NOT_IN_TARGET.sub("_", tool)
    return f"{server}/{name if name == tool else f'{name}_{_hash(tool)}'}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
