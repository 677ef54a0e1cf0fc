"""How lines reach the log's stream: those of requests together, all others at once."""

import asyncio
import logging
from io import StringIO

import pytest

from shepherd.server.operation.log import HOLD_SECONDS, REQUEST, GroupedLines


class _Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class _CountingStream(StringIO):
    """Counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str, /) -> int:
        self.writes += 1
        return super().write(text)


def _record(text: str, *, of_request: bool) -> logging.LogRecord:
    record = logging.LogRecord("shepherd", logging.INFO, "", 0, text, None, None)
    if of_request:
        setattr(record, REQUEST, {})
    return record


async def test_the_lines_of_requests_are_written_together_by_the_loop() -> None:
    stream = _CountingStream()
    handler = GroupedLines(stream, _Clock())
    for number in range(3):
        handler.handle(_record(f"line {number}", of_request=True))
    assert stream.getvalue() == ""
    while not stream.writes:
        await asyncio.sleep(HOLD_SECONDS)
    assert (stream.getvalue(), stream.writes) == ("line 0\nline 1\nline 2\n", 1)


async def test_any_other_line_is_written_at_once_after_those_before_it() -> None:
    stream = _CountingStream()
    handler = GroupedLines(stream, _Clock())
    handler.handle(_record("request", of_request=True))
    handler.handle(_record("warning", of_request=False))
    assert stream.getvalue() == "request\nwarning\n"


async def test_a_line_does_not_wait_for_a_loop_that_is_late() -> None:
    stream, clock = _CountingStream(), _Clock()
    handler = GroupedLines(stream, clock)
    handler.handle(_record("first", of_request=True))
    clock.now += HOLD_SECONDS
    handler.handle(_record("second", of_request=True))
    assert stream.getvalue() == "first\nsecond\n"


def test_without_a_loop_every_line_is_written_at_once() -> None:
    stream = _CountingStream()
    GroupedLines(stream, _Clock()).handle(_record("alone", of_request=True))
    assert stream.getvalue() == "alone\n"


def test_a_closed_stream_ends_no_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    stream = _CountingStream()
    handler = GroupedLines(stream, _Clock())
    stream.close()
    handler.handle(_record("lost", of_request=False))
    assert capsys.readouterr() == ("", "")
