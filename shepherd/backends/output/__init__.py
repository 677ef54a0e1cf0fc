"""Parses a model's text into events, reasoning and tool calls.

Pure: text in, events out. It does not depend on models, sessions or callbacks.
"""

from shepherd.backends.output.filter import OutputFilter, ParsedOutput, PlainOutput, new_call_id
from shepherd.backends.output.markers import StopMatcher
from shepherd.backends.output.style import (
    ALL_FORMATS,
    GENERIC,
    STYLES,
    AnswerMarkers,
    CallFormat,
    OutputStyle,
    ThinkMarkers,
    detect_style,
    with_separator,
)
from shepherd.backends.output.text import ContentTokens

__all__ = [
    "ALL_FORMATS",
    "GENERIC",
    "STYLES",
    "AnswerMarkers",
    "CallFormat",
    "ContentTokens",
    "OutputFilter",
    "OutputStyle",
    "ParsedOutput",
    "PlainOutput",
    "StopMatcher",
    "ThinkMarkers",
    "detect_style",
    "new_call_id",
    "with_separator",
]
