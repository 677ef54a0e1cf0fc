"""The application on a terminal: its output, its colours, and what a resize does."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.data_structures import Size
from prompt_toolkit.layout.screen import Screen as Cells
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from shepherd.cli.terminal.paint import Painter

_REFLOWING = frozenset(
    {"TMUX", "VTE_VERSION", "KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "ALACRITTY_LOG"}
)
_REFLOWING_PROGRAMS = frozenset(
    {"iTerm.app", "Apple_Terminal", "WezTerm", "ghostty", "vscode", "tmux"}
)


def reflows(env: Mapping[str, str]) -> bool:
    """Whether the terminal is known to wrap long lines again when it becomes narrower."""
    return bool(_REFLOWING & env.keys()) or env.get("TERM_PROGRAM", "") in _REFLOWING_PROGRAMS


def rows_added(cells: Cells, cursor_row: int, columns: int) -> int:
    """The number of additional rows above the cursor after wrapping at `columns`."""
    added = 0
    for row in range(cursor_row):
        used = max((x for x, c in cells.data_buffer[row].items() if c.char.strip()), default=0)
        added += used // max(1, columns)
    return added


class ResizingApplication(Application[None]):
    """Erases the live area as the terminal shows it after a resize, not as it was drawn.

    Another program has the terminal between `before_pause` and `after_pause`. `before_erase` is
    called on a resize, and returns whether the cursor was above the live area.
    """

    def __init__(
        self,
        *,
        before_pause: Callable[[], None],
        after_pause: Callable[[], None],
        before_erase: Callable[[], bool],
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._reflows = reflows(os.environ)
        self._drawn: Size | None = None
        self._before_pause = before_pause
        self._after_pause = after_pause
        self._before_erase = before_erase
        self.after_render += self._note_size

    def _note_size(self, app: Application[None]) -> None:
        self._drawn = app.output.get_size()

    def suspend_to_background(self, suspend_group: bool = True) -> None:  # noqa: FBT001 - prompt-toolkit's signature
        """Stop the process."""

        def stop() -> None:
            self._before_pause()
            os.kill(0 if suspend_group else os.getpid(), signal.SIGTSTP)
            self._after_pause()

        run_in_terminal(stop)

    def _on_resize(self) -> None:
        cells = self.renderer.last_rendered_screen
        columns = self.output.get_size().columns
        was_above = self._before_erase()
        if (
            self._reflows
            and not was_above
            and cells
            and self._drawn
            and columns < self._drawn.columns
        ):
            cursor = cells.get_cursor_position(self.layout.current_window)
            self.output.cursor_up(rows_added(cells, cursor.y, columns))
        super()._on_resize()


STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "placeholder": "ansibrightblack",
        "status": "ansibrightblack",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit ansibrightblack",
        "completion-menu.meta.completion.current": "noinherit reverse",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit reverse",
    }
)
_DEPTHS = {
    None: ColorDepth.MONOCHROME,
    "standard": ColorDepth.DEFAULT,
    "256": ColorDepth.DEPTH_8_BIT,
    "truecolor": ColorDepth.TRUE_COLOR,
}


def terminal_output(painter: Painter) -> Output:
    """Standard output as a terminal; the cursor's position is never queried."""
    size = Vt100_Output.from_pty(sys.stdout).get_size
    depth = _DEPTHS.get(painter.color_system, ColorDepth.DEPTH_4_BIT)
    return Vt100_Output(sys.stdout, size, default_color_depth=depth, enable_cpr=False)
