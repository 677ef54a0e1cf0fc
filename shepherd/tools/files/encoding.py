"""Which encoding a file is in; reading and editing must agree on it."""

import codecs
from dataclasses import dataclass

HEAD_BYTES = 8192
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_FEW = 16
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Encoding:
    """A codec and how it treats bytes that it can't read; decoding and encoding is lossless."""

    codec: str
    errors: str = "strict"

    def decode(self, data: bytes) -> str:
        """The text; bytes that are no text become surrogates and come back by `encode`."""
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """The inverse; raises UnicodeEncodeError for a character that the codec lacks."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape")
LATIN1 = Encoding("latin-1")


def detect(head: bytes) -> Encoding | None:
    """The encoding of a file that starts with `head`; None if it is binary.

    A byte-order mark stays in the text as U+FEFF.
    """
    head = head[:HEAD_BYTES]
    for mark, codec in _UTF16.items():
        if head.startswith(mark) and not head.startswith(codecs.BOM_UTF32_LE):
            return Encoding(codec, "surrogatepass")
    if b"\0" in head:
        return None
    controls = sum(1 for byte in head if byte < 32 and byte not in _TEXT_CONTROLS)
    if controls * 10 > len(head):
        return None
    return _eight_bit(head)


def _eight_bit(head: bytes) -> Encoding | None:
    text = head.decode("utf-8", "surrogateescape")
    # at the end of a full head stands perhaps half a character
    inner = text[:-3] if len(head) == HEAD_BYTES else text
    broken = sum(1 for c in inner if "\udc80" <= c <= "\udcff")
    proper = sum(1 for c in inner if c > "\x7f" and not "\udc80" <= c <= "\udcff")
    if broken <= proper:
        return UTF8
    mostly = broken * 10 > len(head) * 3 and broken > _FEW
    return None if mostly else LATIN1
