"""Line numbers of settings in a TOML file, which tomllib does not provide."""

from collections.abc import Sequence
from typing import Any, cast

Key = str | int

MAX_PARSES = 300
"""The maximum number of parses to find one line; after that, the nearest known line counts."""


def line_of(text: str, path: Sequence[Key]) -> int:
    """The line, from 1, on which the setting at `path` starts.

    If it is missing, its nearest existing parent counts, or line 1. `text` is valid TOML. For
    messages only, because it is slow (it parses beginnings of the file).
    """
    import tomllib

    lines = text.splitlines()
    while path and not _contains(tomllib.loads(text), path):
        path = path[:-1]
    if not path:
        return 1
    return _first_statement(lines, _lines_before(lines, path)) + 1


def _lines_before(lines: Sequence[str], path: Sequence[Key]) -> int:
    """The largest number of lines that are valid TOML without `path`, by binary search."""
    lacking, having, parses = 0, len(lines), 0
    while having - lacking > 1 and parses < MAX_PARSES:
        middle = (lacking + having) // 2
        for count in (*range(middle, lacking, -1), *range(middle + 1, having)):
            parsed = _parse("\n".join(lines[:count]))
            parses += 1
            if parsed is not None or parses >= MAX_PARSES:
                break
        else:
            break
        if parsed is not None and _contains(parsed, path):
            having = count
        elif parsed is not None:
            lacking = count
    return lacking


def _first_statement(lines: Sequence[str], start: int) -> int:
    while start < len(lines) - 1 and lines[start].strip()[:1] in ("", "#"):
        start += 1
    return start


def _parse(text: str) -> dict[str, Any] | None:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _contains(data: object, path: Sequence[Key]) -> bool:
    for key in path:
        if isinstance(data, dict) and key in data:
            data = cast(dict[Key, object], data)[key]
        elif isinstance(data, list) and isinstance(key, int):
            items = cast(list[object], data)
            if not 0 <= key < len(items):
                return False
            data = items[key]
        else:
            return False
    return True
