"""The log on stderr: lines for readers, or one JSON object per line."""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Any, TextIO, TypeAlias

from shepherd.json_text import to_json
from shepherd.server.operation.record import current_record

_LOGGERS = ("shepherd", "uvicorn")

REQUEST = "request_fields"
"""The attribute of a log record that has the fields of a request."""

ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the request.

    An exception is its type and its places in the code; its message could have texts of clients.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = current_record()
        if request is not None:
            fields["request_id"] = request.id
        fields |= getattr(record, REQUEST, {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return to_json(fields)

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - logging's name
        """The type of an exception, and its places in the code."""
        kind, _, trace = ei
        name = "" if kind is None else kind.__qualname__
        return "".join([*traceback.format_tb(trace), name])


HOLD_SECONDS = 0.02
"""How long the line of a request may wait for others; a write takes longer than making a line."""


class GroupedLines(logging.Handler):
    """Writes records to a stream; the lines of requests are written together, a moment later.

    All other records are written at once, after those before them.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._stream = stream
        self._clock = clock
        self._held: list[str] = []
        self._since = 0.0
        self._last: logging.LogRecord | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        try:
            self._held.append(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - as in the handlers of logging itself
            self.handleError(record)
            return
        self._last = record
        if not (hasattr(record, REQUEST) and self._may_wait()):
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        with self.lock or nullcontext():
            held, self._held = self._held, []
            if not held or self._last is None:
                return
            try:
                self._stream.write("".join(held))
                self._stream.flush()
            except (OSError, ValueError):  # the stream was closed
                self.handleError(self._last)

    def _may_wait(self) -> bool:
        """Whether the event loop writes the held lines later."""
        now = self._clock()
        if len(self._held) > 1:
            return now - self._since < HOLD_SECONDS
        try:
            asyncio.get_running_loop().call_later(HOLD_SECONDS, self.flush)
        except RuntimeError:  # there is none in this thread
            return False
        self._since = now
        return True


@contextmanager
def logging_to_stderr(*, as_json: bool = False) -> Generator[None]:
    """Write our log and uvicorn's to stderr while the server runs."""
    handler = GroupedLines(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(handler)
    logging.getLogger("shepherd").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).removeHandler(handler)
            logging.getLogger(name).setLevel(level)
        handler.flush()
