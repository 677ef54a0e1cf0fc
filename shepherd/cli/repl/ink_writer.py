"""Collects permanent output, and writes it above the live area a few times each second."""

import asyncio
import time
from collections.abc import Callable, Iterable

from prompt_toolkit.application import Application

from shepherd.cli.render.rows import RowWriter
from shepherd.cli.repl.scrollback import BEGIN_UPDATE, END_UPDATE, Area, Scrollback
from shepherd.cli.terminal.paint import Ink, Painter

WRITE_SECONDS = 0.12
"""Output that arrives within this time is written together."""
DRAFT_SECONDS = 0.3
"""After this long without output, the beginning of a word or a line is shown."""
QUIET_SECONDS = 1.0


class InkWriter:
    """Writes ink above the live area of `app`.

    `held` is text that can't be written yet. The cursor stays in the live area while `is_typing`.
    """

    def __init__(
        self,
        painter: Painter,
        app: Application[None],
        held: Callable[[], str],
        is_typing: Callable[[], bool],
    ) -> None:
        self._app = app
        self._held = held
        self._is_typing = is_typing
        self._rows = RowWriter(painter)
        self._scrollback = Scrollback(app.output, self._area, self._erase)
        self._pending: list[Ink] = []
        self._written_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._cursor = (0, 0)
        self.is_paused = False
        """Whether another program has the terminal."""
        app.before_render += self._before_redraw
        app.after_render += self._after_redraw
        app.key_processor.before_key_press += self._before_key

    @property
    def is_waiting(self) -> bool:
        """Whether there is output that was not written yet."""
        return bool(self._pending)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was written for a moment."""
        return time.monotonic() - self._written_at >= QUIET_SECONDS

    def add(self, ink: Iterable[Ink]) -> None:
        """Write `ink` soon, or at once if there is no live area."""
        self._pending.extend(ink)
        if not self._app.is_running:
            self.write()
        elif self._pending or self._held():
            self._wake(WRITE_SECONDS if self._pending else DRAFT_SECONDS)

    def write(self) -> None:
        """Write what is pending."""
        pending, self._pending = self._pending, []
        columns = self._app.output.get_size().columns
        text = self._rows.write(pending, columns)
        self._written_at = time.monotonic()
        self._scrollback.write(text)
        if not self._area().height:
            self._app.invalidate()

    def resized(self) -> bool:
        """Prepare for drawing at another size; returns whether the cursor was above the area."""
        was_away = self._scrollback.is_away
        self._scrollback.go_home()
        self.begin_row()
        return was_away

    def begin_row(self) -> None:
        """Continue in a new row, after a resize or another program."""
        self._scrollback.begin_row()
        self._rows.continue_below()

    def _wake(self, seconds: float) -> None:
        due = self._written_at + seconds
        loop = asyncio.get_running_loop()
        delay = max(0.0, due - time.monotonic())
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if self.is_paused or not self._app.is_running:
            return
        if self._pending:
            self.write()
            if self._held():
                self._wake(DRAFT_SECONDS)
        elif time.monotonic() - self._written_at < DRAFT_SECONDS:
            self._wake(DRAFT_SECONDS)
        else:
            self._scrollback.draft(self._rows.space + self._held())
            self._written_at = time.monotonic()
        if self._is_typing():
            self._go_home()

    def _before_key(self, _processor: object) -> None:
        self._go_home()

    def _go_home(self) -> None:
        if self._scrollback.is_away:
            self._scrollback.go_home()
            self._app.output.flush()

    def _before_redraw(self, app: Application[None]) -> None:
        app.output.write_raw(BEGIN_UPDATE)
        self._scrollback.go_home()

    def _after_redraw(self, app: Application[None]) -> None:
        app.output.write_raw(END_UPDATE)
        app.output.flush()
        screen = app.renderer.last_rendered_screen
        if screen is not None:
            cursor = screen.get_cursor_position(app.layout.current_window)
            self._cursor = cursor.y, cursor.x

    def _area(self) -> Area:
        screen = self._app.renderer.last_rendered_screen
        if screen is None:
            return Area()
        height = min(screen.height, self._app.output.get_size().rows)
        return Area(height, *self._cursor)

    def _erase(self) -> None:
        if self._app.renderer.last_rendered_screen is not None:
            self._app.renderer.erase()
