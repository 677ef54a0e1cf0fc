"""The line where the user types."""

import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.layout import BufferControl, Dimension, Window
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.widgets import SearchToolbar

from shepherd.cli.repl.completion import mark_first_command
from shepherd.cli.terminal.secrets import redact
from shepherd.config.files import write_private
from shepherd.conversation.own_commands import SIGN
from shepherd.tools.text import pluralize

MAX_ROWS = 10
MIN_FOLDED_LINES = 10
MIN_FOLDED = 2000
"""Characters from which a paste is folded."""
MAX_HISTORY_BYTES = 1_048_576
BURST_SECONDS = 0.03


class PromptHistory(FileHistory):
    """A history in a file; when it is read, a search in it is drawn again."""

    async def load(self) -> AsyncGenerator[str, None]:
        """The entries, the newest first."""
        async for entry in super().load():
            yield entry
        get_app().invalidate()  # what a search finds is known only now


def open_history(path: Path) -> History:
    """The history in `path`, which only the user can read; in memory if it can't be saved."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600), "a") as file:
            os.fchmod(file.fileno(), 0o600)  # an earlier file may have other rights
        _trim(path)
    except OSError:
        return InMemoryHistory()
    return PromptHistory(str(path))


def _trim(path: Path) -> None:
    """Drop the oldest half of a history that has grown too long."""
    if path.stat().st_size <= MAX_HISTORY_BYTES:
        return
    newer_half = path.read_bytes()[-MAX_HISTORY_BYTES // 2 :]
    begin = newer_half.find(b"\n# ")  # each entry begins with a comment, which has the time
    write_private(path, newer_half[max(0, begin) :])  # without one, all is kept


class Prompt:
    """Typed text with history and completion; `placeholder` is shown while it is empty.

    `search` is the line for searching the history (Ctrl+R). With `bursts_are_pastes`, lines that
    arrive together are one message. This is right if the terminal does not mark pastes. Lines typed
    while the program was busy then count as a paste too.
    """

    def __init__(
        self, history: History, completer: Completer, sign: str, *, bursts_are_pastes: bool = False
    ) -> None:
        self.placeholder = ""
        self.search = SearchToolbar()
        self._sign = sign
        # how fast text arrives, which tells pastes from typing
        self._bursts_are_pastes = bursts_are_pastes
        self._typed_at = 0.0
        """The time of the last key; 0 before the first one."""
        self._was_in_burst = False
        """Whether more keys waited when the last one was handled."""
        self._folds: dict[str, str] = {}
        """Long pastes by the signs that stand for them in the text."""
        self.buffer = Buffer(
            history=history,
            completer=ThreadedCompleter(completer),
            complete_while_typing=True,
            multiline=True,
            on_text_insert=self._note_typing,
            on_completions_changed=mark_first_command,
        )

    @property
    def text(self) -> str:
        """The typed text."""
        return self.buffer.text

    @property
    def is_bursting(self) -> bool:
        """Whether text arrives as fast as a paste."""
        just_now = time.monotonic() - self._typed_at < BURST_SECONDS
        return self._bursts_are_pastes and (just_now or self._was_in_burst)

    def take(self) -> str:
        """Return the text and clear the prompt; the history gets it, without keys."""
        self.unfold()
        text = self.buffer.text
        for_history = redact(text)
        if for_history != text:  # the history takes the buffer's text
            self.buffer.text = for_history
        self.buffer.reset(append_to_history=bool(text.strip()))
        return text

    def paste(self, text: str) -> None:
        """Insert text; a long one is folded to one line until it is sent or opened."""
        if text.count("\n") < MIN_FOLDED_LINES and len(text) < MIN_FOLDED:
            self.buffer.insert_text(text)
            return
        count = text.count("\n") + (0 if text.endswith("\n") else 1)  # the last may have no newline
        sign = f"[paste {len(self._folds) + 1}: {pluralize(count, 'line')}, Tab opens]"
        self._folds[sign] = text
        self.buffer.insert_text(sign)

    def fold_before_cursor(self) -> str:
        """The sign of a folded text that ends at the cursor, or ""."""
        before = self.buffer.document.text_before_cursor
        return next((sign for sign in self._folds if before.endswith(sign)), "")

    def delete_fold(self) -> None:
        """Delete the folded text before the cursor."""
        self.buffer.delete_before_cursor(len(self.fold_before_cursor()))

    def unfold(self) -> None:
        """Put all folded texts in their places."""
        text = self.buffer.text
        if not any(sign in text for sign in self._folds):
            return
        position = self.buffer.cursor_position
        before, after = text[:position], text[position:]  # apart, so that the cursor stays there
        for sign, folded in self._folds.items():
            before, after = before.replace(sign, folded, 1), after.replace(sign, folded, 1)
        self._folds.clear()
        self.buffer.document = Document(before + after, len(before))

    def restore(self, text: str) -> None:
        """Put `text` on a line before the typed text; both are one message then.

        A line of the shell becomes a message too, as the typed text must not run with it.
        """
        typed = self.buffer.text
        joined = "\n".join(part for part in (text, typed) if part)
        if text and typed and text.startswith(SIGN):  # the blank makes it a message
            joined = f" {joined}"
        self.buffer.reset()
        self.buffer.insert_text(joined)
        self._typed_at = 0.0  # `insert_text` has noted it as typed just now

    def window(self, key_bindings: KeyBindingsBase) -> Window:
        """The window that shows it."""
        hint = ConditionalProcessor(
            AfterInput(lambda: self.placeholder, style="class:placeholder"),
            Condition(lambda: not self.buffer.text),
        )
        return Window(
            BufferControl(
                self.buffer,
                input_processors=[hint],
                key_bindings=key_bindings,
                search_buffer_control=self.search.control,
                preview_search=True,
            ),
            height=Dimension(min=1, max=MAX_ROWS),
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )

    def _prefix(self, line: int, wrap: int) -> StyleAndTextTuples:
        """What is before row `wrap` of a line: the sign in the very first one."""
        sign = self._sign if (line, wrap) == (0, 0) else " "
        return [("class:prompt", f"{sign} ")]

    def _note_typing(self, buffer: Buffer) -> None:
        """Note that a character came, and whether more have arrived already."""
        self._typed_at = time.monotonic()
        self._was_in_burst = bool(get_app().key_processor.input_queue)
