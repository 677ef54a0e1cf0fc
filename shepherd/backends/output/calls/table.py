"""The markers that may begin a call, and the reader for each."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from shepherd.backends.output.calls.bodies import CALL_TOKENS
from shepherd.backends.output.calls.catalog import ToolCatalog
from shepherd.backends.output.calls.json_calls import BareJsonReader, MistralReader
from shepherd.backends.output.calls.reader import CallReader, ElementReader, FunctionReader
from shepherd.backends.output.calls.tagged import TaggedReader
from shepherd.backends.output.style import CallFormat

ReaderFactory = Callable[[ToolCatalog, str], CallReader]
"""`factory(catalog, marker)` makes the reader of the text after the marker."""

_TAGS = {
    "<tool_call>": "</tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<tools>": "</tools>",
    "<function_calls>": "</function_calls>",
    "<function_call>": "</function_call>",
    "<minimax:tool_call>": "</minimax:tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<｜DSML｜function_calls>": "</｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>": "</｜DSML｜tool_calls>",
    "<TOOLCALL>": "</TOOLCALL>",
    "<|tool_call>": "<tool_call|>",
    "<start_function_call>": "<end_function_call>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|START_ACTION|>": "<|END_ACTION|>",
    "<|tools_prefix|>": "<|tools_suffix|>",
    "<|open|>tools<|sep|>": "<|close|>tools<|sep|>",
    "<|action_start|><|plugin|>": "<|action_end|>",
}
_PREFIXES = {
    "<|python_tag|>": "<|eom_id|>",
    "<|tool_call|>": "<|/tool_call|>",
    "<|function_call|>": "<|message_sep|>",
    "<|message_sep|>\n\nfunction call<|role_sep|>\n": "<|message_sep|>",
}
_SECTIONS = {
    "<｜tool▁calls▁begin｜>": "<｜tool▁calls▁end｜>",
    "<｜tool_calls_begin｜>": "<｜tool_calls_end｜>",
    "<|tool_calls_section_begin|>": "<|tool_calls_section_end|>",
} | {t.begin: t.end for t in CALL_TOKENS}
_FUNCTIONS = (
    "<function={}>", '<function name="{}">', '<invoke name="{}">', '<｜DSML｜invoke name="{}">',
)  # fmt: skip

ORPHANS = frozenset(
    {*_TAGS.values(), *_PREFIXES.values(), *_SECTIONS.values(), "</function>", "</invoke>", ";"}
    | {"<|tool_response>"}
)
"""Texts without a meaning after a call: extra closing tags of some models, the semicolon between
Llama's bare calls, and the end token of Gemma 4's turns."""


@lru_cache(maxsize=32)
def call_markers(
    formats: frozenset[CallFormat], names: tuple[str, ...]
) -> Mapping[str, ReaderFactory]:
    """The markers that begin a call anywhere in a line."""
    table: dict[str, ReaderFactory] = {}
    for format_, tags in (
        (CallFormat.TAGGED, _TAGS),
        (CallFormat.PREFIXED, _PREFIXES),
        (CallFormat.SECTION, _SECTIONS),
    ):
        if format_ in formats:
            table |= {opening: _tagged(closing) for opening, closing in tags.items()}
    if CallFormat.PREFIXED in formats:
        table["[TOOL_CALLS]"] = MistralReader
    if CallFormat.XML in formats:
        table |= {f.format(n): FunctionReader for f in _FUNCTIONS for n in names}
    return table


@lru_cache(maxsize=32)
def line_markers(
    formats: frozenset[CallFormat], names: tuple[str, ...]
) -> Mapping[str, ReaderFactory]:
    """The markers that begin a call only at the start of a line."""
    table: dict[str, ReaderFactory] = {}
    if CallFormat.JSON in formats:
        table |= {"{": BareJsonReader, "[": BareJsonReader}
    if CallFormat.PREFIXED in formats:
        table["functools["] = BareJsonReader
    if CallFormat.ELEMENT in formats:
        table |= {f"<{name}": ElementReader for name in names}
    return table


def _tagged(closing: str) -> ReaderFactory:
    return lambda catalog, _marker: TaggedReader(catalog, closing)
