"""Text that is suitable for a model: valid, without terminal control codes, limited in length.

Also text as code in Markdown.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # OSC, DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def pluralize(number: int, noun: str, format: str = "") -> str:
    """`1 message`, `2 messages`; `format` is the format of the number."""
    return f"{number:{format}} {noun if number == 1 else f'{noun}s'}"


def valid_text(text: str) -> str:
    """`text` without lone surrogates, which UTF-8 can't encode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def valid_json(value: Any) -> Any:
    """The JSON value with `valid_text` applied to all its strings."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, list):
        return [valid_json(item) for item in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {valid_text(key): valid_json(item) for key, item in items}
    return value


def plain_text(text: str) -> str:
    """`text` as in a log: without escape sequences, and with the last state of progress lines."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text:  # what comes after it overwrites the line
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROLS.sub("", text)


def one_line(name: str) -> str:
    """A file's name on one line: control characters are written as escapes."""
    return _NOT_ONE_LINE.sub(lambda m: m[0].encode("unicode_escape").decode(), name)


def code_span(line: str) -> str:
    """A line as code in Markdown: no run of backticks in it can end the code."""
    ticks = "`" * (_longest_run_of_backticks(line) + 1)
    # without the spaces, a backtick at the edge of the line would join the outer ones
    space = " " if "`" in line else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def fenced(text: str, language: str = "") -> str:
    """The text in a fence that no part of it can close."""
    fence = "`" * max(3, _longest_run_of_backticks(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run_of_backticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def cap_text(text: str, limit: int, spill_dir: Path) -> str:
    """`text` in about `limit` bytes: head, tail, and the path of a file with the full text."""
    data = text.encode()
    if len(data) <= limit:
        return text
    head, tail = data[: limit * 2 // 3], data[len(data) - limit // 3 :]
    descriptor, path = new_spill_file(spill_dir)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return join_cut(head, tail, len(data) - len(head) - len(tail), path)


_CUT = re.compile(r"(?m)^\[\d+ bytes cut here; all of it is in (/.*/output-[0-9a-f]{12}\.txt)\]$")


def join_cut(head: bytes, tail: bytes, missing: int, spilled: Path) -> str:
    """Head and tail of a long text, with a line about the missing part between them."""
    note = f"[{missing} bytes cut here; all of it is in {spilled}]"  # `uncut` reads it
    # either cut may be inside a character, whose bytes are left out
    before = head.decode("utf-8", "ignore").rstrip("\n")
    after = tail.decode("utf-8", "replace").lstrip("\ufffd").lstrip("\n")
    return f"{before}\n{note}\n{after}"


def uncut(text: str, limit: int) -> str:
    """The text that `join_cut` has cut, from its file if that is there; at most `limit` bytes."""
    cut = _CUT.search(text)
    if cut is None:
        return text
    try:
        with Path(cut[1]).open("rb") as file:
            return plain_text(file.read(limit).decode("utf-8", "replace"))
    except OSError:  # it was removed, or is on another machine
        return text


def new_spill_file(spill_dir: Path) -> tuple[int, Path]:
    """A new file that only the user can read, opened for reading and writing."""
    spill_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = spill_dir / f"output-{os.urandom(6).hex()}.txt"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600), path


MAX_COMBINING = 3
"""The maximum number of marks on one letter; no living script stacks more of them."""

_VISIBLE_FORMATS = frozenset(
    [*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD]
)
"""Number signs: characters of the category Cf that are visible."""
_IGNORABLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0x16FE4, 0x16FE4),
    (0x1D159, 0x1D159),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""Default ignorable and blank characters that can't be recognised by category."""
_BLANK_SYMBOLS = frozenset([0x2800, 0xFFFC, 0x13441, 0x13442])
_HIDDEN_CATEGORIES = frozenset(["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"])
_COMBINING = frozenset(["Mn", "Me", "Mc"])
_JOINING_JAMO = (range(0x1160, 0x1200), range(0xD7B0, 0xD800))
"""Hangul vowels and finals: letters that are drawn into the one before them."""
_NOT_ASCII_PRINTABLE = re.compile(r"[^\t\n\x20-\x7e]")
_RIGHT_TO_LEFT = frozenset(["R", "AL", "AN"])


@cache
def is_hidden(character: str) -> bool:
    """Whether a character is invisible, controls the display, or is whitespace other than a space.

    Decided by category and by Unicode's list of default ignorable characters. Tab and newline
    also count as hidden; callers that split text into lines handle them first.
    """
    code = ord(character)
    category = unicodedata.category(character)
    if category in _HIDDEN_CATEGORIES:
        return code not in _VISIBLE_FORMATS
    if category == "Zs":
        return character != " "
    return code in _BLANK_SYMBOLS or any(first <= code <= last for first, last in _IGNORABLE)


@cache
def is_combining(character: str) -> bool:
    """Whether a character is drawn over the one before it."""
    code = ord(character)
    return unicodedata.category(character) in _COMBINING or any(code in r for r in _JOINING_JAMO)


def notation(character: str) -> str:
    """`<U+200B>`."""
    return f"<U+{ord(character):04X}>"


def pieces(text: str) -> Iterable[tuple[str, bool]]:
    """The text in pieces, each with a flag: whether it is a notation for a hidden character.

    Hidden characters get a notation. So do marks without a letter, and marks beyond MAX_COMBINING
    on one letter.
    """
    if text.isascii() and text.isprintable():
        if text:
            yield text, False
        return
    plain, marks, has_letter = "", 0, False  # the letter on which the next mark would be drawn
    for character in text:
        combines = is_combining(character)
        marks = marks + 1 if combines else 0
        if is_hidden(character) or (combines and (not has_letter or marks > MAX_COMBINING)):
            if plain:
                yield plain, False
            plain = ""
            yield notation(character), True
            has_letter = False
        else:
            plain += character
            if not combines:
                has_letter = character != " "
    if plain:
        yield plain, False


def reveal(text: str) -> str:
    """`text` on one line, with a notation for each hidden character."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(piece for piece, _ in pieces(text))


def count_hidden(text: str) -> int:
    """The number of hidden characters in `text`, without newlines and tabs."""
    if text.isascii() and _NOT_ASCII_PRINTABLE.search(text) is None:
        return 0
    return sum(n for c, n in Counter(text).items() if c not in "\t\n" and is_hidden(c))


def count_right_to_left(text: str) -> int:
    """The number of characters that a terminal may show in a different order."""
    if text.isascii():
        return 0
    return sum(n for c, n in Counter(text).items() if _is_right_to_left(c))


@cache
def _is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
