"""Line numbers of settings in a TOML file, which tomllib does not give."""

import tomllib
from collections.abc import Sequence
from typing import Any, cast

Key = str | int


def line_of(text: str, path: Sequence[Key]) -> int:
    """The line, from 1, on which the setting at `path` starts.

    The longest part of `path` that is there counts; 1 when nothing is. `text` is valid TOML. Slow
    (the file is parsed line by line): for messages only.
    """
    lines = text.splitlines()
    while path and not _contains(tomllib.loads(text), path):
        path = path[:-1]
    if not path:
        return 1
    end_of_previous = 0
    for count in range(1, len(lines) + 1):
        parsed = _parse("\n".join(lines[:count]))
        if parsed is None:
            continue
        if _contains(parsed, path):
            break
        end_of_previous = count
    return _first_statement(lines, end_of_previous) + 1


def _first_statement(lines: Sequence[str], start: int) -> int:
    while start < len(lines) - 1 and lines[start].strip()[:1] in ("", "#"):
        start += 1
    return start


def _parse(text: str) -> dict[str, Any] | None:
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
