"""DeepSeek's and Kimi's calls: tokens for the begin, the middle and the end of each."""

import re
from typing import NamedTuple

from shepherd.backends.output.calls.catalog import FoundCall, ToolCatalog


class CallTokens(NamedTuple):
    """The tokens of one call."""

    begin: str
    separator: str
    end: str


DEEPSEEK = CallTokens("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
KIMI = CallTokens("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>")
CALL_TOKENS = (DEEPSEEK, KIMI)

_KIND = re.compile(r"\s*function\s*")
_NAME = re.compile(r"\s*([^\s{}`]+)\s*")
_FENCED = re.compile(r"\s*```\w*\s*(.*?)\s*```\s*", re.DOTALL)


def parse_section(body: str, tokens: CallTokens, catalog: ToolCatalog) -> tuple[FoundCall, ...]:
    """The calls of a section; empty if one of them can't be understood.

    The first token of the first call may be missing.
    """
    calls: list[FoundCall] = []
    for item in body.removeprefix(tokens.begin).split(tokens.begin):
        found = _call(item, tokens, catalog)
        if not found:
            return ()
        calls += found
    return tuple(calls)


def _call(item: str, tokens: CallTokens, catalog: ToolCatalog) -> tuple[FoundCall, ...]:
    text = item.partition(tokens.end)[0]
    head, separator, tail = text.partition(tokens.separator)
    if separator and _KIND.fullmatch(head):
        text = tail  # DeepSeek V3 writes the kind first
    name = _NAME.match(text.replace(tokens.separator, " ", 1))
    if name is None:
        return ()
    arguments = text.replace(tokens.separator, " ", 1)[name.end() :]
    fenced = _FENCED.fullmatch(arguments)
    return catalog.from_arguments_text(name[1], fenced[1] if fenced else arguments)
