"""Permanent output above the live area, without drawing the live area again.

Text is appended where the last text ended, and the cursor stays there while more arrives. Rows that
the text needs are inserted above the live area, which moves down or scrolls the screen.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator
from math import ceil

from msgspec import Struct
from prompt_toolkit.application import Application
from prompt_toolkit.output import Output

from shepherd.cli.render.rows import RowWriter
from shepherd.cli.repl.terminal import ResizingApplication
from shepherd.cli.terminal.paint import Ink, Painter, character_cells, text_cells, width_varies

BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
MAX_UNSYNCHRONISED = 500
"""Characters that a terminal reads together."""
_STYLES = re.compile(r"\x1b\[[0-9;]*m")


class Area(Struct, frozen=True):
    """The live area: its height, and the position of the cursor in it."""

    height: int = 0
    row: int = 0
    column: int = 0


def rows_of(line: str, column: int, width: int) -> tuple[int, int]:
    """The rows that a line fills from `column` on, and the column after it.

    A full row leaves the column at `width`: the terminal wraps at the next character.
    """
    line = _STYLES.sub("", line)
    if line.isascii():
        total = column + len(line)
        rows = max(1, ceil(total / width))
        return rows, total - (rows - 1) * width
    rows = 1
    for character in line:
        cells = character_cells(character)
        if column + cells > width:
            rows, column = rows + 1, 0
        column += cells
    return rows, column


class Scrollback:
    """Writes to `output`; `area` tells what is drawn below, `erase` removes it.

    Methods other than `write` and `draft` leave it to the caller to flush the output.
    """

    def __init__(self, output: Output, area: Callable[[], Area], erase: Callable[[], None]) -> None:
        self._output = output
        self._area = area
        self._erase = erase
        # what is at the end of the text
        self._open_row: str | None = None
        """The text in the open row; None if the next text begins a row."""
        self._draft = ""
        """What `draft` shows after the open row."""
        self._kept_draft = ""
        """A draft that stays on the screen; the text that it began comes once more."""
        self.is_cursor_in_text = False
        """Whether the cursor is at the end of the text instead of in the live area."""

    def write(self, text: str) -> None:
        """Append text; without a newline at its end, its last row stays open."""
        if text:
            text, self._kept_draft = self._after_kept_draft(text), ""
        if not text:  # or all of it stands there as a draft
            return
        self._erase_draft()
        for part in self._portions(text):
            self._append(part)
        self._output.flush()

    def draft(self, text: str) -> None:
        """Show `text` at the end until the next `write`, as far as the row has room."""
        fitting = self._fitting(self._after_kept_draft(text))
        area = self._area()
        # above the live area there must be the open row, and one more
        has_room = 0 < area.height < self._output.get_size().rows - 2
        if not has_room or not fitting.strip() or fitting == self._draft:
            return
        if self._open_row is None:  # a draft stands in an open row: begin an empty one
            self._append("")
            self._open_row = ""
        # a longer draft goes on at the cursor; any other one takes its place
        if not self.is_cursor_in_text or not fitting.startswith(self._draft):
            self._erase_draft()
            self._go_to_text()
        self._output.write_raw(fitting[len(self._draft) :])
        self._output.flush()
        self._draft = fitting

    def go_home(self) -> None:
        """Put the cursor back into the live area."""
        if not self.is_cursor_in_text:
            return
        area = self._area()
        self.is_cursor_in_text = False
        # by newlines: where the terminal has cut the rows below, they make new ones
        self._output.write_raw("\n" * (area.row + 1))
        self._output.write_raw(f"\x1b[{area.column + 1}G")  # to this column, the first is 1
        self._output.show_cursor()

    def begin_row(self) -> None:
        """Continue below the open row, as the screen was changed.

        A draft stays where it is, and the text that it begins continues after it. The cursor counts
        as in the live area, where the caller puts it.
        """
        self.is_cursor_in_text = False
        self._kept_draft = self._draft.strip() or self._kept_draft
        self._draft = ""
        self._open_row = None

    def _after_kept_draft(self, text: str) -> str:
        """The text without its beginning if that stands there as a draft."""
        words = text.lstrip(" ")
        if not self._kept_draft or not words.startswith(self._kept_draft):
            return text
        blanks = text[: len(text) - len(words)]
        return blanks + words[len(self._kept_draft) :].lstrip(" ")

    def _fitting(self, text: str) -> str:
        """The beginning of the text that fits into the open row."""
        row = self._open_row or ""
        line = text.lstrip("\n").partition("\n")[0].replace("\t", " ")
        room = self._output.get_size().columns - 1 - self._column()
        if width_varies(line + row):  # the draft could not be erased cell by cell
            return ""
        while line and text_cells(line) > room:
            # first by characters, which have a cell at least, then one by one
            line = line[: max(1, room)] if len(line) > room > 0 else line[:-1]
        return line

    def _erase_draft(self) -> None:
        """Remove the draft; the cursor is then at the end of the text."""
        if not self._draft:
            return
        if self.is_cursor_in_text:
            self._output.cursor_backward(text_cells(self._draft))
        else:
            self._go_to_text()
        self._output.write_raw("\x1b[K")  # erases to the end of the row
        self._draft = ""

    def _portions(self, text: str) -> Iterator[str]:
        """The text in portions that fit above the live area."""
        size = self._output.get_size()
        room = max(1, size.rows - self._area().height - 1)
        portion, rows = "", 0
        for line in text.splitlines(keepends=True):
            needed, _ = rows_of(line.rstrip("\n"), 0, size.columns)
            if portion and rows + needed > room:  # a single line may need more than there is
                yield portion
                portion, rows = "", 0
            portion, rows = portion + line, rows + needed
        yield portion

    def _append(self, text: str) -> None:
        """Append a portion, above the live area or, without room, in its place."""
        size = self._output.get_size()
        height = self._area().height
        body, ends_row = text.removesuffix("\n"), text.endswith("\n")
        rows = self._new_rows(body)
        fits_above_area = 0 < height <= size.rows - rows - 1
        if fits_above_area:
            self._append_above(body, rows)
        else:
            self._output.write_raw(BEGIN_UPDATE if height else "")  # until the next redraw
            self.go_home()
            self._erase()
            # a live area as high as the screen has pushed the open row out of reach
            if self._open_row is not None and height < size.rows:
                self._output.cursor_up(1)
                self._go_to_end_of_row()
            self._output.write_raw(body + "\n")  # the area is drawn again below it
        # what later text of the same row continues
        _, newline, last_line = body.rpartition("\n")
        before = "" if newline else self._open_row or ""
        self._open_row = None if ends_row else before + last_line

    def _new_rows(self, body: str) -> int:
        """The rows that the text needs below the open one."""
        columns = self._output.get_size().columns
        first, *others = body.split("\n")
        rows, _ = rows_of(first, self._column(), columns)
        if self._open_row is not None:  # it is there already
            rows -= 1
        return rows + sum(rows_of(line, 0, columns)[0] for line in others)

    def _append_above(self, body: str, rows: int) -> None:
        """Append above the live area, which has room below it."""
        first_line, newline, others = body.partition("\n")
        if self._open_row is None:
            self._insert(body, rows)
            return
        rows_of_first, _ = rows_of(first_line, self._column(), self._output.get_size().columns)
        if rows_of_first > 1:
            self._insert(body, rows, continues_row=True)
            return
        if first_line:  # it fits into the open row, so nothing moves
            self._go_to_text()
            self._output.write_raw(first_line)
        if newline:
            self._insert(others, rows)

    def _column(self) -> int:
        """The column after the text in the open row."""
        _, column = rows_of(self._open_row or "", 0, self._output.get_size().columns)
        return column

    def _go_to_text(self) -> None:
        """Move the cursor from the live area to the end of the open row."""
        if self.is_cursor_in_text:
            return
        self._output.hide_cursor()
        self._output.cursor_up(self._area().row + 1)
        self._go_to_end_of_row()
        self.is_cursor_in_text = True

    def _go_to_end_of_row(self) -> None:
        """Move the cursor, which is in the open row, to its end."""
        row = self._open_row or ""
        # where its width is not certain, writing it again leads to its end
        move = "\r" + row if width_varies(row) else f"\x1b[{self._column() + 1}G"
        self._output.write_raw(move)

    def _insert(self, body: str, rows: int, *, continues_row: bool = False) -> None:
        """Write into new rows above the live area, or from the end of the open row on.

        A row or two in a single short write need no synchronised update.
        """
        # newlines lead below the live area, where they make room or scroll, also if the terminal
        # has cut rows of it meanwhile; then rows are inserted above it
        area, out = self._area(), self._output
        is_small = rows <= 2 and len(body) < MAX_UNSYNCHRONISED
        # from the cursor, which is in the row above the area or in one of the area, to its last row
        rows_below = area.height if self.is_cursor_in_text else area.height - 1 - area.row
        out.write_raw("" if is_small else BEGIN_UPDATE)
        out.hide_cursor()
        out.write_raw("\n" * (rows_below + rows))
        out.cursor_up(area.height - 1 + rows)
        out.write_raw(f"\x1b[{rows}L" if rows > 1 else "\x1b[L")  # inserts empty rows
        if continues_row:
            out.cursor_up(1)
            self._go_to_end_of_row()
        out.write_raw(body + ("" if is_small else END_UPDATE))
        self.is_cursor_in_text = True


WRITE_SECONDS = 0.12
"""Output that arrives within this time is written together."""
DRAFT_SECONDS = 0.3
"""After this long without output, the beginning of a word or a line is shown."""
CALM_SECONDS = 1.0


class InkWriter:
    """Writes ink above the live area of `app`.

    `held` is text that can't be written yet. The cursor stays in the live area while `is_typing`.
    """

    def __init__(
        self,
        painter: Painter,
        app: ResizingApplication,
        held: Callable[[], str],
        is_typing: Callable[[], bool],
    ) -> None:
        self._app = app
        self._held = held
        self._is_typing = is_typing
        self._rows = RowWriter(painter)
        self._scrollback = Scrollback(app.output, self._area, self._erase)
        self._cursor = (0, 0)
        """Its row and column in the live area at the last drawing."""
        # what waits, and when it is written; times are those of `time.monotonic`
        self._pending: list[Ink] = []
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        """Calls `_write_due`."""
        self.is_paused = False
        """Whether another program has the terminal."""
        app.before_render += self._before_redraw
        app.after_render += self._after_redraw
        app.key_processor.before_key_press += self._go_home

    @property
    def is_waiting(self) -> bool:
        """Whether there is output that was not written yet."""
        return bool(self._pending)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was written for a moment."""
        return time.monotonic() - self._written_at >= CALM_SECONDS

    def add(self, ink: Iterable[Ink]) -> None:
        """Write `ink` soon, or at once if there is no live area."""
        self._pending.extend(ink)
        if not self._app.is_running:
            self.write()
        elif self._pending or self._held():  # `ink` may be empty while a word is held
            self._wake(WRITE_SECONDS if self._pending else DRAFT_SECONDS)

    def write(self) -> None:
        """Write what is pending."""
        self._app.note_resize()
        pending, self._pending = self._pending, []
        columns = self._app.output.get_size().columns
        text = self._rows.write(pending, columns)
        self._written_at = time.monotonic()
        self._scrollback.write(text)
        if not self._area().height:  # it had no room and was erased
            self._app.invalidate()

    def prepare_resize(self) -> bool:
        """Prepare for drawing at another size; returns whether the cursor is above the area."""
        is_above = self._scrollback.is_cursor_in_text
        self.begin_row()
        return is_above

    def begin_row(self) -> None:
        """Continue in a new row, after a resize or another program."""
        self._scrollback.begin_row()
        self._rows.continue_below()

    def _wake(self, seconds: float) -> None:
        """Call `_write_due` so many seconds after the last output, or at an earlier call's time."""
        loop = asyncio.get_running_loop()
        delay = max(0.0, self._written_at + seconds - time.monotonic())
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:  # it comes early enough
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._write_due)

    def _write_due(self) -> None:
        """Write what waits, or show a draft if nothing has come for a while."""
        self._timer = None
        if self.is_paused or not self._app.is_running:  # it is written later, by another call
            return
        if self._pending:
            self.write()
            if self._held():
                self._wake(DRAFT_SECONDS)
        elif time.monotonic() - self._written_at < DRAFT_SECONDS:  # too early for a draft
            self._wake(DRAFT_SECONDS)
        else:
            self._app.note_resize()
            self._scrollback.draft(self._rows.blanks + self._held())
            self._written_at = time.monotonic()  # as if it were written: the activity stays quiet
        if self._is_typing():  # the user looks for the cursor in the prompt
            self._go_home()

    def _go_home(self, _processor: object = None) -> None:
        """Put the cursor back into the live area, before a key changes it."""
        if self._scrollback.is_cursor_in_text:
            self._scrollback.go_home()
            self._app.output.flush()

    def _before_redraw(self, app: Application[None]) -> None:
        """Begin a redraw, which the terminal shows at once, where the cursor of the area is."""
        app.output.write_raw(BEGIN_UPDATE)
        self._scrollback.go_home()

    def _after_redraw(self, app: Application[None]) -> None:
        """Let the terminal show the redraw, and note where the cursor is in the live area."""
        app.output.write_raw(END_UPDATE)
        app.output.flush()
        screen = app.renderer.last_rendered_screen
        if screen is not None:
            cursor = screen.get_cursor_position(app.layout.current_window)
            self._cursor = cursor.y, cursor.x

    def _area(self) -> Area:
        """The live area as it is on the screen; its height is 0 if it is not."""
        screen = self._app.renderer.last_rendered_screen
        if screen is None:
            return Area()
        height = min(screen.height, self._app.output.get_size().rows)  # it may be smaller by now
        return Area(height, *self._cursor)

    def _erase(self) -> None:
        if self._app.renderer.last_rendered_screen is not None:
            self._app.renderer.erase()
