"""Unified diffs for the eye, fast on long files."""

import difflib
import re

from shepherd.tools.text import counted, one_line

_CONTEXT = 3
_MAX_CHANGED = 2000
_MAX_SHOWN = 400
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def unified_diff(before: str, after: str, name: str) -> str:
    """What changes from `before` to `after`, "" if nothing does.

    Very large changes are told, not shown.
    """
    if before == after:
        return ""
    name = one_line(name)
    old, new = before.splitlines(), after.splitlines()
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    changed_old, changed_new = len(old) - start - end, len(new) - start - end
    if max(changed_old, changed_new) > _MAX_CHANGED and min(changed_old, changed_new) > 0:
        become = "becomes" if changed_old == 1 else "become"
        change = f"{counted(changed_old, 'line')} {become} {changed_new}"
        return f"--- {name}\n+++ {name}\n@@ {change} @@"
    skip = max(start - _CONTEXT, 0)
    keep = max(end - _CONTEXT, 0)
    lines = difflib.unified_diff(
        old[skip : len(old) - keep], new[skip : len(new) - keep], name, name, lineterm=""
    )
    shown = [_shift(line, skip) for line in lines]
    if not shown:
        return f"--- {name}\n+++ {name}\n@@ only line ends change @@"
    if len(shown) > _MAX_SHOWN:
        shown[_MAX_SHOWN:] = [f"@@ {counted(len(shown) - _MAX_SHOWN, 'more line')} of diff @@"]
    return "\n".join(shown)


def _common(one: list[str], other: list[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _shift(line: str, by: int) -> str:
    found = _HUNK.match(line)
    if not found or not by:
        return line
    old, new = int(found[1]) + by, int(found[3]) + by
    return f"@@ -{old}{found[2] or ''} +{new}{found[4] or ''} @@"
