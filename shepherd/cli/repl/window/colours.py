"""Asks the terminal whether its background is light; the answers arrive among the typed keys."""

import re
import termios
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output import Output

QUERY = "\x1b]10;?\a\x1b]11;?\a\x1b[c"
"""The colours of text and background, then what every terminal answers: its attributes (DA1)."""

ANSWER_SECONDS = 2.0
"""For this long the beginning of an answer is held back; a complete one is always taken out."""

_SILENT_TERMINALS = ("linux", "vt", "ansi", "cons25", "eterm", "dumb")
_COLOUR = r"\x1b\](1[01]);rgba?:([0-9a-fA-F/]{1,19})(?:\a|\x1b\\)"
_ANSWER = re.compile(rf"{_COLOUR}|\x1b\[\?[0-9;]*c")
_BEGUN = re.compile(
    r"\x1b(?:\](?:1(?:[01](?:;[rgba:0-9a-fA-F/]{0,26}\x1b?)?)?)?|\[(?:\?[0-9;]*)?)\Z"
)
_TEXT, _BACKGROUND = "10", "11"


def can_ask(env: Mapping[str, str]) -> bool:
    """Whether the terminal understands the question or ignores it; GNU screen may print it."""
    terminal = env.get("TERM", "dumb")
    in_screen = "STY" in env or (terminal.startswith("screen") and "TMUX" not in env)
    return not in_screen and not terminal.startswith(_SILENT_TERMINALS)


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
        self._held = ""
        self._colours: dict[str, float] = {}

    @property
    def waits(self) -> bool:
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
        begun = _BEGUN.search(text) if self.waits else None
        if begun is not None:
            text, self._held = text[: begun.start()], begun[0]
        return text

    def _take(self, answer: re.Match[str]) -> str:
        if answer[1] is None:
            self._deadline = 0.0
            return ""
        parts = answer[2].split("/")[:3]
        if len(parts) == 3 and all(parts):
            self._colours[answer[1]] = brightness(parts)
            background = self._colours.get(_BACKGROUND)
            if background is not None:
                self._changed(light=background > self._colours.get(_TEXT, 0.5))
        return ""


def brightness(parts: list[str]) -> float:
    """The brightness of a colour from 0 to 1; its parts are one to four hexadecimal digits each."""
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
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
        if self.colours.waits:
            termios.tcflush(self.stdin_fd, termios.TCIFLUSH)


def read_answers(terminal: object, colours: TerminalColours) -> AnswerReader | None:
    """Read the keys of a terminal through `colours`; None for other inputs."""
    if not isinstance(terminal, Vt100Input):
        return None
    encoding = terminal.stdin.encoding
    terminal.stdin_reader = reader = AnswerReader(terminal.stdin_reader, encoding, colours)
    return reader
