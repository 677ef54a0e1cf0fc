"""How the model writes calls: derived from its template, and proven before it is relied on."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from shepherd.backends.output.catalog import ParsedCall
from shepherd.backends.output.derive import PROBE_TOOLS, Derived, Render, derive
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.notation import ID, Notation
from shepherd.backends.output.style import OutputStyle

_ID = "call00000"
_CHUNKS = (1, 3, 7)
_TAIL = 256
_SHOWN = 80


class Format(Struct, frozen=True):
    """The notation of a template's calls; None with the `problem` if it can't be relied on."""

    notation: Notation | None
    problem: str = ""


def proven_format(render: Render, ends: Sequence[str], style: OutputStyle) -> Format:
    """The format of the calls that a template writes, if what it writes is read again."""
    derived = derive(render, ends)
    if derived is None:
        return Format(None, "its template writes none that can be described")
    if not is_understood(derived, replace(style, notations=(derived.notation,))):
        return Format(None, f"{derived.written[:_SHOWN]!r} is not read as its template means it")
    return Format(derived.notation)


def is_understood(derived: Derived, style: OutputStyle) -> bool:
    """Whether the probe's calls are read from what the template made of them, in any chunks."""
    text = derived.written.replace(ID, _ID)
    sizes = (*_CHUNKS, len(text) // 2 + 1, len(text))
    return all(_is_read(derived, text, size, style) for size in sizes)


def _is_read(derived: Derived, text: str, size: int, style: OutputStyle) -> bool:
    """Whether the calls are read from a text that comes in pieces of this size."""
    output = OutputFilter(style, PROBE_TOOLS, prompt_tail=derived.prompt[-_TAIL:])
    for start in range(0, len(text), size):
        output.feed(text[start : start + size])
    output.finish()
    calls = [ParsedCall(call.name, call.arguments) for call in output.result.tool_calls]
    return derived.is_read_as(calls) and not output.result.content
