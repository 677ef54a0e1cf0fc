"""Unified diffs for display: complete, and fast on long files."""

from collections.abc import Iterator

from shepherd.tools.files.matching import Block, common_blocks
from shepherd.tools.text import one_line, pluralize

_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"


def unified_diff(before: str, after: str, name: str) -> str:
    """The changes from `before` to `after`, "" if there are none.

    Lines end at line feeds only. If both texts use CR LF throughout, its carriage returns are
    left out. Any other carriage return is part of its line.
    """
    if before == after:
        return ""
    name = one_line(name)
    head = [f"--- {name}", f"+++ {name}"]
    if before.replace("\r\n", "\n") == after.replace("\r\n", "\n"):
        windows = abs(before.count("\r\n") - after.count("\r\n"))
        return "\n".join([*head, f"@@ only line ends change, {pluralize(windows, 'line')} @@"])
    if _all_crlf(before) and _all_crlf(after):
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    old, new = _lines(before), _lines(after)
    hunks = _hunks(common_blocks(old, new), len(old), len(new))
    changes = [line for hunk in hunks for line in _hunk_lines(hunk, old, new)]
    return "\n".join([*head, *changes])


def _all_crlf(text: str) -> bool:
    return text.count("\n") == text.count("\r\n") == text.count("\r")


def _lines(text: str) -> list[str]:
    """The lines with their line feeds; the last one may have none."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


_Change = tuple[int, int, int, int]
"""The start and end line in the old text, then those in the new text."""


def _changes(blocks: list[Block], old: int, new: int) -> Iterator[_Change]:
    i = j = 0
    for x, y, length in [*blocks, (old, new, 0)]:
        if (i, j) != (x, y):
            yield i, x, j, y
        i, j = x + length, y + length


def _hunks(blocks: list[Block], old: int, new: int) -> Iterator[list[_Change]]:
    """Groups of changes whose context lines touch."""
    hunk: list[_Change] = []
    for change in _changes(blocks, old, new):
        if hunk and change[0] - hunk[-1][1] > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    if hunk:
        yield hunk


def _hunk_lines(hunk: list[_Change], old: list[str], new: list[str]) -> Iterator[str]:
    start = max(0, hunk[0][0] - _CONTEXT)
    end = min(len(old), hunk[-1][1] + _CONTEXT)
    new_start = hunk[0][2] - (hunk[0][0] - start)
    new_end = hunk[-1][3] + (end - hunk[-1][1])
    yield f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@"
    at = start
    for i, i_end, j, j_end in hunk:
        yield from _marked(" ", old[at:i])
        yield from _marked("-", old[i:i_end])
        yield from _marked("+", new[j:j_end])
        at = i_end
    yield from _marked(" ", old[at:end])


def _marked(sign: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield sign + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE


def _span(start: int, end: int) -> str:
    """A line range as diffs write it; an empty range is named by the line before it."""
    length = end - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"
