"""How the model writes calls: derived from its template, and proven before it is relied on."""

from collections.abc import Sequence

from shepherd.backends.output.derive import PROBE_CALLS, PROBE_TOOLS, Derived, Render, derive
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.notation import ID, Notation
from shepherd.backends.output.style import OutputStyle

_ID = "call00000"
_CHUNKS = (1, 3, 7)


def proven_notation(render: Render, ends: Sequence[str], style: OutputStyle) -> Notation | None:
    """The notation of the calls that a template writes; None if what it writes can't be read."""
    derived = derive(render, ends)
    return derived.notation if derived and is_understood(derived, style) else None


def is_understood(derived: Derived, style: OutputStyle) -> bool:
    """Whether the probe's calls are read from what the template made of them, in any chunks."""
    text = derived.written.replace(ID, _ID)
    calls = PROBE_CALLS if derived.notation.many else PROBE_CALLS[:1]
    written = [(call.name, call.arguments) for call in calls]
    sizes = (*_CHUNKS, len(text) // 2 + 1, len(text))
    return all(_read(text, size, style) == (written, "") for size in sizes)


def _read(text: str, size: int, style: OutputStyle) -> tuple[object, str]:
    """The calls and the content in a text that comes in pieces of this size."""
    output = OutputFilter(style, PROBE_TOOLS)
    for start in range(0, len(text), size):
        output.feed(text[start : start + size])
    output.finish()
    result = output.result
    return [(call.name, call.arguments) for call in result.tool_calls], result.content
