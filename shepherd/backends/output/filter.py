"""The parser between a model's text and its events."""

import codecs
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shepherd.backends.output.assemble import build_machine, continue_text
from shepherd.backends.output.modes import Machine
from shepherd.backends.output.style import OutputStyle
from shepherd.backends.output.text import TextEvent
from shepherd.events import CallbackEvent
from shepherd.messages import ToolCall, ToolSpec


@dataclass(frozen=True, slots=True)
class ParsedOutput:
    """The result of parsing a model's output, for the history.

    `problems` explains to the model why text that looks like a call is not valid, if there is no
    call.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    problems: tuple[str, ...] = ()


def new_call_id() -> str:
    """A fresh id for a tool call."""
    return "call_" + os.urandom(6).hex()


class OutputFilter:
    """Turns one generation's output into events, fed piece by piece.

    The events are the same however the output is split into pieces. Only the syntax of reasoning
    and calls is removed from the text. Without `tools` nothing is a call. `prompt_tail` is the end
    of the rendered prompt, which may have opened the reasoning. `thinking` says so if the prompt is
    not known. `continued` is the kind of text at the prompt's end that the output continues.
    """

    def __init__(
        self,
        style: OutputStyle,
        tools: Sequence[ToolSpec] = (),
        *,
        prompt_tail: str = "",
        thinking: bool = False,
        continued: CallbackEvent | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._machine: Machine = build_machine(style, tools, prompt_tail, thinking=thinking)
        if continued is not None:
            continue_text(self._machine, style, prompt_tail, continued)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._new_id = new_id
        self._tool_calls: tuple[ToolCall, ...] = ()

    def feed(self, output: str | bytes) -> list[TextEvent]:
        """Parse more output; returns the certain events, with neighbours of one kind merged.

        Bytes are UTF-8 and may end in the middle of a character; bad ones become U+FFFD.
        """
        self._read(output if isinstance(output, str) else self._decoder.decode(output))
        return self._machine.sink.take()

    def _read(self, text: str) -> None:
        machine = self._machine
        while text:
            text = machine.mode.feed(text)

    def finish(self, *, truncated: bool = False) -> list[TextEvent]:
        """The held events; afterwards `result` is complete.

        `truncated`: the output was cut off (by a limit or a cancel), so an incomplete call counts
        as text. No more output may follow.
        """
        self._read(self._decoder.decode(b"", final=True))
        finished = None
        while finished is not self._machine.mode:
            finished = self._machine.mode
            rest = finished.finish(truncated=truncated)
            while rest:
                finished = None
                rest = self._machine.mode.feed(rest)
        self._machine.end()
        return self._machine.sink.take()

    @property
    def result(self) -> ParsedOutput:
        """The result so far; calls keep their ids between reads."""
        fresh = self._machine.calls[len(self._tool_calls) :]
        self._tool_calls += tuple(ToolCall(self._new_id(), c.name, c.arguments) for c in fresh)
        sink = self._machine.sink
        problems = () if self._tool_calls else tuple(self._machine.problems)
        return ParsedOutput(sink.content, sink.reasoning, self._tool_calls, problems)


class PlainOutput:
    """Output in which nothing means anything: that of a raw prompt. Like `OutputFilter`."""

    def __init__(self) -> None:
        self._text: list[str] = []

    def feed(self, output: str) -> list[TextEvent]:
        """All text is content."""
        self._text.append(output)
        return [TextEvent(CallbackEvent.CONTENT, output)] if output else []

    def finish(self, *, truncated: bool = False) -> list[TextEvent]:
        """Nothing is held back."""
        del truncated
        return []

    @property
    def result(self) -> ParsedOutput:
        """The text so far."""
        return ParsedOutput("".join(self._text))
