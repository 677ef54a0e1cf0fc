"""The difference of two texts by lines."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

from msgspec import Struct

from shepherd.tools.text import one_line, pluralize

EXTRA_WORK = 2_000_000
WORK_PER_LINE = 40
"""The budget of comparisons; when it is used up, the rest of the lines counts as replaced."""

Block: TypeAlias = tuple[int, int, int]
"""The start of the common lines in the first and in the second text, and their number."""
_Chain: TypeAlias = "tuple[Block, _Chain] | None"
"""A block and those before it: sequences with the same beginning share it."""
_Region = tuple[int, int, int, int]
"""The start and end line in the first text, then those in the second: `i, i_end, j, j_end`."""


def common_blocks(old: Sequence[str], new: Sequence[str]) -> list[Block]:
    """The common lines in order, as blocks that neither touch nor overlap.

    Lines that occur once in both texts are matched first (a patience diff), and between them the
    longest blocks. When the budget is used up, fewer lines match, but the result still describes
    the change in full.
    """
    # lines as numbers, which are compared faster
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    work_left = EXTRA_WORK + WORK_PER_LINE * (len(a) + len(b))
    blocks: list[Block] = []
    regions: list[_Region] = [(0, len(a), 0, len(b))]
    while regions:
        region, *ends = _trimmed(a, b, regions.pop())
        blocks += ends
        i, i_end, j, j_end = region
        work_left -= i_end - i + j_end - j
        if i == i_end or j == j_end or work_left < 0:
            continue  # nothing is left to match, or there is no time for it
        anchors = _anchors(a, b, region)
        for x, y, _ in anchors:  # each one splits off the region before it
            regions.append((i, x, j, y))
            i, j = x + 1, y + 1
        blocks += anchors
        comparisons = (i_end - i) * (j_end - j)
        if anchors:
            regions.append((i, i_end, j, j_end))
        elif comparisons <= work_left:
            work_left -= comparisons
            matches = SequenceMatcher(None, a[i:i_end], b[j:j_end]).get_matching_blocks()
            blocks += [(i + x, j + y, length) for x, y, length in matches]
    return _joined(sorted(blocks))


def _trimmed(a: list[int], b: list[int], region: _Region) -> tuple[_Region, Block, Block]:
    """The region without the common lines at both ends, and these ends."""
    i, i_end, j, j_end = region
    start = 0
    while i + start < i_end and j + start < j_end and a[i + start] == b[j + start]:
        start += 1
    end, limit = 0, min(i_end - i, j_end - j) - start
    while end < limit and a[i_end - 1 - end] == b[j_end - 1 - end]:
        end += 1
    middle = (i + start, i_end - end, j + start, j_end - end)
    return middle, (i, j, start), (i_end - end, j_end - end, end)


def _anchors(a: list[int], b: list[int], region: _Region) -> list[Block]:
    """The most lines that are unique on both sides and keep their order."""
    i, i_end, j, j_end = region
    old_counts, new_counts = Counter(a[i:i_end]), Counter(b[j:j_end])
    new_places = {b[y]: y for y in range(j, j_end) if new_counts[b[y]] == 1}
    lines = [
        (x, new_places[a[x]], 1)
        for x in range(i, i_end)
        if old_counts[a[x]] == 1 and a[x] in new_places
    ]
    return _increasing(lines)


def _increasing(blocks: list[Block]) -> list[Block]:
    """The longest part of the blocks, sorted by first number, whose second numbers increase.

    `[(0, 5, 1), (1, 2, 1), (2, 4, 1)]` gives the last two.
    """
    # for each length, the part that ends with the smallest second number, and that number
    parts: list[_Chain] = [None]
    ends: list[int] = []
    for block in blocks:
        _, y, _ = block
        length = bisect_left(ends, y)  # of the longest part that the block can follow
        ends[length : length + 1] = [y]
        parts[length + 1 : length + 2] = [(block, parts[length])]
    chain, longest = parts[-1], list[Block]()
    while chain is not None:
        block, chain = chain
        longest.append(block)
    return longest[::-1]


def _joined(blocks: list[Block]) -> list[Block]:
    """The sorted blocks without empty ones; those that touch in both texts become one."""
    joined: list[Block] = []
    for i, j, length in blocks:
        if joined and length:
            x, y, n = joined[-1]
            if (x + n, y + n) == (i, j):
                joined[-1] = x, y, n + length
                continue
        if length:
            joined.append((i, j, length))
    return joined


_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"


class Hunk(Struct, frozen=True):
    """Changes that are near each other: `diff` shows them without the names of the texts.

    Each change replaces a range of the old lines by a text.
    """

    diff: str
    changes: tuple[tuple[int, int, str], ...]


def unified_diff(before: str, after: str, name: str) -> str:
    """The changes from `before` to `after`, "" if there are none.

    Lines end at line feeds only. If both texts use CR LF throughout, its carriage returns are
    left out. Any other carriage return is part of its line.
    """
    if before == after:
        return ""
    if differ_by_line_ends(before, after):
        changed = abs(before.count("\r\n") - after.count("\r\n"))
        return with_head([f"@@ only line ends change, {pluralize(changed, 'line')} @@"], name)
    return with_head([hunk.diff for hunk in hunks_of(before, after)], name)


def with_head(diffs: Sequence[str], name: str) -> str:
    """The diff of a text from those of its hunks."""
    name = one_line(name)
    return "\n".join([f"--- {name}", f"+++ {name}", *diffs])


def differ_by_line_ends(before: str, after: str) -> bool:
    """Whether two different texts have the same lines."""
    return before.replace("\r\n", "\n") == after.replace("\r\n", "\n")


def hunks_of(before: str, after: str) -> list[Hunk]:
    """The changes from `before` to `after`, in groups that a diff shows apart."""
    old, new = _lines(before), _lines(after)
    groups = _hunks(common_blocks(old, new), len(old), len(new))
    visible_old, visible_new = old, new
    if _all_crlf(before) and _all_crlf(after):
        visible_old = [line.replace("\r\n", "\n") for line in old]
        visible_new = [line.replace("\r\n", "\n") for line in new]
    return [
        Hunk(
            "\n".join(_hunk_lines(group, visible_old, visible_new)),
            tuple((i, i_end, "".join(new[j:j_end])) for i, i_end, j, j_end in group),
        )
        for group in groups
    ]


def with_hunks(before: str, hunks: Iterable[Hunk]) -> str:
    """The text `before` with some of its hunks."""
    lines = _lines(before)
    changes = [change for hunk in hunks for change in hunk.changes]
    for start, end, text in sorted(changes, reverse=True):
        lines[start:end] = [text]
    return "".join(lines)


def _all_crlf(text: str) -> bool:
    return text.count("\n") == text.count("\r\n") == text.count("\r")


def _lines(text: str) -> list[str]:
    """The lines with their line feeds; the last one may have none."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


_Change = tuple[int, int, int, int]
"""The start and end line in the old text, then those in the new text."""


def _hunks(blocks: list[Block], old_end: int, new_end: int) -> Iterator[list[_Change]]:
    """Groups of changes, which lie between the common blocks, whose context lines touch."""
    hunk: list[_Change] = []
    i = j = 0
    for x, y, length in [*blocks, (old_end, new_end, 0)]:
        if (i, j) != (x, y):
            if hunk and i - hunk[-1][1] > 2 * _CONTEXT:
                yield hunk
                hunk = []
            hunk.append((i, x, j, y))
        i, j = x + length, y + length
    if hunk:
        yield hunk


def _hunk_lines(hunk: list[_Change], old: list[str], new: list[str]) -> Iterator[str]:
    """The header of the hunk, and its lines with those around and between its changes."""
    first_old, _, first_new, _ = hunk[0]
    _, last_old, _, last_new = hunk[-1]
    start = max(0, first_old - _CONTEXT)
    end = min(len(old), last_old + _CONTEXT)
    new_start = first_new - (first_old - start)
    new_end = last_new + (end - last_old)
    yield f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@"
    written = start
    for i, i_end, j, j_end in hunk:
        yield from _marked(" ", old[written:i])
        yield from _marked("-", old[i:i_end])
        yield from _marked("+", new[j:j_end])
        written = i_end
    yield from _marked(" ", old[written:end])


def _marked(sign: str, lines: list[str]) -> Iterator[str]:
    """Lines of a diff with ` `, `-` or `+`; the last line of a text may have no line feed."""
    for line in lines:
        yield sign + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE


def _span(start: int, end: int) -> str:
    """A line range as diffs write it; an empty range is named by the line before it."""
    length = end - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"
