"""Serves one editor over stdin and stdout, which carry nothing else, until it closes stdin."""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from acp import run_agent
from acp.interfaces import Agent

from shepherd import json_text, messages
from shepherd.cli.acp.agent import EditorAgent
from shepherd.cli.acp.opening import SharedModels
from shepherd.cli.acp.updates import INTERNAL_ERROR, INVALID_REQUEST
from shepherd.cli.terminal.lines import read_lines, take_streams
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.tools.text import valid_json

TERMINAL = "shepherd: this speaks with an editor, which starts it by itself (Ctrl+D ends it)\n"


async def serve_editor(
    config: Config, settings: Callable[[Path], Config], providers: ProviderBook
) -> int:
    """Answer requests on stdin until it ends; returns the exit code.

    `settings` reads the settings that apply in a session's directory.
    """
    if sys.stdin.isatty():
        sys.stderr.write(TERMINAL)
    source, target = take_streams()
    # editors show stderr to the user, and the package logs what it answers with an error
    logging.basicConfig(handlers=[_LineHandler()], level=logging.WARNING)
    transport = LineTransport(read_lines(source), target)
    agent = EditorAgent(config, settings, SharedModels(providers), transport.post)
    try:
        await run_agent(cast(Agent, agent), transport, use_unstable_protocol=True)
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # by a signal; the package swallows it
            raise asyncio.CancelledError
    finally:
        await agent.aclose()
        await transport.finish()
    return 0


class _LineHandler(logging.Handler):
    """Writes a record as one line on stderr, without its traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        _, error, _ = record.exc_info or (None, None, None)
        reason = f": {error}" if error is not None else ""
        text = " ".join(sanitize(f"{record.getMessage()}{reason}").split())
        sys.stderr.write(f"shepherd: {text}\n")
        sys.stderr.flush()


FLUSH_SECONDS = 5.0
"""The time at the end in which an editor can read the last messages."""


class LineWriter:
    """Writes lines in a thread, because an editor that does not read must not stop the turn.

    `when_closed` is called in that thread once nothing can be written anymore.
    """

    def __init__(self, descriptor: int, when_closed: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._when_closed = when_closed
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="stdout", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Write the line after those before it."""
        self._queue.put(line)

    def finish(self) -> None:
        """Wait until all is written, for at most FLUSH_SECONDS."""
        self._queue.put(None)
        self._thread.join(FLUSH_SECONDS)

    def _write_all(self) -> None:
        """Write until `finish`; the thread's whole work."""
        try:
            while (line := self._queue.get()) is not None:
                unwritten = memoryview(line)
                while unwritten:  # a full pipe takes only a part at once
                    unwritten = unwritten[os.write(self._descriptor, unwritten) :]
        except OSError:
            self._when_closed()


class LineTransport:
    """The transport of the connection; a line that is not a message gets an error as its answer."""

    def __init__(self, lines: asyncio.Queue[bytes | None], output: int) -> None:
        loop = asyncio.get_running_loop()
        self._lines = lines

        def end_input() -> None:
            """End the connection: an editor that reads nothing any more needs no answers."""
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lines.put_nowait, None)

        self._writer = LineWriter(output, end_input)

    def post(self, message: messages.JsonObject) -> None:
        """Send a message after those before it; a thread writes it, so nothing waits."""
        self._writer.write(message_line(message))

    async def send(self, message: messages.JsonObject) -> None:
        """Send a message; the connection's own are sent in this way."""
        self.post(message)

    async def receive(self) -> messages.JsonObject | None:
        """The next message; None at the end of the input."""
        while (line := await self._lines.get()) is not None:
            if not line.strip():
                continue
            try:
                return parse_message(line)
            except MessageError as error:
                self.post(error.response)  # the next line may be right
        return None

    async def close(self) -> None:
        """Nothing: the last answers are written after the connection has ended."""

    async def finish(self) -> None:
        """Wait for the editor to read the last messages, for at most FLUSH_SECONDS."""
        await asyncio.to_thread(self._writer.finish)


PARSE_ERROR = -32700


class MessageError(Exception):
    """A line is not a message; `id` is that of the request, None if it has none."""

    def __init__(self, code: int, text: str, id: str | int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = id

    @property
    def response(self) -> messages.JsonObject:
        """The answer that reports the error."""
        error = {"code": self.code, "message": str(self)}
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


def parse_message(line: bytes) -> messages.JsonObject:
    """The checked message in `line`; raises MessageError.

    Extension data (`_meta`) is left out of the parameters, because nothing here reads it.
    """
    try:
        data = valid_json(json.loads(line.decode(), parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise MessageError(PARSE_ERROR, f"Parse error: the line is not JSON ({error})") from error
    if not isinstance(data, dict):
        raise MessageError(INVALID_REQUEST, "Invalid request: a message must be a JSON object")
    message = cast(messages.JsonObject, data)
    if not json_text.is_finite(message):
        raise MessageError(INVALID_REQUEST, "Invalid request: a number is infinite")
    return _checked(message)


def message_line(message: messages.JsonObject) -> bytes:
    """The message as a line; lone surrogates become question marks."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace") + b"\n"


def _refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity, which Python's parser would accept."""
    raise ValueError(f"{name} is not a number of JSON")


def _checked(message: messages.JsonObject) -> messages.JsonObject:
    """The message as the package takes it, without an error of its own."""
    request_id = message.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | None):
        raise MessageError(INVALID_REQUEST, "Invalid request: the id must be a text or an integer")
    if "method" in message:
        return _checked_call(message, request_id)
    if "id" not in message:
        raise MessageError(INVALID_REQUEST, "Invalid request: there is neither a method nor an id")
    if "error" in message:
        message["error"] = _checked_error(message["error"])
    return message


def _checked_call(message: messages.JsonObject, id: str | int | None) -> messages.JsonObject:
    """A request or a notification, whose `id` is None, without `_meta`; raises MessageError."""
    if not isinstance(message["method"], str):
        raise MessageError(INVALID_REQUEST, "Invalid request: the method must be a text", id)
    params = message.get("params")
    if not isinstance(params, dict | None):
        raise MessageError(INVALID_REQUEST, "Invalid request: params must be an object", id)
    params = cast(messages.JsonObject, params or {})
    return message | {"params": {key: params[key] for key in params if key != "_meta"}}


def _checked_error(error: object) -> dict[str, Any]:
    """The error of a response, with a number and a text whatever the client sent."""
    match error:
        case {"code": int(code), "message": str(text)}:
            return {"code": code, "message": text}
        case _:
            return {"code": INTERNAL_ERROR, "message": str(error)}
