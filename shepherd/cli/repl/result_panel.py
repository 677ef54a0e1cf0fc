"""A pager in the live area for whole results; the model goes on meanwhile."""

from collections.abc import Callable, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase
from prompt_toolkit.layout import UIContent, UIControl, Window
from prompt_toolkit.layout.controls import GetLinePrefixCallable

from shepherd.cli.approval.pager import Gutter, Pager, fold, row_text
from shepherd.cli.approval.question import fact, text_lines
from shepherd.cli.render.tool_view import FullResult
from shepherd.cli.repl.keys import bind
from shepherd.cli.repl.question_panel import cells, painted_lines
from shepherd.cli.terminal.paint import UNICODE, Painter

OTHER_ROWS = 4
"""Rows of the screen that do not belong to the panel: the prompt, the status and blank lines."""

KEYS = "Up Down PgUp PgDn g G, n p: other results, Esc closes"


class ResultPanel(UIControl):
    """Shows one of `results` while it is open; it opens with the last one."""

    def __init__(
        self,
        painter: Painter,
        prompt_window: Window,
        app: Callable[[], Application[None]],
        results: Callable[[], Sequence[FullResult]],
    ) -> None:
        self._results = results
        self.window = Window(self, dont_extend_height=True)
        self._painter = painter
        self._prompt_window = prompt_window
        self._app = app
        self._index = 0
        self._visible: Sequence[FullResult] = ()
        self._pager: Pager | None = None
        self._keys = self._bindings()

    @property
    def is_open(self) -> bool:
        """Whether a result is shown."""
        return self._pager is not None

    def toggle(self) -> None:
        """Open it with the last result, or close it; without results nothing happens."""
        if self.is_open:
            self.close()
            return
        self._visible = self._results()
        if self._visible:
            self._open(len(self._visible) - 1)
            self._app().layout.focus(self.window)

    def close(self) -> None:
        """Return to the prompt."""
        if self.is_open:
            self._pager, self._visible = None, ()
            self._app().layout.focus(self._prompt_window)
            self._app().invalidate()

    def is_focusable(self) -> bool:
        """It accepts keys."""
        return True

    def get_key_bindings(self) -> KeyBindingsBase:
        """The keys of the pager."""
        return self._keys

    def preferred_height(
        self,
        width: int,
        max_available_height: int,
        wrap_lines: bool,  # noqa: FBT001 - prompt-toolkit's signature
        get_line_prefix: GetLinePrefixCallable | None,
    ) -> int:
        """The rows that the text needs, up to the available ones."""
        if self._pager is None:
            return 0
        rows = min(max_available_height, self._app().output.get_size().rows - OTHER_ROWS)
        return min(rows, self._pager.height(width, rows) + 1)

    def create_content(self, width: int, height: int) -> UIContent:
        """Draw a page, and below it the place and the keys."""
        if self._pager is None:
            return UIContent()
        rows = self._pager.rows(width, max(1, height - 1))
        number = f"result {self._index + 1} of {len(self._visible)}"
        place = f"  {number}, {self._pager.position()} ({KEYS})"
        rows.append([(row_text(fold([(place, "")], width, cells)[0]), "warn")])
        lines = painted_lines(self._painter, rows, width)
        return UIContent(lambda i: lines[i], line_count=len(lines), show_cursor=False)

    def _open(self, index: int) -> None:
        result = self._visible[index]
        gutter = Gutter(unicode=self._painter.glyphs is UNICODE)
        lines = [fact(result.title, "bold"), *text_lines(result.text)]
        self._index, self._pager = index, Pager(lines, gutter, cells)
        self._app().invalidate()

    def _step(self, step: int) -> None:
        index = self._index + step
        if 0 <= index < len(self._visible):
            self._open(index)

    def _turn(self, turn: Callable[[Pager], None]) -> None:
        if self._pager is not None:
            turn(self._pager)
            self._app().invalidate()

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        turns: dict[str, Callable[[Pager], None]] = {
            "up": Pager.up,
            "down": Pager.down,
            "pageup": Pager.back,
            "pagedown": Pager.forward,
            " ": Pager.forward,
            "home": Pager.begin,
            "g": Pager.begin,
            "end": Pager.end,
            "G": Pager.end,
        }
        for key, turn in turns.items():
            bind(keys, key, lambda turn=turn: self._turn(turn))
        for key, step in {"n": 1, "right": 1, "p": -1, "left": -1}.items():
            bind(keys, key, lambda step=step: self._step(step))
        for key in ("escape", "q"):
            bind(keys, key, self.close)
        return keys
