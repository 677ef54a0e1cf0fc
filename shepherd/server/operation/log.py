"""The log on stderr: lines for readers, or one JSON object per line; the last ones for `/admin`."""

import logging
import sys
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any, TypeAlias

from shepherd.json_text import to_json
from shepherd.messages import JsonObject
from shepherd.server.record import SERVER, current_record

_LOGGERS = ("shepherd", "uvicorn")

REQUEST = "request_fields"
"""The attribute of a log record that has the fields of a request."""

MAX_LINES, MAX_LINE = 200, 1000
"""How many of the last lines of the log are kept, and the characters of each text in them."""

_KEPT = ("time", "level", "message", "key", "request_id", "exception")

ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of the request.

    An exception is its type and its places in the code; its message could have texts of clients.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        return to_json(self.fields(record))

    def fields(self, record: logging.LogRecord) -> JsonObject:
        """What the line has; `REQUEST` names the fields that a request has added."""
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
        return fields

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - logging's name
        """The type of an exception, and its places in the code."""
        kind, _, trace = ei
        name = "" if kind is None else kind.__qualname__
        return "".join([*traceback.format_tb(trace), name])


class RecentLines(logging.Handler):
    """Keeps the last lines of the log, the newest last, with what `JsonLines` would write.

    A request that only looked at the server is left out: `/admin` would fill them with itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[JsonObject] = deque(maxlen=MAX_LINES)
        self._format = JsonLines()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what a reader needs of a record; long texts lose their middle."""
        fields = self._format.fields(record)
        is_look = fields.get("wire") == SERVER and fields["method"] in ("GET", "HEAD")
        if not (is_look and fields["status"] < HTTPStatus.BAD_REQUEST):
            texts = ((name, str(fields[name])) for name in _KEPT if fields.get(name))
            self.lines.append({name: _without_middle(text) for name, text in texts})


def _without_middle(text: str) -> str:
    """A text of at most `MAX_LINE` characters; its ends tell more than the middle of a path."""
    half = MAX_LINE // 2
    return text if len(text) <= MAX_LINE else f"{text[:half]} … {text[-half:]}"


@contextmanager
def logging_to_stderr(*, as_json: bool = False) -> Generator[Sequence[JsonObject]]:
    """Write our log and uvicorn's to stderr while the server runs; gives the last lines."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else text)
    recent = RecentLines()
    handlers = handler, recent
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        for one in handlers:
            logging.getLogger(name).addHandler(one)
    logging.getLogger("shepherd").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        yield recent.lines
    finally:
        for name, level in levels.items():
            for one in handlers:
                logging.getLogger(name).removeHandler(one)
            logging.getLogger(name).setLevel(level)
