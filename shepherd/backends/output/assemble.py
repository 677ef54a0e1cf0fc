"""Putting the parser together for a style, the tools on offer, and the prompt's end."""

from collections.abc import Sequence

from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.table import ORPHANS, ReaderFactory, call_markers, line_markers
from shepherd.backends.output.candidate import Candidate
from shepherd.backends.output.fences import FENCE_MARKERS, FenceOpening
from shepherd.backends.output.modes import Machine, Mode
from shepherd.backends.output.prose import Lead, Opener, Prose
from shepherd.backends.output.style import CallFormat, OutputStyle, ThinkMarkers
from shepherd.backends.output.thinking import Thinking
from shepherd.events import CallbackEvent
from shepherd.messages import ToolSpec


def build_machine(
    style: OutputStyle, tools: Sequence[ToolSpec], prompt_tail: str, *, thinking: bool
) -> Machine:
    """A parser at the start of its output."""
    machine = Machine(style.separator)
    catalog = ToolCatalog(tools)
    at_line: dict[str, Opener] = {}
    for markers in style.think:
        at_line[markers.open] = _think_opener(machine, markers)
        at_line[markers.close] = _stray_close(machine, markers)
    fenced = catalog if CallFormat.FENCED in style.formats else None
    for fence in FENCE_MARKERS:
        at_line[fence] = lambda lead, marker: FenceOpening(machine, lead, marker, fenced)
    anywhere: dict[str, Opener] = {}
    if catalog:
        at_line |= _candidates(machine, catalog, line_markers(style.formats, catalog.names))
        anywhere |= _candidates(machine, catalog, call_markers(style.formats, catalog.names))
    prose = Prose(machine, anywhere, at_line, ORPHANS if catalog else ())
    machine.prose = prose
    machine.mode = _first_thought(machine, style, prompt_tail, thinking=thinking) or prose
    return machine


def _first_thought(
    machine: Machine, style: OutputStyle, prompt_tail: str, *, thinking: bool
) -> Mode | None:
    tail = prompt_tail.rstrip()
    for markers in style.think:
        if tail.endswith(markers.open):
            return Thinking(machine, markers, newline=tail == prompt_tail)
    return Thinking(machine, style.think[0]) if thinking and style.think else None


def _think_opener(machine: Machine, markers: ThinkMarkers) -> Opener:
    def open_thinking(lead: Lead, _marker: str) -> Mode:
        if machine.sink.has_content and not lead.behind_call:
            machine.sink.put(CallbackEvent.CONTENT, lead.text)
        return Thinking(machine, markers)

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


def _candidates(
    machine: Machine, catalog: ToolCatalog, readers: dict[str, ReaderFactory]
) -> dict[str, Opener]:
    def opener(factory: ReaderFactory) -> Opener:
        return lambda lead, marker: Candidate(machine, factory(catalog, marker), lead, marker)

    return {marker: opener(factory) for marker, factory in readers.items()}
