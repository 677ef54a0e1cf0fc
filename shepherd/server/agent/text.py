"""The text of an answer of several rounds, and its lines about tools."""

import re
from collections.abc import Mapping

from msgspec import Struct, structs

from shepherd import events, messages
from shepherd.config.section import ShowToolCalls
from shepherd.tools.text import code_span, one_line, pluralize
from shepherd.tools.tool import ToolResult

MAX_CHARACTERS = 160
"""Maximum characters of a call's arguments, or of an error, in a line about a tool."""

_KINDS: Mapping[ShowToolCalls, type[events.TextEvent]] = {
    ShowToolCalls.REASONING: events.Thinking,
    ShowToolCalls.CONTENT: events.Text,
}


class Paragraphs(Struct):
    """Text of one kind in parts that are paragraphs: the complete ones, and the one that grows."""

    complete: str = ""
    current: str = ""

    def add(self, text: str) -> str:
        """Add to the current part; returns the text with the break before a new part."""
        begins_part = bool(text and self.complete and not self.current)
        if begins_part:  # after an empty line, of which the earlier text may have the beginning
            newlines = len(self.complete) - len(self.complete.rstrip("\n"))
            text = "\n" * max(0, 2 - newlines) + text
        self.current += text
        return text

    def end(self, text: str | None = None) -> None:
        """End the current part; its whole text is `text`, by default what was added."""
        if text is not None:
            self.current = ""
            self.add(text)
        self.complete += self.current
        self.current = ""


class AnswerText:
    """The content and the reasoning that a client gets, joined over all rounds.

    It passes text to `callback` as it arrives. Rounds, and lines about tools, are paragraphs.
    """

    def __init__(self, callback: events.EventCallback, show: ShowToolCalls) -> None:
        self.content = Paragraphs()
        self.reasoning = Paragraphs()
        self._callback = callback
        self._line_kind = _KINDS.get(show)  # None: lines about tools are not sent
        self._open_call: messages.ToolCall | None = None
        self._whole_lines: list[str] = []  # of calls that ended while another one's line was open

    def listen(self, event: events.Event) -> bool:
        """The callback of the turn."""
        if isinstance(event, events.TextEvent) and event.text:
            event = structs.replace(event, text=self._paragraphs(type(event)).add(event.text))
        return self._callback(event)

    def end_generation(self, message: messages.Message) -> None:
        """End the paragraphs of a round, whose text is that of the message."""
        self.content.end(message.content)
        self.reasoning.end(message.reasoning)

    def begin_call(self, call: messages.ToolCall) -> None:
        """Begin the line about a call, unless that of another one has no end yet."""
        if self._open_call is None:
            self._open_call = call
            self._add(_line(call))

    def end_call(self, call: messages.ToolCall, result: ToolResult) -> None:
        """Complete the line about a call; one without a beginning gets a whole line."""
        # `→ 3 lines`, or the beginning of the error
        lines = len(result.content.splitlines())
        outcome = pluralize(lines, "line") if result.ok else _short_code(result.content)
        if self._open_call is call:
            self._open_call = None
            self._add(f" → {outcome}", ends=True)
        else:
            self._whole_lines.append(f"{_line(call)} → {outcome}")
        if self._open_call is None:  # lines of calls that ran beside it come now
            for line in self._whole_lines:
                self._add(line, ends=True)
            self._whole_lines.clear()

    def note(self, text: str) -> None:
        """Add a line of the server."""
        self._add(f"> {text}", ends=True)

    def _paragraphs(self, kind: type[events.TextEvent]) -> Paragraphs:
        """The text that events of this kind belong to."""
        return self.reasoning if kind is events.Thinking else self.content

    def _add(self, text: str, *, ends: bool = False) -> None:
        """Add text of the server, if the settings show it; `ends` completes the paragraph."""
        if self._line_kind is None:
            return
        paragraphs = self._paragraphs(self._line_kind)
        self._callback(self._line_kind(paragraphs.add(text)))
        if ends:
            paragraphs.end()


def _line(call: messages.ToolCall) -> str:
    """`> **read_file** `{"path": "a"}``; the model chose the name, so Markdown leaves it."""
    arguments = f" {_short_code(call.arguments_json)}" if call.arguments else ""
    name = re.sub(r"[^\w.-]", "_", call.name)
    return f"> **{name}**{arguments}"


def _short_code(text: str) -> str:
    """The beginning of the text on one line, in a code span."""
    line = one_line(text)
    return code_span(line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…")
