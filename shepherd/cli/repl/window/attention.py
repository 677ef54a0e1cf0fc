"""The window's title, and a bell or a notification while the user looks elsewhere."""

from collections.abc import Mapping

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output

from shepherd.cli.terminal.sanitize import one_line

MAX_TITLE = 60
FOCUS_IN, FOCUS_OUT = Keys.F23, Keys.F24
_WITHOUT_TITLE = ("linux", "vt", "ansi", "cons25", "eterm", "dumb")
_BELL, _END = "\a", "\x1b\\"


def notification(text: str, env: Mapping[str, str]) -> str:
    """The sequence that shows `text` in this terminal; "" if it is not known to have one."""
    program = env.get("TERM_PROGRAM", "")
    if env.get("TMUX") or env.get("STY"):
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
        self._env = env
        has_title = not env.get("TERM", "dumb").startswith(_WITHOUT_TITLE)
        self._title = one_line(title, MAX_TITLE) if has_title else ""
        self._alerts = alerts
        self.has_focus = True

    def begin(self) -> None:
        """Keep the terminal's title, set another one, and ask for focus events."""
        if self._title:
            self.output.write_raw(f"\x1b[22;0t\x1b]0;{self._title}{_BELL}")
        if self._alerts:
            self.output.write_raw("\x1b[?1004h")
        self.output.flush()

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self._alerts:
            self.output.write_raw("\x1b[?1004l")
        if self._title:
            self.output.write_raw(f"\x1b]0;{_BELL}\x1b[23;0t")
        self.output.flush()
        self.has_focus = True

    def alert(self, text: str) -> None:
        """Ring the bell and show `text` as a notification, unless the terminal has focus."""
        if self._alerts and not self.has_focus:
            self.output.write_raw(notification(one_line(text, MAX_TITLE), self._env) + _BELL)
            self.output.flush()
