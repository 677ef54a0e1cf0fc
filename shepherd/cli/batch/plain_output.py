"""Events as plain text: the answer on stdout, everything else on stderr."""

import sys
from dataclasses import dataclass, field
from typing import TextIO

from shepherd.cli.terminal.sanitize import one_line, sanitize, sanitize_chunk
from shepherd.events import (
    Event,
    Failure,
    FinishReason,
    Notice,
    PlanUpdate,
    Stop,
    Text,
    Thinking,
    ToolResult,
    Topic,
)
from shepherd.messages import ToolCall
from shepherd.tools.plan import ASCII_SIGNS, PLAN_TOOLS

CUT = "The answer was cut: it reached the limit of tokens."
DENIED = "Error: denied"
"""The beginning of a denied call's result."""

LINE_WIDTH = 200
"""The maximum length of a line that reports a tool call or result."""


@dataclass(slots=True)
class _Stream:
    """A text stream that tracks whether its last line is still open."""

    file: TextIO
    is_open: bool = False

    def write(self, text: str) -> None:
        if text:
            self.file.write(text)
            self.file.flush()
            self.is_open = not text.endswith("\n")

    def end_line(self) -> None:
        if self.is_open:
            self.write("\n")


@dataclass(slots=True)
class PlainOutput:
    """Shows one turn; `receive` is its callback.

    On a terminal, text appears as it arrives. Otherwise stdout gets only the last answer, byte for
    byte, and text between tool calls goes to stderr. `broken` is True once stdout is closed; the
    turn is then cancelled. `denied` counts the results of denied calls.
    """

    live: bool
    broken: bool = False
    denied: int = 0
    _out: _Stream = field(default_factory=lambda: _Stream(sys.stdout))
    _err: _Stream = field(default_factory=lambda: _Stream(sys.stderr))
    _held: list[str] = field(default_factory=list[str])

    def receive(self, event: Event) -> bool:
        """Show an event; False if stdout is closed."""
        try:
            self._show(event)
        except BrokenPipeError:
            self.broken = True
        return not self.broken

    def finish(self) -> None:
        """Show the held text and end the last line."""
        if self.broken:
            return
        try:
            self._release(self._out)
            self._out.end_line()
            self._err.end_line()
        except BrokenPipeError:
            self.broken = True

    def note(self, text: str) -> None:
        """Print a line on stderr."""
        if self.live:
            self._out.end_line()
        self._err.end_line()
        self._err.write(f"{sanitize(text)}\n")

    def _show(self, event: Event) -> None:
        match event:
            case Text():
                self._answer(event.text)
            case Thinking():
                self._err.write(sanitize_chunk(event.text))
            case Stop():
                self._stop(event.reason)
            case ToolCall() if event.name not in PLAN_TOOLS:
                self.note(f"→ {event.name} {one_line(event.arguments_json, LINE_WIDTH)}")
            case ToolResult():
                self.denied += event.text.startswith(DENIED)
                self.note(f"  {one_line(event.text, LINE_WIDTH)}")
            case Failure():
                self.note(f"shepherd: {event.message}")
            case PlanUpdate():
                self._plan(event)
            case Notice() if event.topic != Topic.OUTPUT:
                self.note(event.text)
            case _:
                pass

    def _stop(self, reason: FinishReason) -> None:
        self._release(self._err if reason is FinishReason.TOOL_CALLS else self._out)
        if reason is FinishReason.LENGTH:
            self.note(CUT)

    def _plan(self, plan: PlanUpdate) -> None:
        """Show a plan: a proposal as an answer, a checklist as a note."""
        if plan.proposal:
            self._err.end_line()
            self._out.write(f"{sanitize(plan.proposal)}\n")
        else:
            self.note("\n".join(f"{ASCII_SIGNS[step.status]} {step.step}" for step in plan.steps))

    def _answer(self, text: str) -> None:
        if self.live:
            self._err.end_line()
            self._out.write(sanitize_chunk(text))
        else:
            self._held.append(text)

    def _release(self, stream: _Stream) -> None:
        text = "".join(self._held)
        self._held.clear()
        if text:
            self._err.end_line()
        stream.write(sanitize(text) if stream is self._err else text)
