"""The vocabulary of a Hugging Face tokenizer, as prompts need it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from shepherd.backends.inprocess.prompt.special import (
    ATTR_CONTROL,
    ATTR_LSTRIP,
    ATTR_RSTRIP,
    ATTR_USER_DEFINED,
)
from shepherd.errors import ModelLoadError
from shepherd.messages import JsonObject

NO_TOKEN = -1
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"


class Encoder(Protocol):
    """The part of a tokenizer that turns text into tokens."""

    def encode(self, text: str, **options: Any) -> list[int]: ...


class HubVocabulary:
    """Made from `tokenizer.json`; `ends` are the tokens that end an answer."""

    def __init__(self, encoder: Encoder, serialized: str, ends: Sequence[int]) -> None:
        """Raises ModelLoadError if `serialized` is not a tokenizer with a vocabulary."""
        data = cast(JsonObject, json.loads(serialized))
        added = cast(list[JsonObject], data.get("added_tokens") or [])
        self._encoder = encoder
        self._pieces = _pieces(data)
        self._pieces |= {int(token["id"]): str(token["content"]).encode() for token in added}
        self.size = max(self._pieces, default=-1) + 1
        self.specials: Mapping[int, int] = {int(t["id"]): _attributes(t) for t in added}
        self.ends: Sequence[int] = tuple(dict.fromkeys(ends))
        self.bos = NO_TOKEN
        self.eos = self.ends[0] if self.ends else NO_TOKEN
        self.adds_bos = False
        self.is_sentencepiece = False

    def with_bos(self, bos: int | None) -> "HubVocabulary":
        """The same vocabulary with the token that templates call `bos_token`."""
        self.bos = NO_TOKEN if bos is None else bos
        return self

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        """The tokens of `text`; special ones in it are text unless `parse_special`."""
        return self._encoder.encode(
            text, add_special_tokens=False, split_special_tokens=not parse_special
        )

    def piece(self, token: int) -> bytes:
        """The token's bytes, b"" for a number that only pads the vocabulary."""
        return self._pieces.get(token, b"")

    def text(self, token: int) -> str:
        """The token as text, "" if there is no such token."""
        return self.piece(token).decode("utf-8", "replace")


def _attributes(token: JsonObject) -> int:
    flags = ATTR_CONTROL if token.get("special") else ATTR_USER_DEFINED
    flags |= ATTR_LSTRIP if token.get("lstrip") else 0
    return flags | (ATTR_RSTRIP if token.get("rstrip") else 0)


def _pieces(data: JsonObject) -> dict[int, bytes]:
    """Each token's bytes, in the tokenizer's own encoding."""
    tokens = _tokens(cast(JsonObject, data.get("model") or {}))
    if "ByteLevel" in _kinds(data.get("decoder")):
        alphabet = byte_alphabet()
        return {number: _from_alphabet(text, alphabet) for text, number in tokens.items()}
    return {number: _from_metaspace(text) for text, number in tokens.items()}


def _tokens(model: JsonObject) -> dict[str, int]:
    vocab: object = model.get("vocab")
    if isinstance(vocab, dict):
        return {str(t): int(n) for t, n in cast(dict[Any, Any], vocab).items()}
    if isinstance(vocab, list):
        rows = cast(list[list[Any]], vocab)
        return {str(row[0]): number for number, row in enumerate(rows)}
    raise ModelLoadError("The model's tokenizer has no vocabulary that can be read.")


def _kinds(decoder: object) -> list[str]:
    """The types of a decoder and of those in it."""
    if not isinstance(decoder, dict):
        return []
    known = cast(JsonObject, decoder)
    inner = cast(list[object], known.get("decoders") or [])
    return [str(known.get("type")), *(kind for part in inner for kind in _kinds(part))]


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in byte-level tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


def _from_alphabet(text: str, alphabet: Mapping[str, int]) -> bytes:
    if all(character in alphabet for character in text):
        return bytes(alphabet[character] for character in text)
    return text.encode()


def _from_metaspace(text: str) -> bytes:
    byte = _BYTE.fullmatch(text)
    return bytes([int(byte.group(1), 16)]) if byte else text.replace(_METASPACE, " ").encode()
