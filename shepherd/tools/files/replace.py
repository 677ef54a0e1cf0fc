"""Finding the text to replace: exactly, or else whatever the whitespace."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new text, how many places changed, and whether whitespace was ignored to find them."""

    text: str
    count: int
    tolerant: bool = False


def replace_text(text: str, old: str, new: str, newline: str, *, every: bool) -> Replacement:
    """`text` with `old` replaced by `new` in the one place where it is, or in `every` place.

    Line ends of `old` and `new` follow those of the text, `newline`. Unless `every`, a count
    other than 1 means that nothing was replaced.
    """
    for needle in (old, _with(old, newline)):
        if count := _count(text, needle):
            put = _with(new, _newline_of(needle) or newline)
            if every:
                return Replacement(text.replace(needle, put), text.count(needle))
            return Replacement(text.replace(needle, put) if count == 1 else text, count)
    return _tolerant(text, old, _with(new, newline), every=every)


def _with(text: str, newline: str) -> str:
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", newline) if newline != "\n" else plain


def _count(text: str, needle: str) -> int:
    """How often; matches that overlap are two, for it is not clear which one is meant."""
    count = text.count(needle)
    return 2 if count == 1 and text.find(needle) != text.rfind(needle) else count


def _newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n" if "\n" in text else ""


def _tolerant(text: str, old: str, new: str, *, every: bool) -> Replacement:
    lines = [line.split() for line in old.split("\n")]
    regexes = [r"[ \t]+".join(map(re.escape, words)) for words in lines if words]
    if not regexes:
        return Replacement(text, 0)
    pattern = re.compile(r"[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*".join(regexes))
    found = list(pattern.finditer(text))
    if not found or (len(found) > 1 and not every):
        return Replacement(text, len(found), tolerant=True)
    pieces, end = list[str](), 0
    for match in found:
        pieces += [text[end : match.start()], _indented(text, match.start(), old, new)]
        end = match.end()
    return Replacement("".join(pieces) + text[end:], len(found), tolerant=True)


def _indented(text: str, start: int, old: str, new: str) -> str:
    """`new` moved from the indentation of `old` to the one of the place where it goes."""
    line_start = text.rfind("\n", 0, start) + 1
    before = text[line_start:start]
    body = new.strip("\r\n")
    if before.strip():
        return body.strip()
    given = _indentation(old.lstrip("\r\n"))
    lines = body.split("\n")
    moved = [_move(line, given, before) for line in lines]
    return "\n".join(moved).removeprefix(before).rstrip()


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _move(line: str, given: str, wanted: str) -> str:
    if not line.strip():
        return line
    if line.startswith(given):
        return wanted + line[len(given) :]
    return wanted + line.lstrip(" \t")
