"""The kinds of Markdown lines, also of lines that have only begun."""

import re
from dataclasses import dataclass
from enum import StrEnum


class LineKind(StrEnum):
    """What a line begins or continues."""

    BLANK = "blank"
    TEXT = "text"
    HEADING = "heading"
    UNDERLINE = "underline"
    RULE = "rule"
    ITEM = "item"
    QUOTE = "quote"
    FENCE = "fence"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Line:
    """A line: `indent` in cells, the `marker` of its kind, and the `content` after it.

    `offset` is the distance from the begin of the line to its content.
    """

    kind: LineKind
    indent: int
    marker: str
    content: str
    offset: int = 0


TAB = 4
_FENCE = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})(.*)")
_HEADING = re.compile(r"(#{1,6})(?:[ \t]+|$)(.*)")
_RULE = re.compile(r"([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r"=+[ \t]*$")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|$)")
_DELIMITER_ROW = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_DIGITS = re.compile(r"\d+(?:[^\d.)]|[.)](?:\S|[ \t]+\S))|\d{10}")
_HASHES = re.compile(r"#{1,6}(?:[^#\s]|[ \t]+\S)|#{7}")


def read_line(line: str) -> Line:
    """The line's kind, from its beginning."""
    expanded = line.expandtabs(TAB)
    text = expanded.lstrip(" ")
    indent = len(expanded) - len(text)
    if not text.strip():
        return Line(LineKind.BLANK, indent, "", "")
    for kind, pattern in (
        (LineKind.FENCE, _FENCE),
        (LineKind.HEADING, _HEADING),
    ):
        if match := pattern.match(text):
            return Line(kind, indent, match[1], match[2])
    if _RULE.match(text):
        return Line(LineKind.RULE, indent, "", text)
    if _UNDERLINE.match(text):
        return Line(LineKind.UNDERLINE, indent, "", text)
    if item := _ITEM.match(text):
        content = item[3] or ""
        return Line(LineKind.ITEM, indent, item[1], content, len(text) - len(content) + indent)
    if text.startswith(">"):
        return Line(LineKind.QUOTE, indent, ">", text[1:].removeprefix(" "))
    return Line(LineKind.TABLE if text.startswith("|") else LineKind.TEXT, indent, "", text)


def is_delimiter_row(line: str) -> bool:
    """Whether the line separates the header of a table from its rows."""
    return "|" in line and _DELIMITER_ROW.match(line) is not None


def closes_fence(fence: str, line: str) -> bool:
    """Whether the line ends a block of code that `fence` began."""
    mark = line.strip()
    return len(mark) >= len(fence) and set(mark) == {fence[0]}


def is_decided(beginning: str) -> bool:
    """Whether the rest of a line can't change its kind."""
    text = beginning.lstrip(" \t")
    if not text:
        return False
    match text[0]:
        case "|" | "=":
            return False
        case "#":
            return _HASHES.match(text) is not None
        case ">":
            return len(text) > 1
        case "*" | "-" | "_" | "+":
            after = text.lstrip(f"{text[0]} \t")[:1]
            return bool(after) and not (text[0] == "-" and after in "|:")
        case "`" | "~":
            run = len(text) - len(text.lstrip(text[0]))
            return run < 3 and run < len(text)
        case first if first in "0123456789":
            return _DIGITS.match(text) is not None
        case _:
            return True
