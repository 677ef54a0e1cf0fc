"""The parts of a change with check boxes: which of them the user keeps."""

from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct

from shepherd.cli.approval.pager import Row, fold
from shepherd.cli.approval.question import is_diff, text_lines
from shepherd.tools.permissions.approval import Part
from shepherd.tools.text import pluralize, reveal

HINT = "Space: keep or drop. Right: the diff. a: all, none. Enter: done. Esc: back"
NOTHING = "Nothing is chosen: Space chooses, and Esc goes back to the question."


class _Item(Struct, frozen=True):
    """A file, or one hunk of an unfolded file, with the numbers of its parts."""

    text: str
    numbers: tuple[int, ...]
    diff: str = ""
    is_hunk: bool = False


class Checklist:
    """Handles keys; `answer` has the numbers of the kept parts, once the user has chosen."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.answer: tuple[int, ...] | None = None
        self._parts = parts
        self._kept = set(range(1, len(parts) + 1))
        self._unfolded: set[int] = set()
        """The first parts of the files whose hunks or diffs are visible."""
        self._marked = 0
        self._top = 0
        self._follows = True
        """Whether the marked line must be visible."""
        self._note = ""

    def move(self, step: int) -> None:
        """Mark the next or the previous line."""
        self._note, self._follows = "", True
        self._marked = max(0, min(self._marked + step, len(self._items()) - 1))

    def page(self, rows: int) -> None:
        """Show the rows further down or up."""
        self._follows = False
        self._top += rows

    def toggle(self) -> None:
        """Keep the marked parts, or drop them if all of them are kept."""
        self._change(self._items()[self._marked].numbers)

    def toggle_all(self) -> None:
        """Keep all parts, or none if all are kept."""
        self._change(range(1, len(self._parts) + 1))

    def unfold(self) -> None:
        """Show the hunks and the diff of the marked file."""
        self._unfolded.add(self._items()[self._marked].numbers[0])

    def fold(self) -> None:
        """Hide the diff of the file that is marked, or of which a hunk is."""
        items = self._items()
        while items[self._marked].is_hunk:
            self._marked -= 1
        self._unfolded.discard(items[self._marked].numbers[0])
        self._follows = True

    def accept(self) -> None:
        """Make the kept parts the answer; there must be one."""
        if self._kept:
            self.answer = tuple(sorted(self._kept))
        else:
            self._note = NOTHING

    def rows(self, sign: str, width: int, height: int) -> list[Row]:
        """At most `height` rows; `sign` is before the marked line."""
        count = f"{len(self._kept)} of {pluralize(len(self._parts), 'part')}"
        title: Row = [(f"Keep which of these changes?  ({count})"[:width], "warn")]
        note = fold([(f"  {self._note or HINT}", "warn" if self._note else "quiet")], width)
        rows: list[Row] = []
        room = max(1, height - len(note) - 1)
        for index, item in enumerate(self._items()):
            first = len(rows)
            rows += self._item_rows(item, sign if index == self._marked else " " * len(sign), width)
            if index == self._marked and self._follows:
                self._top = min(first, max(self._top, len(rows) - room))
        self._top = max(0, min(self._top, len(rows) - room))
        return [title, *rows[self._top : self._top + room], *note][:height]

    def _items(self) -> list[_Item]:
        """The visible lines."""
        items: list[_Item] = []
        numbered = enumerate(self._parts, 1)
        for _, group in groupby(numbered, lambda entry: (entry[1].path, bool(entry[1].hunk))):
            parts = dict(group)
            numbers, [first, *others] = tuple(parts), [*parts.values()]
            is_unfolded = numbers[0] in self._unfolded
            text = f"{first.title}, {len(numbers)} hunks" if others else first.name
            diff = first.diff if is_unfolded and not others else ""
            items.append(_Item(text, numbers, diff))
            if is_unfolded and others:
                items += [_Item(p.hunk, (n,), p.diff, is_hunk=True) for n, p in parts.items()]
        return items

    def _item_rows(self, item: _Item, sign: str, width: int) -> list[Row]:
        """The line of an item, and its diff."""
        kept = len(self._kept.intersection(item.numbers))
        box = "x" if kept == len(item.numbers) else "-" if kept else " "
        indent = "    " if item.is_hunk else ""
        style = "" if sign.isspace() else "bold"
        # a long name is no reason to hide the others
        line = f"{sign} {indent}[{box}] {reveal(item.text)}"
        rows: list[Row] = fold([(line, style)], width, lambda row: "        " if row else "")
        lines = [*text_lines(item.diff)] if item.diff else []
        for text in lines[2:] if is_diff(item.diff) else lines:  # the names are above
            rows += fold(text.fragments(), width, lambda _row: f"{indent}      ")
        return rows

    def _change(self, numbers: Sequence[int]) -> None:
        self._note = ""
        if self._kept.issuperset(numbers):
            self._kept.difference_update(numbers)
        else:
            self._kept.update(numbers)
