"""The terminal below the screen: title, bell, colours, background, and what a resize does."""

import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.screen import Screen as Cells
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from shepherd.cli.terminal.paint import Painter
from shepherd.cli.terminal.sanitize import one_line

MAX_TITLE = 60
FOCUS_IN, FOCUS_OUT = Keys.F23, Keys.F24
_SIMPLE_TERMINALS = ("linux", "vt", "ansi", "cons25", "eterm", "dumb")
"""They have no title, and do not answer."""
_BELL, _END = "\a", "\x1b\\"


def notification(text: str, env: Mapping[str, str]) -> str:
    """The sequence that shows `text` in this terminal; "" if it is not known to have one."""
    program = env.get("TERM_PROGRAM", "")
    if env.get("TMUX") or env.get("STY"):  # tmux and screen do not pass it on
        return ""
    if "KITTY_WINDOW_ID" in env:
        return f"\x1b]99;;{text}{_END}"
    if program in ("iTerm.app", "WezTerm", "ghostty"):
        return f"\x1b]9;{text}{_END}"
    if "VTE_VERSION" in env or env.get("TERM", "").startswith(("foot", "rxvt")):
        return f"\x1b]777;notify;Shepherd;{text.replace(';', ',')}{_END}"
    return ""


def read_focus_events() -> None:
    """Let prompt-toolkit read the focus events of a terminal as two keys."""
    ANSI_SEQUENCES.setdefault("\x1b[I", FOCUS_IN)
    ANSI_SEQUENCES.setdefault("\x1b[O", FOCUS_OUT)


class Attention:
    """Sets the title between `begin` and `end`; `alert` is silent while the terminal has focus.

    Terminals report changes of the focus. Until the first one it counts as present. An empty
    `title` leaves the title alone; with `alerts` False, nothing is reported.
    """

    def __init__(
        self, output: Output, env: Mapping[str, str], *, title: str = "", alerts: bool = False
    ) -> None:
        self.output = output
        self._env = env  # tells which sequence notifies
        has_title = not env.get("TERM", "dumb").startswith(_SIMPLE_TERMINALS)
        self._title = one_line(title, MAX_TITLE) if has_title else ""
        self._alerts = alerts
        self.has_focus = True

    def begin(self) -> None:
        """Keep the terminal's title, set another one, and ask for focus events."""
        if self._title:  # the first sequence keeps the old one
            self.output.write_raw(f"\x1b[22;0t\x1b]0;{self._title}{_BELL}")
        if self._alerts:  # the focus decides on them
            self.output.write_raw("\x1b[?1004h")
        self.output.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._alerts:
            self.output.write_raw("\x1b[?1004l")
        if self._title:  # where the old one can't be restored, it is empty
            self.output.write_raw(f"\x1b]0;{_BELL}\x1b[23;0t")
        self.output.flush()
        self.has_focus = True  # its changes are no longer reported

    def alert(self, text: str) -> None:
        """Ring the bell and show `text` as a notification, unless the terminal has focus."""
        if self._alerts and not self.has_focus:
            self.output.write_raw(notification(one_line(text, MAX_TITLE), self._env) + _BELL)
            self.output.flush()


QUERY = "\x1b]10;?\a\x1b]11;?\a\x1b[c"
"""The colours of text and background, then what every terminal answers: its attributes (DA1)."""

ANSWER_SECONDS = 2.0
"""For this long the beginning of an answer is held back; a complete one is always taken out."""

_COLOUR = r"\x1b\](?P<place>1[01]);rgba?:(?P<parts>[0-9a-fA-F/]{1,19})(?:\a|\x1b\\)"
_ANSWER = re.compile(rf"{_COLOUR}|\x1b\[\?[0-9;]*c")
_BEGINNING = re.compile(
    r"\x1b(?:\](?:1(?:[01](?:;[rgba:0-9a-fA-F/]{0,26}\x1b?)?)?)?|\[(?:\?[0-9;]*)?)\Z"
)
_TEXT, _BACKGROUND = "10", "11"
_MIDDLE_GREY = 0.5


def can_ask(env: Mapping[str, str]) -> bool:
    """Whether the terminal understands the question or ignores it; GNU screen may print it."""
    terminal = env.get("TERM", "dumb")
    in_screen = "STY" in env or (terminal.startswith("screen") and "TMUX" not in env)
    return not in_screen and not terminal.startswith(_SIMPLE_TERMINALS)


class BackgroundListener(Protocol):
    """Called when the terminal has told its background."""

    def __call__(self, *, light: bool) -> None: ...


class TerminalColours:
    """The answers of one terminal; without an answer, `changed` is not called."""

    def __init__(
        self, changed: BackgroundListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._changed = changed
        self._clock = clock
        self._deadline = 0.0
        """Until then an answer may come."""
        self._held = ""
        """What may be the beginning of an answer."""
        self._brightness: dict[str, float] = {}
        """Of the text and of the background, as far as they are known."""

    @property
    def is_waiting(self) -> bool:
        """Whether an answer may still be on its way."""
        return self._clock() < self._deadline

    def ask(self, output: Output) -> None:
        """Send the question; the answers pass through `typed`."""
        self._deadline = self._clock() + ANSWER_SECONDS
        output.write_raw(QUERY)
        output.flush()

    def typed(self, text: str) -> str:
        """The text without the answers; the beginning of one is held for the next call."""
        text, self._held = _ANSWER.sub(self._take, self._held + text), ""
        beginning = _BEGINNING.search(text) if self.is_waiting else None
        if beginning is not None:
            text, self._held = text[: beginning.start()], beginning[0]
        return text

    def _take(self, answer: re.Match[str]) -> str:
        """Note an answer, and report the background when it is known; returns no key for it."""
        place = answer["place"]
        if place is None:  # the terminal's attributes are the last answer
            self._deadline = 0.0
            return ""
        parts = answer["parts"].split("/")[:3]  # a fourth one is the opacity
        if len(parts) == 3 and all(parts):
            self._brightness[place] = brightness(parts)
            background = self._brightness.get(_BACKGROUND)
            if background is not None:
                # the terminal tells the colour of the text first, if it tells it at all
                text = self._brightness.get(_TEXT, _MIDDLE_GREY)
                self._changed(light=background > text)
        return ""


def brightness(parts: list[str]) -> float:
    """The brightness of a colour from 0 to 1; its parts are one to four hexadecimal digits each."""
    # `ff` and `ffff` are both 1
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
    # as the eye sees colours, by ITU-R BT.709
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class AnswerReader(PosixStdinReader):
    """Reads a terminal, and passes what it reads through `colours`."""

    def __init__(self, reader: PosixStdinReader, encoding: str, colours: TerminalColours) -> None:
        super().__init__(reader.stdin_fd, encoding=encoding)
        self.colours = colours

    def read(self, count: int = 1024) -> str:
        return self.colours.typed(super().read(count))

    def drop(self) -> None:
        """Drop what an ending program has not read, if an answer could reach the shell."""
        if self.colours.is_waiting:
            termios.tcflush(self.stdin_fd, termios.TCIFLUSH)


def read_answers(terminal: object, colours: TerminalColours) -> AnswerReader | None:
    """Read the keys of a terminal through `colours`; None for other inputs."""
    if not isinstance(terminal, Vt100Input):
        return None
    encoding = terminal.stdin.encoding
    terminal.stdin_reader = reader = AnswerReader(terminal.stdin_reader, encoding, colours)
    return reader


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
    """The number of additional rows above the cursor after the terminal wrapped at `columns`.

    `cells` is what was drawn before.
    """
    added = 0
    for row in range(cursor_row):
        characters = cells.data_buffer[row].items()
        # blanks at the end of a row are not wrapped
        last_column = max((column for column, cell in characters if cell.char.strip()), default=0)
        added += last_column // max(1, columns)
    return added


class ResizingApplication(Application[None]):
    """Erases the live area as the terminal shows it after a resize, not as it was drawn.

    Another program has the terminal between `before_pause` and `after_pause`. `before_erase` is
    called on a resize, and returns whether the cursor is above the live area.
    """

    def __init__(
        self,
        *,
        before_pause: Callable[[], None],
        after_pause: Callable[[], None],
        before_erase: Callable[[], bool],
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)  # those of any application
        self._reflows = reflows(os.environ)
        self._drawn_size: Size | None = None
        """The size of the terminal at the last drawing."""
        self._before_pause = before_pause
        self._after_pause = after_pause
        self._before_erase = before_erase
        self.after_render += self._note_size

    def _note_size(self, app: Application[None]) -> None:
        self._drawn_size = app.output.get_size()

    def suspend_to_background(self, suspend_group: bool = True) -> None:  # noqa: FBT001 - prompt-toolkit's signature
        """Stop the process and its group, as Ctrl+Z in a shell; the live area is gone meanwhile."""

        def stop() -> None:
            """Stop, and return from it when the user goes on."""
            self._before_pause()
            own_group = 0  # for `kill`
            os.kill(own_group if suspend_group else os.getpid(), signal.SIGTSTP)
            self._after_pause()

        run_in_terminal(stop)

    def note_resize(self) -> None:
        """Erase and draw again if the size has changed, of which no signal has come yet."""
        if self._is_resized():
            self._on_resize()

    def _redraw(self, render_as_done: bool = False) -> None:  # noqa: FBT001 - prompt-toolkit's signature
        if self._is_resized():
            self._erase_resized()
        super()._redraw(render_as_done)

    def _on_resize(self) -> None:
        if self.renderer.last_rendered_screen is not None:  # another program may have the terminal
            self._erase_resized()
        self._redraw()

    def _is_resized(self) -> bool:
        """Whether the live area was drawn for another size."""
        return self.renderer.last_rendered_screen is not None and (
            self._drawn_size != self.output.get_size()
        )

    def _erase_resized(self) -> None:
        """Erase the live area and nothing else, wherever the terminal has moved it.

        All terminals keep the cursor in its row, or a lower one. What they do to the rows below it
        is not known: tmux and xterm cut them.
        """
        cells = self.renderer.last_rendered_screen
        columns = self.output.get_size().columns
        if self._before_erase():  # only the live area is below the cursor
            # to the next row first: the last column of the text may be under the cursor
            self.output.write_raw("\r\n\x1b[J")
            self.renderer.reset(leave_alternate_screen=False)
            return
        drawn_size = self._drawn_size
        is_narrower = drawn_size is not None and columns < drawn_size.columns
        # the terminal has wrapped the rows above the cursor, which is lower than it was drawn
        if self._reflows and is_narrower and cells:
            cursor = cells.get_cursor_position(self.layout.current_window)
            self.output.cursor_up(rows_added(cells, cursor.y, columns))
        self.renderer.erase(leave_alternate_screen=False)


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


class _Output(Vt100_Output):
    """Standard output as a terminal."""

    def erase_down(self) -> None:
        """Erase the row of the cursor, which is in the first column, and all below it.

        What lies below goes first: tmux moves into its scrollback what is erased from the first
        cell of the window on.
        """
        self.write_raw("\x1b7\x1b[B\x1b[J\x1b8\x1b[K")  # 7 and 8 keep the cursor's place


def terminal_output(painter: Painter) -> Output:
    """Standard output as a terminal; the cursor's position is never queried."""
    size = Vt100_Output.from_pty(sys.stdout).get_size
    depth = _DEPTHS.get(painter.color_system, ColorDepth.DEPTH_4_BIT)
    return _Output(sys.stdout, size, default_color_depth=depth, enable_cpr=False)
