"""Code fences."""

import re
from typing import NamedTuple

from shepherd.backends.output import modes
from shepherd.backends.output.engine import CallReader, Verdict
from shepherd.backends.output.markers import Hit
from shepherd.events import CallbackEvent

FENCE_MARKERS = ("```", "~~~")
_CALL_LANGUAGES = frozenset({"", "json", "tool_call", "tool_code", "tool"})
_MAX_INFO = 200
_FENCE = {c: re.compile(f"{c}*") for c in "`~"}


class Opening(NamedTuple):
    """The opening line of a code block, and the whitespace before it."""

    lead: modes.Lead
    line: str
    language: str

    def show(self, machine: modes.Machine) -> None:
        """Emit it; its own indent is part of the block."""
        space = self.lead.text
        indent_start = space.rfind("\n") + 1
        machine.sink.put(CallbackEvent.CONTENT, space[:indent_start])
        machine.sink.put(CallbackEvent.CODEBLOCK, space[indent_start:] + self.line, self.language)


class FenceOpening(modes.Mode):
    """The rest of a line that begins with a fence: a code block, if it is an info string.

    If the style has calls in fences, the block may turn out to be only a call.
    """

    def __init__(self, machine: modes.Machine, lead: modes.Lead, marker: str) -> None:
        self._machine = machine
        self._lead = lead
        self._line = marker

    def feed(self, text: str) -> str:
        """Read to the end of the line, unless something shows before that it opens no block."""
        before_newline, newline, next_lines = text.partition("\n")
        line = self._line + before_newline + newline
        text_start = _not_info(line)
        if text_start is not None:
            self._machine.sink.put(CallbackEvent.CONTENT, self._lead.text + line[:text_start])
            self._machine.resume()
            return line[text_start:] + next_lines
        self._line = line
        if newline:
            self._open()
        return next_lines

    def finish(self, *, truncated: bool) -> str:
        """The end of the output ends the line too."""
        self._open()
        return ""

    def _open(self) -> None:
        """Begin the block, or a candidate if the block may be only a call."""
        fence = self._line[0] * _fence_length(self._line)
        info = self._line[len(fence) :].split()
        opening = Opening(self._lead, self._line, info[0] if info else "")
        machine = self._machine
        block = CodeBlock(machine, fence, opening.language)
        has_fenced_calls = machine.catalog and machine.grammar.style.marked
        if has_fenced_calls and opening.language in _CALL_LANGUAGES:
            reader = CallReader(machine.catalog, "", (), fence)
            machine.mode = FencedCandidate(machine, reader, opening, block)
        else:
            opening.show(machine)
            machine.mode = block


class CodeBlock(modes.HoldingMode):
    """Inside a code block, up to a line with only a fence that is at least as long.

    A marker directly after that fence, such as a call's, ends the line too.
    """

    def __init__(self, machine: modes.Machine, fence: str, language: str) -> None:
        self._machine = machine
        self._language = language
        char, length = fence[0], len(fence)
        self._fence_pattern = re.compile(rf"[ \t]{{0,64}}{char}{{{length},}}[ \t]*")
        self._may_become_fence = re.compile(rf"[ \t]{{0,64}}{char}*[ \t]*\r?\Z")
        self._at_line_start = True

    def _read(self, text: str, *, final: bool) -> str:
        """Show the block up to its closing fence, and hold a line that may become one."""
        start = 0 if self._at_line_start else text.find("\n") + 1  # 0 without a newline
        while start or self._at_line_start:
            self._at_line_start = False
            if not final and self._may_become_fence.match(text, start):
                self._hold(text, start)
                return ""
            hit = self._closing(text, start, final=final)
            if hit is not None and hit.marker is None:
                self._hold(text, start)
                return ""
            if hit is not None:
                self._put(text[: hit.start])
                self._machine.resume()
                return text[hit.start :]
            start = text.find("\n", start) + 1
        self._put(text)
        return ""

    def _closing(self, text: str, start: int, *, final: bool) -> Hit | None:
        """The end of the closing fence that begins at `start`, and the marker after it."""
        fence = self._fence_pattern.match(text, start)
        if fence is None:
            return None
        end = fence.end()
        if end == len(text) or text.startswith(("\n", "\r\n"), end):
            return Hit(end, "")
        return self._machine.grammar.anywhere.at(text, end, final=final)

    def _hold(self, text: str, start: int) -> None:
        """Show the text before a line, and hold that line back."""
        self._put(text[:start])
        self._held = text[start:]
        self._at_line_start = True

    def _put(self, text: str) -> None:
        self._machine.sink.put(CallbackEvent.CODEBLOCK, text, self._language)


class FencedCandidate(modes.Candidate):
    """A code block that is held while it can still be only a call."""

    def __init__(
        self, machine: modes.Machine, reader: CallReader, opening: Opening, block: CodeBlock
    ) -> None:
        super().__init__(machine, reader, opening.lead, opening.line)
        self._opening = opening
        self._block = block

    def _reject(self, verdict: Verdict, *, at_end: bool) -> str:
        """It is an ordinary block: show its opening line, and let it read again what was read."""
        self._opening.show(self._machine)
        self._machine.mode = self._block
        return verdict.text + verdict.rest


def _not_info(line: str) -> int | None:
    """Where the text begins that rules out an opening line; None if nothing does.

    That is a later backtick, as in "```code``` is", or the maximum length.
    """
    backtick = line.find("`", _fence_length(line)) if line[0] == "`" else -1
    if 0 <= backtick < _MAX_INFO:
        return backtick
    return _MAX_INFO if len(line) > _MAX_INFO else None


def _fence_length(line: str) -> int:
    """The number of backticks or tildes at the start of the line."""
    match = _FENCE[line[0]].match(line)
    return match.end() if match else 0
