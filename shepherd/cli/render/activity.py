"""The line that moves while something is going on."""

import time
from collections.abc import Callable

from rich.text import Text

from shepherd.cli.terminal.paint import Glyphs, Piece

FRAMES_PER_SECOND = 8


class Activity:
    """What is going on and for how long; nothing while `label` is empty."""

    def __init__(self, glyphs: Glyphs, clock: Callable[[], float] = time.monotonic) -> None:
        self._glyphs = glyphs
        self._clock = clock
        self._label = ""
        self._detail = ""
        self._since = 0.0

    @property
    def label(self) -> str:
        """What is going on, "" for nothing."""
        return self._label

    def start(self, label: str) -> None:
        """Something new begins; the same label goes on counting."""
        if label != self._label:
            self._label, self._since = label, self._clock()
        self._detail = ""

    def note(self, detail: str) -> None:
        """How far it is."""
        self._detail = detail

    def stop(self) -> None:
        """Nothing is going on."""
        self._label = self._detail = ""

    def live(self, hint: str = "") -> list[Piece]:
        """The line."""
        if not self._label:
            return []
        seconds = self._clock() - self._since
        frame = self._glyphs.spinner[int(seconds * FRAMES_PER_SECOND) % len(self._glyphs.spinner)]
        parts = [self._label, self._detail, f"{seconds:.0f} s" if seconds >= 1 else "", hint]
        joined = f" {self._glyphs.dot} ".join(p for p in parts if p)
        return [Piece(Text(f"{frame} {joined}", style="quiet", no_wrap=True, overflow="ellipsis"))]
