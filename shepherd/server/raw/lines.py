"""Ends an answer at a line, as clients that complete code ask for."""

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, structs

from shepherd.backends.base import Backend, Generation, Observer, Prefilled
from shepherd.events import Event, EventCallback, FinishReason, Text
from shepherd.session import Session

_BLANKS = " \t"


class LineLimits(Struct, frozen=True):
    """Each new line has at least `indent` blanks; after `seconds` a new line ends the answer.

    0 is no limit.
    """

    indent: int = 0
    seconds: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any limit."""
        return bool(self.indent or self.seconds)

    def limited(self, observer: Observer) -> Observer:
        """The observer, with these limits."""
        return _LineObserver(observer, self)


class _LineObserver(Observer):
    """Ends an answer at a line, and has the work observed by another one."""

    def __init__(self, observer: Observer, limits: LineLimits) -> None:
        self._observer = observer
        self._limits = limits

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """The prompts as the other observer has them: a line limits only what follows."""
        async with self._observer.prefilled(backend, session, callback, count) as prompts:
            yield prompts

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """The answer; one that was ended at a line has the reason LENGTH."""
        lines = LineText(self._limits)
        prompt.wants_pieces = True  # else a backend may write all of it before a line can end it

        def listen(event: Event) -> bool:
            """Pass on the text up to the line that ends the answer, and then stop the work."""
            if not isinstance(event, Text):
                return callback(event)
            kept = lines.add(event.text)
            goes_on = callback(structs.replace(event, text=kept)) if kept else True
            return goes_on and not lines.ended

        generation = await self._observer.generate(backend, prompt, listen, max_tokens)
        if not lines.ended:  # the model has ended it, or a limit of tokens
            return generation
        message = structs.replace(generation.message, content=lines.text)
        return structs.replace(generation, message=message, finish_reason=FinishReason.LENGTH)


class LineText:
    """The text of an answer up to the line that ends it."""

    def __init__(self, limits: LineLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._started_at: float | None = None  # the time of the first text
        self._line_start: int | None = None
        """Where the last line begins, whose blanks may not be complete; None in the first line."""
        # the answer so far, and whether a line has ended it
        self.text = ""
        self.ended = False

    def add(self, content: str) -> str:
        """The part of more text that belongs to the answer."""
        now = self._clock()
        if self._started_at is None:  # the time begins with the first text
            self._started_at = now
        if self.ended:
            return ""
        is_late = bool(self._limits.seconds) and now - self._started_at > self._limits.seconds
        start, self.text = len(self.text), self.text + content
        end = self._indent_end(start)
        if end is not None:
            self.text, self.ended = self.text[:end], True
        elif is_late and "\n" in content:
            self.ended = True
        return self.text[start:]

    def _indent_end(self, start: int) -> int | None:
        """The place of the first character of a line with too few blanks, None without one.

        `start` is where the newest text begins.
        """
        if not self._limits.indent:
            return None
        if self._line_start is None:
            self._line_start = self._next_line(start)
        while self._line_start is not None:
            line_on = self.text[self._line_start :]
            blanks = len(line_on) - len(line_on.lstrip(_BLANKS))
            if blanks == len(line_on):  # more blanks may follow
                return None
            if blanks < self._limits.indent:
                return self._line_start + blanks
            self._line_start = self._next_line(self._line_start)
        return None

    def _next_line(self, start: int) -> int | None:
        """The place behind the next line break from `start` on, None without one."""
        place = self.text.find("\n", start)
        return None if place < 0 else place + 1
