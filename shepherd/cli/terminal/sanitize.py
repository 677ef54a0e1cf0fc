"""Text from models, tools and files, made safe to print."""

import re

from shepherd.tools.text import reveal

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, direction overrides
    "\ud800-\udfff\ufff9-\ufffb\U000e0000-\U000e007f]"  # lone surrogates, hidden tags
)

_SPACE = re.compile(r"[ \t\n]+")


def sanitize(text: str) -> str:
    r"""`text` with everything that could steer a terminal spelled out, ESC as `\x1b`.

    Newlines and tabs stay; CR LF becomes a newline.
    """
    return _UNSAFE.sub(_spelled, text.replace("\r\n", "\n"))


def sanitize_chunk(text: str) -> str:
    """As `sanitize`, for a piece of a stream; every carriage return is dropped."""
    return _UNSAFE.sub(_spelled, text.replace("\r", ""))


def one_line(text: str, width: int) -> str:
    """`text` sanitized, on one line, cut to `width` characters."""
    return _cut(" ".join(sanitize(text).split()), width)


def indented_line(line: str, width: int) -> str:
    """A sanitized line with its blanks, cut to `width` characters."""
    return _cut(line.expandtabs().rstrip(), width)


def revealed_line(text: str, width: int) -> str:
    """`text` on one line, cut to `width` characters, with invisible characters escaped."""
    return _cut(reveal(_SPACE.sub(" ", text).strip(" ")), width)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def _spelled(match: re.Match[str]) -> str:
    r"""The escape of a character: `\r`, `\x1b` or `\u202e`."""
    character = match.group()
    if character == "\r":
        return "\\r"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
