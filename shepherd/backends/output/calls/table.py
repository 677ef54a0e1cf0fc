"""Which markers begin a candidate, and who reads it."""

from collections.abc import Callable

from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.reader import CallReader
from shepherd.backends.output.calls.tagged import TaggedReader
from shepherd.backends.output.style import CallFormat, OutputStyle

ReaderFactory = Callable[[], CallReader]

_TAGS = {
    "<tool_call>": "</tool_call>",
}


def call_markers(style: OutputStyle, catalog: ToolCatalog) -> dict[str, ReaderFactory]:
    """The markers that begin a call anywhere in a line."""
    table: dict[str, ReaderFactory] = {}
    if CallFormat.TAGGED in style.formats:
        for opening, closing in _TAGS.items():
            table[opening] = lambda closing=closing: TaggedReader(catalog, (closing,))
    return table


def line_markers(style: OutputStyle, catalog: ToolCatalog) -> dict[str, ReaderFactory]:
    """The markers that begin a call only at the start of a line."""
    return {}


ORPHANS = frozenset(_TAGS.values())
"""Closing tags that some models write once too often behind a call."""
