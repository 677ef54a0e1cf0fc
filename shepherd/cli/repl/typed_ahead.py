"""What the user typed before the prompt was there."""

import os
import select
import termios
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

_AS_TYPED = {
    Keys.ControlJ: KeyPress(Keys.ControlM, "\r"),
    Keys.ControlAt: KeyPress(Keys.ControlD, "\x04"),
}
"""Enter and Ctrl+D by what Linux makes of them while it edits lines itself."""

_WITHOUT_BRACKETED_PASTE = ("linux", "vt", "ansi", "cons25", "eterm", "screen")


@contextmanager
def reading_keys(source: Input) -> Generator[None]:
    """While this lasts the terminal gives keys, not lines; those typed before come first."""
    edits_lines = _edits_lines(source)
    with source.raw_mode():
        keys: list[KeyPress] = []
        while edits_lines and not source.closed and input_waiting(source):
            keys += source.read_keys()
        store_typeahead(source, [_as_typed(key) for key in keys])
        yield


def input_waiting(source: Input) -> bool:
    """Whether a terminal has something to read."""
    try:
        descriptor = source.fileno()
        return os.isatty(descriptor) and bool(select.select([descriptor], [], [], 0)[0])
    except (NotImplementedError, OSError, ValueError):
        return False


def marks_pastes(env: Mapping[str, str]) -> bool:
    """Whether the terminal tells a paste from typing (GNU screen 4 does not, tmux does)."""
    return "TMUX" in env or not env.get("TERM", "").startswith(_WITHOUT_BRACKETED_PASTE)


def _edits_lines(source: Input) -> bool:
    try:
        flags = termios.tcgetattr(source.fileno())
    except (NotImplementedError, OSError, ValueError, termios.error):
        return False
    return bool(flags[0] & termios.ICRNL and flags[3] & termios.ICANON)


def _as_typed(press: KeyPress) -> KeyPress:
    return _AS_TYPED.get(press.key, press) if isinstance(press.key, Keys) else press
