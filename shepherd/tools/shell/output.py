"""Collects the output of a command: head and tail in memory, long output in full on disk."""

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from shepherd.events import EventCallback, Notice, Topic
from shepherd.tools.text import join_cut, new_spill_file, plain_text

_SPILL_LIMIT = 64 << 20


class CappedOutput:
    """Takes any number of bytes and keeps about `limit` of them for the model.

    The rest goes to a file in `spill_dir`, up to 64 MiB.
    """

    def __init__(self, limit: int, spill_dir: Path) -> None:
        self._head_limit = limit // 3
        self._tail_limit = limit - self._head_limit
        self._spill_dir = spill_dir
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        # the descriptor and the path of the file with all output, once it is too long
        self._spill: int | None = None
        self._spill_path: Path | None = None
        self._problem = ""

    def feed(self, data: bytes) -> bool:
        """Take more output; returns True, because a `Sink` must say whether to go on."""
        total_before = self._total
        self._total += len(data)
        if self._spill_path is None and self._total > self._head_limit + self._tail_limit:
            self._open_spill()
        self._write_spill(data, total_before)
        room = max(self._head_limit - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[room:]
        # cut at twice the length only, so that the tail is not moved for each piece of output
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]
        return True

    def text(self) -> str:
        """The text for the model; closes the file."""
        if self._spill is not None:
            os.close(self._spill)
            self._spill = None
        missing = self._total - len(self._head) - self._tail_limit
        if missing <= 0 or self._spill_path is None:
            return plain_text((self._head + self._tail).decode("utf-8", "replace"))
        # separately: an escape sequence broken by the cut would remove the rest
        head = plain_text(self._head.decode("utf-8", "ignore")).encode()
        kept = self._tail[-self._tail_limit :].decode("utf-8", "replace").lstrip("\ufffd")
        return join_cut(head, plain_text(kept).encode(), missing, self._spill_path) + self._problem

    def _open_spill(self) -> None:
        """Begin the file with all output so far; the directory stands for one that failed."""
        try:
            self._spill, self._spill_path = new_spill_file(self._spill_dir)
        except OSError as error:
            self._spill_path, self._problem = self._spill_dir, f"\n[output not kept: {error}]"
            return
        self._write_spill(bytes(self._head + self._tail), position=0)

    def _write_spill(self, data: bytes, position: int) -> None:
        """Append output that begins at this position of all output; beyond the limit it is lost."""
        if self._spill is None or position >= _SPILL_LIMIT:
            return
        try:
            with contextlib.closing(os.fdopen(os.dup(self._spill), "ab")) as file:
                file.write(data)
        except OSError as error:
            self._problem = f"\n[output not kept whole: {error}]"


FIRST_SECONDS = 0.5
"""Commands that end sooner send nothing."""

SECONDS, MAX_SECONDS, SHARE = 0.25, 2.0, 0.01
"""The interval begins with 0.25 s; of a long run it is a hundredth of the time, at most 2 s."""

LINES = 5
_BYTES = 4096


class LiveTail:
    """Takes the output of one command, and sends its last lines while it runs."""

    def __init__(self, on_event: EventCallback, secrets: Mapping[str, str]) -> None:
        self._on_event = on_event
        # one for each stream: a secret may come in parts, with the other stream between them
        self._redactors = Redactor(secrets), Redactor(secrets)
        self._last_bytes = b""
        self._begins_in_line = False  # whether the beginning of the first line is lost
        self._started = time.monotonic()
        self._next_send = self._started + FIRST_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        # False once the receiver of an event says so
        self._goes_on = True

    def out(self, data: bytes) -> bool:
        """Take standard output; False ends the command."""
        return self._take(self._redactors[0].feed(data))

    def err(self, data: bytes) -> bool:
        """Take standard error; False ends the command."""
        return self._take(self._redactors[1].feed(data))

    def close(self) -> None:
        """Send nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(self, data: bytes) -> bool:
        """Keep the end of the output, and send it when the interval is over."""
        output = self._last_bytes + data
        self._begins_in_line = self._begins_in_line or len(output) > _BYTES
        self._last_bytes = output[-_BYTES:]
        if self._timer is None:
            delay = max(0.0, self._next_send - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._send)
        return self._goes_on

    def _send(self) -> None:
        """Send the last lines; the timer calls it."""
        self._timer = None
        now = time.monotonic()
        self._next_send = now + min(MAX_SECONDS, max(SECONDS, (now - self._started) * SHARE))
        text = plain_text(self._whole_lines().decode("utf-8", "replace")).rstrip("\n")
        if text and self._goes_on:
            last_lines = "\n".join(text.split("\n")[-LINES:])
            self._goes_on = self._on_event(Notice(last_lines, Topic.OUTPUT))

    def _whole_lines(self) -> bytes:
        """The kept bytes without the rest of a line whose beginning is lost."""
        _, _, after_first = self._last_bytes.partition(b"\n")
        return after_first if self._begins_in_line and after_first else self._last_bytes


class Redactor:
    """Replaces each secret by its name; a possible beginning of one waits for its rest."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        # the longest first: one secret may be the beginning of another
        ordered = sorted(secrets.items(), key=lambda item: -len(item[0]))
        self._names = {s.encode(): f"[{name}]".encode() for s, name in ordered if s}
        self._longest = max(map(len, self._names), default=0)
        # the end of the output, which may be the beginning of a secret
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that are complete so far."""
        if not self._names:
            return data
        text = self._held + data
        for secret, name in self._names.items():
            text = text.replace(secret, name)
        self._held = self._possible_beginning(text)
        return text.removesuffix(self._held)

    def finish(self) -> bytes:
        """The bytes that waited."""
        held, self._held = self._held, b""
        return held

    def _possible_beginning(self, text: bytes) -> bytes:
        """The longest end of `text` with which a secret begins."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(secret.startswith(end) for secret in self._names):
                return end
        return b""
