"""Lays out a question in the available rows."""

from dataclasses import dataclass

from shepherd.cli.approval.dialog import TYPING, Dialog
from shepherd.cli.approval.pager import Row, fold

MIN_WIDTH = 20
"""A narrower window can't show enough for a yes."""
MIN_WIDTH_FOR_KEYS = 55
MIN_TEXT_ROWS = 3
"""With fewer rows for the text, everything around it is as short as possible."""
TOO_SMALL = ("The window is too small", "for the question.", "Make it larger,", "or Esc: no.")
PAGE_KEYS = "(PgUp PgDn Space g G)"
FEW_PAGE_KEYS = "(Space g G)"
HINT = "Up, Down, Enter. Esc: no, and stop"
RULES_PAGED = "  adds the rules at the end of the text"


@dataclass(frozen=True, slots=True)
class Frame:
    """The drawn rows; `end` tells whether the end of the text is among them.

    It is not `legible` if there is no space for the question.
    """

    rows: list[Row]
    end: bool = False
    legible: bool = True


def preferred_rows(dialog: Dialog, width: int, available: int) -> int:
    """The number of rows that the question needs."""
    around = _Around(dialog, "", width, available)
    return min(available, around.height + dialog.pager.height(width, available))


def lay_out(dialog: Dialog, sign: str, *, focused: bool, width: int, height: int) -> Frame:
    """The question in at most `height` rows of `width` cells; `sign` is before the marked line."""
    around = _Around(dialog, sign, width, height, focused=focused)
    min_rows = min(MIN_TEXT_ROWS + 1, dialog.pager.height(width, height))
    if height - around.height < min_rows:
        around = _Around(dialog, sign, width, height, focused=focused, short=True)
    if height - around.height < min_rows or width < MIN_WIDTH:
        return Frame([_row(line[:width], "warn") for line in TOO_SMALL[:height]], legible=False)
    room = height - around.height
    pager = dialog.pager
    fits = pager.fits(width, room)
    text = pager.rows(width, room if fits else room - 1)
    keys = PAGE_KEYS if width >= MIN_WIDTH_FOR_KEYS else FEW_PAGE_KEYS
    position = [] if fits else [_row(f"  {pager.position()} {keys}"[:width], "warn")]
    rows = [*around.title, *text, *position, *around.menu, *around.rules, *around.note]
    return Frame(rows, end=pager.at_end)


class _Around:
    """The rows above and below the text."""

    def __init__(
        self,
        dialog: Dialog,
        sign: str,
        width: int,
        height: int,
        *,
        focused: bool = True,
        short: bool = False,
    ) -> None:
        question = dialog.question
        cause = f"  ({question.cause})" if question.cause else ""
        self.title = _folded(dialog, question.title + cause, width, 1 if short else 3, "warn")
        self.menu = _short_menu(dialog) if short else _menu(dialog, sign, width, focused=focused)
        self.rules = _rules(dialog, width, 1 if short else max(3, height // 4))
        note = dialog.note or (HINT if focused else TYPING)
        style = "warn" if dialog.note or not focused else "quiet"
        self.note = _folded(dialog, f"  {note}", width, 1 if short else 2, style)

    @property
    def height(self) -> int:
        """The number of rows."""
        return sum(map(len, (self.title, self.menu, self.rules, self.note)))


def _menu(dialog: Dialog, sign: str, width: int, *, focused: bool) -> list[Row]:
    rows: list[Row] = []
    for number, entry in enumerate(dialog.question.entries, start=1):
        is_marked = entry is dialog.marked
        first = sign if is_marked else " " * len(sign)
        line = f"{first} {number} {entry.answer.value:<8} {entry.meaning}"
        rows.append(_row(line[:width], "bold" if is_marked and focused else ""))
    return rows


def _short_menu(dialog: Dialog) -> list[Row]:
    words = [
        f"[{entry.answer.value}]" if entry is dialog.marked else f"{entry.answer.value}"
        for entry in dialog.question.entries
    ]
    return [_row(" ".join(words), "bold")]


def _rules(dialog: Dialog, width: int, max_rows: int) -> list[Row]:
    """The rules of the marked line, or a hint to their place; they are never cut."""
    rows = [
        row
        for rule in dialog.marked.rules
        for row in fold([(rule, "")], width, dialog.measure, lambda _row: "    ")
    ]
    dialog.page_rules(paged=len(rows) > max_rows)
    return [_row(RULES_PAGED[:width], "warn")] if len(rows) > max_rows else rows


def _folded(dialog: Dialog, text: str, width: int, max_rows: int, style: str) -> list[Row]:
    """The text in at most `max_rows` rows; the last one tells if there is more."""
    rows = fold([(text, style)], width, dialog.measure)
    if len(rows) <= max_rows:
        return rows
    [*first, last] = fold([(text, style)], width - 1, dialog.measure)[:max_rows]
    return [*first, [*last, ("…", style)]]


def _row(text: str, style: str) -> Row:
    return [(text, style)]
