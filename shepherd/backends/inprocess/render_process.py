"""Renders an odd template in a process of its own, which can be ended.

The module is also the program of that process. It reads one JSON object on each line of its input,
and writes one for each: first the template's source comes, then the variables of each rendering.
The system limits its memory and its processor time, also if its parent is gone.
"""

import json
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Template

from shepherd.backends.inprocess import template_environment
from shepherd.backends.inprocess.render_guard import MAX_SECONDS, ExhaustedError

MAX_BYTES = 1 << 30
_WALL_SECONDS = 3 * MAX_SECONDS
"""The limit on a busy machine; the process limits its own processor time."""

_LONGEST = 6
"""Bytes of one character in JSON."""


class RenderError(Exception):
    """The template raised an error."""


class RenderProcess:
    """Renders one template, one conversation at a time. Starts with the first."""

    def __init__(self, source: str, python: str = sys.executable) -> None:
        """`python` is the interpreter that renders."""
        self._source = source
        self._python = python
        self._running: list[subprocess.Popen[bytes]] = []
        """The process, if there is one."""
        weakref.finalize(self, _end, self._running)

    def render(self, variables: Mapping[str, Any], now: datetime, room: int) -> str:
        """The text; raises RenderError, or ExhaustedError if it takes too much."""
        request = {"variables": variables, "now": now.isoformat(), "room": room}
        try:
            process = self._process()
            ending = threading.Timer(_WALL_SECONDS, process.kill)
            ending.start()
            try:
                answer = _answer(process, request, _LONGEST * room + 1_000)
            finally:
                ending.cancel()
        except OSError as error:  # it has ended, or can't be started
            answer = {"exhausted": str(error)}
        if "exhausted" in answer:
            _end(self._running)
            raise ExhaustedError(answer["exhausted"])
        if "error" in answer:
            raise RenderError(answer["error"])
        return answer["text"]

    def _process(self) -> subprocess.Popen[bytes]:
        """The process that knows the template."""
        if not self._running:
            process = subprocess.Popen(
                (self._python, "-P", "-m", __name__),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",  # an empty entry of PYTHONPATH would be a directory of a model
            )
            self._running.append(process)
            assert process.stdin is not None
            process.stdin.write(_line(self._source))
        return self._running[0]


def _answer(process: subprocess.Popen[bytes], request: Any, limit: int) -> dict[str, str]:
    """The answer to a request."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_line(request))
    process.stdin.flush()
    line = process.stdout.readline(limit)
    if not line.endswith(b"\n"):  # the system has ended it
        return {"exhausted": "it takes too much time or memory"}
    return json.loads(line)


def _end(running: list[subprocess.Popen[bytes]]) -> None:
    """End the process, if there is one."""
    while running:
        with running.pop() as process:
            process.kill()


def _line(value: Any) -> bytes:
    return json.dumps(value, default=str).encode() + b"\n"


def main() -> int:
    """Render until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; it is for the parent
    source: str = json.loads(sys.stdin.buffer.readline())
    template: Template | None = None
    for line in sys.stdin.buffer:
        _limit()
        try:
            request = json.loads(line)
            now = datetime.fromisoformat(request["now"])
            template = template or template_environment.compile_template(source, odd=True)
            text = template_environment.render_template(
                template, request["variables"], now, request["room"]
            )
            answer = {"text": text}
        except RecursionError:
            answer = {"error": "RecursionError"}
        except (MemoryError, ExhaustedError) as error:
            answer = {"exhausted": str(error) or "it takes too much memory"}
        except template_environment.RENDER_ERRORS as error:
            answer = {"error": str(error) or type(error).__name__}
        sys.stdout.buffer.write(_line(answer))
        sys.stdout.buffer.flush()
    return 0


def _limit() -> None:
    """Let the system refuse too much memory, and end this process if a rendering takes too long."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + MAX_SECONDS) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))


if __name__ == "__main__":
    sys.exit(main())
