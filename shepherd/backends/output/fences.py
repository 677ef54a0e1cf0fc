"""Code fences."""

import re

from shepherd.backends.output.modes import Machine, Mode
from shepherd.events import CallbackEvent

FENCE_MARKERS = ("```", "~~~")
_MAX_INFO = 200
_REST_OF_FENCE = {c: re.compile(rf"{re.escape(c)}*") for c in "`~"}
_BLANK_LINE = re.compile(r"[ \t]*\r?\n?")


class FenceOpening(Mode):
    """The rest of a line that begins with a fence: a code block, if it is an info string."""

    def __init__(self, machine: Machine, lead: str, marker: str) -> None:
        self._machine = machine
        self._lead = lead
        self._line = marker

    def feed(self, text: str) -> str:
        end = text.find("\n")
        line = self._line + (text if end < 0 else text[: end + 1])
        bad = self._not_info(line)
        if bad is not None:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead + line[:bad])
            self._machine.resume()
            return line[bad:] + ("" if end < 0 else text[end + 1 :])
        self._line = line
        if end < 0:
            return ""
        self._open()
        return text[end + 1 :]

    def finish(self, *, truncated: bool) -> str:
        self._open()
        return ""

    def _open(self) -> None:
        fence = self._line[0] * self._fence_length(self._line)
        info = self._line[len(fence) :].split()
        language = info[0] if info else ""
        newlines = self._lead.rfind("\n") + 1
        self._machine.sink.put(CallbackEvent.CONTENT, self._lead[:newlines])
        self._machine.mode = CodeBlock(self._machine, fence, language)
        self._machine.sink.put(
            CallbackEvent.CODEBLOCK, self._lead[newlines:] + self._line, language
        )

    def _not_info(self, line: str) -> int | None:
        """Where the line turns out not to open a block: at a backtick behind, or far too long."""
        start = self._fence_length(line)
        found = line.find("`", start) if line[0] == "`" else -1
        if 0 <= found < _MAX_INFO:
            return found
        return _MAX_INFO if len(line) > _MAX_INFO else None

    @staticmethod
    def _fence_length(line: str) -> int:
        found = _REST_OF_FENCE[line[0]].match(line)
        return found.end() if found else 0


class CodeBlock(Mode):
    """Inside a code block, until a line of nothing but a fence at least as long."""

    def __init__(self, machine: Machine, fence: str, language: str) -> None:
        self._machine = machine
        self._language = language
        self._closing = re.compile(
            rf"[ \t]{{0,64}}{re.escape(fence)}{re.escape(fence[0])}*[ \t]*(?=\r?\n|\Z)"
        )
        self._possible = re.compile(rf"[ \t]{{0,64}}{re.escape(fence[0])}*[ \t]*\r?\Z")
        self._line_start = True
        self._held = ""

    def feed(self, text: str) -> str:
        return self._read(self._held + text, final=False)

    def finish(self, *, truncated: bool) -> str:
        return self._read(self._held, final=True)

    def _read(self, text: str, *, final: bool) -> str:
        self._held = ""
        start = 0 if self._line_start else text.find("\n") + 1
        while start or self._line_start:
            self._line_start = False
            if not final and self._possible.match(text, start):
                self._put(text[:start])
                self._held = text[start:]
                self._line_start = True
                return ""
            closing = self._closing.match(text, start)
            if closing is not None:
                self._put(text[: closing.end()])
                self._machine.resume()
                return text[closing.end() :]
            start = text.find("\n", start) + 1
        self._put(text)
        return ""

    def _put(self, text: str) -> None:
        self._machine.sink.put(CallbackEvent.CODEBLOCK, text, self._language)
