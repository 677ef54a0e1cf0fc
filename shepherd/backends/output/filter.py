"""The parser between a model's text and its events."""

import codecs
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import cast

from msgspec import Struct

from shepherd.backends.output import reasoning
from shepherd.backends.output.catalog import ToolCatalog
from shepherd.backends.output.engine import CallReader
from shepherd.backends.output.fences import FENCE_MARKERS, FenceOpening
from shepherd.backends.output.harmony import HARMONY_OPENERS, open_message
from shepherd.backends.output.known import ELEMENT, LINES, NOTATIONS, TAGS
from shepherd.backends.output.modes import Candidate, Grammar, Lead, Machine, Mode, Opener
from shepherd.backends.output.notation import Notation
from shepherd.backends.output.style import OutputStyle
from shepherd.backends.output.text import TextEvent
from shepherd.events import CallbackEvent, Text
from shepherd.messages import ToolCall, ToolSpec

ORPHANS = frozenset({*TAGS.values(), "</function>", "</invoke>", ";", "<|tool_response>"})
"""Texts without a meaning after a call: extra closing tags of some models, the semicolon between
Llama's bare calls, and the end token of Gemma 4's turns."""


_added: list[Notation] = []
"""Those of plugins."""


class ParsedOutput(Struct, frozen=True):
    """The result of parsing a model's output, for the history.

    `problems` explains to the model why text that looks like a call is not valid, if there is no
    call.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    problems: tuple[str, ...] = ()


def add_notations(notations: object) -> None:
    """Read calls as a plugin's notation, or its list of them, says; raises TypeError otherwise."""
    several = [notations] if isinstance(notations, Notation) else cast(Iterable[object], notations)
    for notation in several:
        if not isinstance(notation, Notation):
            raise TypeError("it is not a Notation, or a list of them")
        if notation not in _added:
            _added.append(notation)
    _grammar.cache_clear()


def new_call_id() -> str:
    """A fresh id for a tool call."""
    return "call_" + os.urandom(6).hex()


class OutputFilter:
    """Turns one generation's output into events, fed piece by piece.

    The events are the same however the output is split into pieces. Only the syntax of reasoning
    and calls is removed from the text. Without `tools` nothing is a call. `prompt_tail` is the end
    of the rendered prompt, which may have opened the reasoning. `thinking` says so if the prompt is
    not known. `continued` is the kind of text at the prompt's end that the output continues.
    `rewinds`: the first call that went wrong is not shown; behind it `kept` is set, and `rewind`
    must follow.
    """

    def __init__(
        self,
        style: OutputStyle,
        tools: Sequence[ToolSpec] = (),
        *,
        prompt_tail: str = "",
        thinking: bool = False,
        continued: CallbackEvent | None = None,
        rewinds: bool = False,
    ) -> None:
        self._machine = _build_machine(
            style, tools, prompt_tail, thinking=thinking, rewinds=rewinds
        )
        self._separator = style.separator
        self._length = 0
        """The characters that were read."""
        self.kept: int | None = None
        """So many characters come before a call that went wrong; None without one."""
        if continued is not None:
            _continue_text(self._machine, style, prompt_tail, continued)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tool_calls: tuple[ToolCall, ...] = ()

    def feed(self, output: str | bytes) -> list[TextEvent]:
        """Parse more output; returns the certain events, with neighbours of one kind merged.

        Bytes are UTF-8 and may end in the middle of a character; bad ones become U+FFFD.
        """
        self._read(output if isinstance(output, str) else self._decoder.decode(output))
        return self._machine.sink.take()

    def _read(self, text: str) -> None:
        """Let one mode after another read; each returns what it leaves to the next."""
        self._length += len(text)
        while text and not self._machine.dropped:
            text = self._machine.mode.feed(text)
            self._note_stop()

    def finish(self, *, truncated: bool = False) -> list[TextEvent]:
        """The held events; afterwards `result` is complete.

        `truncated`: the output was cut off (by a limit or a cancel), so an incomplete call counts
        as text. No more output may follow.
        """
        machine = self._machine
        self._read(self._decoder.decode(b"", final=True))
        finished_mode = None
        # A mode may give text back, or let another mode take over, which must finish too.
        while finished_mode is not machine.mode and not machine.dropped:
            finished_mode = machine.mode
            returned = finished_mode.finish(truncated=truncated)
            if returned:
                finished_mode = None
                self._read(returned)
            self._note_stop()
        if self.kept is None:
            machine.end()
        return machine.sink.take()

    def _note_stop(self) -> None:
        """Note what came before a call that went wrong."""
        if self.kept is None and self._machine.dropped:
            self.kept = self._length - len(self._machine.dropped)

    @property
    def separator(self) -> str:
        """What stands between the text before a call that went wrong, and the next call."""
        return self._separator if self._machine.sink.has_content else ""

    def rewind(self, *, written: bool) -> list[TextEvent]:
        """Go on behind the text before a call that went wrong; `written`: another one follows.

        Else what was dropped is text.
        """
        machine, self.kept = self._machine, None
        text = self.separator if written else machine.dropped
        machine.go_on(line_start=True)
        self._read(text)
        return machine.sink.take()

    @property
    def result(self) -> ParsedOutput:
        """The result so far; calls keep their ids between reads."""
        new_calls = self._machine.calls[len(self._tool_calls) :]
        self._tool_calls += tuple(ToolCall(new_call_id(), c.name, c.arguments) for c in new_calls)
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
        return [Text(output)] if output else []

    def finish(self, *, truncated: bool = False) -> list[TextEvent]:
        """Nothing is held back."""
        del truncated
        return []

    @property
    def result(self) -> ParsedOutput:
        """The text so far."""
        return ParsedOutput("".join(self._text))


def _build_machine(
    style: OutputStyle,
    tools: Sequence[ToolSpec],
    prompt_tail: str,
    *,
    thinking: bool,
    rewinds: bool,
) -> Machine:
    """A parser at the start of its output."""
    catalog = ToolCatalog(tools)
    machine = Machine(_grammar(style, catalog.names), catalog, rewinds=rewinds)
    machine.mode = (
        _first_thought(machine, style, prompt_tail, thinking=thinking)
        or (open_message(machine, prompt_tail) if style.channels else None)
        or machine.prose
    )
    for notation in style.notations:
        if notation.prompted and prompt_tail.endswith(notation.prompted):
            machine.mode.feed(notation.prompted)  # the prompt has begun a call
    return machine


def _continue_text(
    machine: Machine, style: OutputStyle, prompt_tail: str, kind: CallbackEvent
) -> None:
    """Set a new parser into the middle of reasoning, or of content of this kind."""
    if style.channels:
        return  # the prompt's end has the header of the message that goes on
    if kind is CallbackEvent.THINKING and style.think:
        machine.mode = reasoning.Thinking(machine, style.think[0], newline=False)
    elif machine.mode is machine.prose:
        machine.resume(line_start=not prompt_tail or prompt_tail.endswith("\n"))


@lru_cache(maxsize=32)
def _grammar(style: OutputStyle, names: tuple[str, ...]) -> Grammar:
    """The grammar of `style` with tools of these names; without tools there are no calls."""
    is_called = bool(names) and style.marked
    calls = _call_markers(style, names) if is_called else {}
    orphans = {*ORPHANS, *(n.closing for n in style.notations if n.closing)}
    # A word begins a call only at the start of a line: every such letter would be a trigger.
    words = {marker: calls.pop(marker) for marker in list(calls) if marker[0] not in "<[]"}
    anywhere = _candidates(calls)
    if style.answer:
        closing = reasoning.answer_closing([a.close for a in style.answer], calls)
        anywhere |= {a.close: closing for a in style.answer}
    if style.channels:  # its channels count without tools too
        anywhere |= HARMONY_OPENERS
    elements = (f"<{name}" for name in names)
    at_line: dict[str, Opener] = {
        **{m.open: partial(reasoning.thinking_opening, m) for m in style.think},
        **{m.close: partial(reasoning.hidden_before_content, m.after) for m in style.think},
        **{a.open: partial(reasoning.hidden_before_content, 1) for a in style.answer if a.open},
        **dict.fromkeys(FENCE_MARKERS, FenceOpening),
        **_candidates(words | (LINES | dict.fromkeys(elements, (ELEMENT,)) if is_called else {})),
    }
    return Grammar(style, anywhere, at_line, calls, orphans if names else ())


def _call_markers(style: OutputStyle, names: Sequence[str]) -> dict[str, tuple[Notation, ...]]:
    """The notations of calls by the markers that begin them anywhere in a line."""
    table: dict[str, tuple[Notation, ...]] = {}
    for notation in (*style.notations, *NOTATIONS, *_added):
        for marker in notation.markers(names):
            is_own = marker == notation.marker and not notation.is_object
            if is_own or (marker not in TAGS and (notation.closing or not notation.is_object)):
                table[marker] = (*table.get(marker, ()), notation)
    return dict.fromkeys(TAGS, ()) | table


def _first_thought(
    machine: Machine, style: OutputStyle, prompt_tail: str, *, thinking: bool
) -> Mode | None:
    """The mode of reasoning, if the prompt has opened it or `thinking` says so."""
    trimmed = prompt_tail.rstrip()
    for markers in style.think:
        if trimmed.endswith(markers.open):
            # Space behind the marker means that the prompt has its newline already.
            return reasoning.Thinking(machine, markers, newline=trimmed == prompt_tail)
    return reasoning.Thinking(machine, style.think[0]) if thinking and style.think else None


def _candidates(calls: Mapping[str, tuple[Notation, ...]]) -> dict[str, Opener]:
    """For each marker, the start of a candidate with its reader."""

    def open_candidate(machine: Machine, lead: Lead, marker: str) -> Mode:
        return Candidate(machine, CallReader(machine.catalog, marker, calls[marker]), lead, marker)

    return dict.fromkeys(calls, open_candidate)
