"""Putting the parser together for a style, the tools on offer, and the prompt's end."""

from collections.abc import Mapping, Sequence

from shepherd.backends.output.answers import answer_closing, answer_opening
from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.table import (
    ORPHANS,
    ReaderFactory,
    call_markers,
    line_markers,
)
from shepherd.backends.output.candidate import Candidate
from shepherd.backends.output.fences import FENCE_MARKERS, FenceOpening
from shepherd.backends.output.harmony import Harmony
from shepherd.backends.output.modes import Machine, Mode
from shepherd.backends.output.prose import Lead, Opener, Prose
from shepherd.backends.output.style import CallFormat, OutputStyle, ThinkMarkers
from shepherd.backends.output.thinking import Reasoning, Thinking
from shepherd.events import CallbackEvent
from shepherd.messages import ToolSpec


def build_machine(
    style: OutputStyle, tools: Sequence[ToolSpec], prompt_tail: str, *, thinking: bool
) -> Machine:
    """A parser at the start of its output."""
    machine = Machine(style.separator)
    catalog = ToolCatalog(tools)
    formats = style.formats if catalog else frozenset[CallFormat]()
    calls = call_markers(formats, catalog.names)
    orphans = ORPHANS if catalog else frozenset[str]()
    reasoning = Reasoning(machine, catalog, calls, orphans)
    anywhere = _candidates(machine, catalog, calls)
    if style.answer:
        closing = answer_closing(machine, style.answer, calls)
        anywhere |= {a.close: closing for a in style.answer}
    harmony = Harmony(machine, catalog) if CallFormat.HARMONY in style.formats else None
    if harmony:
        anywhere |= harmony.openers()
    machine.prose = prose = Prose(
        machine,
        anywhere,
        _thoughts(reasoning, style)
        | {a.open: answer_opening(machine) for a in style.answer if a.open}
        | _fences(machine, catalog, style)
        | _candidates(machine, catalog, line_markers(formats, catalog.names)),
        orphans,
    )
    machine.anywhere = prose.markers.anywhere
    machine.mode = (
        _first_thought(reasoning, style, prompt_tail, thinking=thinking)
        or (harmony and harmony.begin(prompt_tail))
        or machine.prose
    )
    return machine


def _first_thought(
    reasoning: Reasoning, style: OutputStyle, prompt_tail: str, *, thinking: bool
) -> Mode | None:
    tail = prompt_tail.rstrip()
    for markers in style.think:
        if tail.endswith(markers.open):
            return Thinking(reasoning, markers, newline=tail == prompt_tail)
    return Thinking(reasoning, style.think[0]) if thinking and style.think else None


def _thoughts(reasoning: Reasoning, style: OutputStyle) -> dict[str, Opener]:
    openers: dict[str, Opener] = {}
    for markers in style.think:
        openers[markers.open] = _think_opener(reasoning, markers)
        openers[markers.close] = _stray_close(reasoning.machine, markers)
    return openers


def _think_opener(reasoning: Reasoning, markers: ThinkMarkers) -> Opener:
    def open_thinking(lead: Lead, _marker: str) -> Mode:
        sink = reasoning.machine.sink
        if sink.has_content and not lead.behind_call:
            sink.put(CallbackEvent.CONTENT, lead.text)
        return Thinking(reasoning, markers)

    return open_thinking


def _stray_close(machine: Machine, markers: ThinkMarkers) -> Opener:
    def drop_or_show(lead: Lead, marker: str) -> Mode:
        if machine.sink.has_content:
            machine.sink.put(CallbackEvent.CONTENT, lead.text + marker)
            machine.resume()
        else:
            machine.resume(line_start=True, newlines=markers.after)
        return machine.mode

    return drop_or_show


def _fences(machine: Machine, catalog: ToolCatalog, style: OutputStyle) -> dict[str, Opener]:
    offered = catalog if CallFormat.FENCED in style.formats else None
    return dict.fromkeys(
        FENCE_MARKERS, lambda lead, marker: FenceOpening(machine, lead, marker, offered)
    )


def _candidates(
    machine: Machine, catalog: ToolCatalog, readers: Mapping[str, ReaderFactory]
) -> dict[str, Opener]:
    def open_candidate(lead: Lead, marker: str) -> Mode:
        return Candidate(machine, readers[marker](catalog, marker), lead, marker)

    return dict.fromkeys(readers, open_candidate)
