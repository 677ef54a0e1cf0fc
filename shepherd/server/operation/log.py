"""The log on stderr: lines for readers, or one JSON object per line."""

import logging
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeAlias

from shepherd.json_text import to_json
from shepherd.server.record import current_record

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
        """The record as one line of JSON; `REQUEST` names the fields that a request has added."""
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


@contextmanager
def logging_to_stderr(*, as_json: bool = False) -> Generator[None]:
    """Write our log and uvicorn's to stderr while the server runs."""
    handler = logging.StreamHandler(sys.stderr)
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
