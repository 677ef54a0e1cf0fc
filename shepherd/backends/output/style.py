"""How a model family writes reasoning and tool calls, as plain data."""

from dataclasses import dataclass
from enum import StrEnum


class CallFormat(StrEnum):
    """The ways of writing a tool call that can be switched on and off."""

    TAGGED = "tagged"  # <tool_call>…</tool_call> and its relatives, whatever the body
    XML = "xml"  # <function=name>…, <invoke name="…">… without a wrapper
    ELEMENT = "element"  # <name key="value"/> at the start of a line
    JSON = "json"  # an object with name and arguments at the start of a line
    FENCED = "fenced"  # such an object alone in a code fence
    PREFIXED = "prefixed"  # <|python_tag|>, [TOOL_CALLS] and others that JSON follows
    SECTION = "section"  # DeepSeek's and Kimi's token sections
    HARMONY = "harmony"  # channels


ALL_FORMATS = frozenset(CallFormat)


@dataclass(frozen=True, slots=True)
class ThinkMarkers:
    """The markers around reasoning.

    One newline after `open` and one before `close` belong to the markers, and so do up to
    `after` newlines behind `close`.
    """

    open: str
    close: str
    after: int = 2


@dataclass(frozen=True, slots=True)
class AnswerMarkers:
    """The markers around the answer: `open` counts before all content, `close` behind it."""

    open: str
    close: str


THINK = ThinkMarkers("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class OutputStyle:
    """What to look for in a model's output; `separator` is what its template puts between the
    content and the first call."""

    family: str = "generic"
    think: tuple[ThinkMarkers, ...] = (THINK,)
    formats: frozenset[CallFormat] = ALL_FORMATS
    separator: str = "\n"
    answer: tuple[AnswerMarkers, ...] = ()


GENERIC = OutputStyle()
