"""Builds the parser for a style, the offered tools, and the prompt's end."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.table import (
    ORPHANS,
    ReaderFactory,
    call_markers,
    line_markers,
)
from shepherd.backends.output.fences import FENCE_MARKERS, FenceOpening
from shepherd.backends.output.harmony import HARMONY_OPENERS, open_message
from shepherd.backends.output.modes import Candidate, Grammar, Lead, Machine, Mode, Opener, Prose
from shepherd.backends.output.style import CallFormat, OutputStyle, ThinkMarkers
from shepherd.backends.output.thinking import Thinking, answer_closing, answer_opening
from shepherd.events import CallbackEvent
from shepherd.messages import ToolSpec


def build_machine(
    style: OutputStyle, tools: Sequence[ToolSpec], prompt_tail: str, *, thinking: bool
) -> Machine:
    """A parser at the start of its output."""
    catalog = ToolCatalog(tools)
    machine = Machine(_grammar(style, catalog.names), catalog)
    machine.prose = Prose(machine)
    machine.mode = (
        _first_thought(machine, style, prompt_tail, thinking=thinking)
        or (open_message(machine, prompt_tail) if CallFormat.HARMONY in style.formats else None)
        or machine.prose
    )
    return machine


def continue_text(
    machine: Machine, style: OutputStyle, prompt_tail: str, kind: CallbackEvent
) -> None:
    """Set a new parser into the middle of reasoning, or of content of this kind."""
    if CallFormat.HARMONY in style.formats:
        return
    if kind is CallbackEvent.THINKING and style.think:
        machine.mode = Thinking(machine, style.think[0], newline=False)
    elif machine.mode is machine.prose:
        machine.resume(line_start=not prompt_tail or prompt_tail.endswith("\n"))


@lru_cache(maxsize=32)
def _grammar(style: OutputStyle, names: tuple[str, ...]) -> Grammar:
    """The grammar of `style` with tools of these names; without tools there are no calls."""
    formats = style.formats if names else frozenset[CallFormat]()
    calls = call_markers(formats, names)
    anywhere: dict[str, Opener] = _candidates(calls)
    if style.answer:
        closing = answer_closing([a.close for a in style.answer], calls)
        anywhere |= {a.close: closing for a in style.answer}
    if CallFormat.HARMONY in style.formats:
        anywhere |= HARMONY_OPENERS
    at_line = (
        _thoughts(style.think)
        | {a.open: answer_opening for a in style.answer if a.open}
        | _fences(fenced_calls=CallFormat.FENCED in formats)
        | _candidates(line_markers(formats, names))
    )
    return Grammar(style, anywhere, at_line, calls, ORPHANS if names else frozenset())


def _first_thought(
    machine: Machine, style: OutputStyle, prompt_tail: str, *, thinking: bool
) -> Mode | None:
    tail = prompt_tail.rstrip()
    for markers in style.think:
        if tail.endswith(markers.open):
            return Thinking(machine, markers, newline=tail == prompt_tail)
    return Thinking(machine, style.think[0]) if thinking and style.think else None


def _thoughts(think: Iterable[ThinkMarkers]) -> dict[str, Opener]:
    openers: dict[str, Opener] = {}
    for markers in think:
        openers[markers.open] = _think_opener(markers)
        openers[markers.close] = _stray_close(markers)
    return openers


def _think_opener(markers: ThinkMarkers) -> Opener:
    def open_thinking(machine: Machine, lead: Lead, _marker: str) -> Mode:
        if machine.sink.has_content and not lead.after_call:
            machine.sink.put(CallbackEvent.CONTENT, lead.text)
        return Thinking(machine, markers)

    return open_thinking


def _stray_close(markers: ThinkMarkers) -> Opener:
    def drop_or_show(machine: Machine, lead: Lead, marker: str) -> Mode:
        if machine.sink.has_content:
            machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
            machine.resume()
        else:
            machine.resume(line_start=True, newlines=markers.after)
        return machine.mode

    return drop_or_show


def _fences(*, fenced_calls: bool) -> dict[str, Opener]:
    def open_fence(machine: Machine, lead: Lead, marker: str) -> Mode:
        return FenceOpening(machine, lead, marker, machine.catalog if fenced_calls else None)

    return dict.fromkeys(FENCE_MARKERS, open_fence)


def _candidates(readers: Mapping[str, ReaderFactory]) -> dict[str, Opener]:
    def open_candidate(machine: Machine, lead: Lead, marker: str) -> Mode:
        return Candidate(machine, readers[marker](machine.catalog, marker), lead, marker)

    return dict.fromkeys(readers, open_candidate)
