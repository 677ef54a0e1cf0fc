"""Markers are found wherever they are, and many of them cost little to look for."""

import cProfile
from collections.abc import Collection
from types import CodeType

from hypothesis import given
from hypothesis import strategies as st

from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.output.markers import Hit, MarkerSet
from shepherd.backends.output.style import OutputStyle
from shepherd.messages import ToolSpec

texts = st.text("ab<", max_size=8)


def expected(markers: Collection[str], text: str, pos: int, *, final: bool) -> Hit | None:
    rest = text[pos:]
    if rest and not final and any(m.startswith(rest) and m != rest for m in markers):
        return Hit(pos, None)
    found = max((m for m in markers if rest.startswith(m)), key=len, default=None)
    return None if found is None else Hit(pos, found)


@given(st.sets(texts.filter(bool), max_size=8), texts, st.integers(0, 8), st.booleans())
def test_the_longest_marker_is_found(
    markers: set[str],
    text: str,
    pos: int,
    final: bool,  # noqa: FBT001
) -> None:
    pos = min(pos, len(text))
    found = MarkerSet(markers).at(text, pos, final=final)
    assert found == expected(markers, text, pos, final=final)


def test_the_names_of_many_tools_are_no_pattern() -> None:
    """Compiling a pattern of a thousand names takes a second in which nobody is answered."""
    tools = [ToolSpec(f"tool_of_many_{i}", "", {"type": "object"}) for i in range(1_000)]
    with cProfile.Profile() as profile:
        output = OutputFilter(OutputStyle(), tools)
        events = output.feed('<tool_call>{"name": "tool_of_many_7", "arguments": {}}</tool_call>')
        events += output.finish()
    assert [call.name for call in output.result.tool_calls] == ["tool_of_many_7"], events
    compiling = (
        entry.callcount
        for entry in profile.getstats()
        if isinstance(entry.code, CodeType) and entry.code.co_filename.endswith("/re/_parser.py")
    )
    assert sum(compiling) < 10_000
