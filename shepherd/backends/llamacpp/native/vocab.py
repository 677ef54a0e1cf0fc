"""A model's vocabulary: text to tokens, tokens to bytes, and which tokens are special."""

import ctypes
from functools import cached_property
from typing import Any

from shepherd.backends.inprocess.matcher import TokenBytes
from shepherd.backends.inprocess.raw import InfillTokens
from shepherd.backends.inprocess.special import ATTR_CONTROL, ATTR_UNKNOWN, ATTR_USER_DEFINED
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.errors import BackendError

_NO_TOKEN = -1
_VOCAB_SPM = 1

_SLICE = 8 * 1024
_MARGIN = 2
"""Counting a text in slices of so many characters changes the count by less than this factor."""


class Vocab:
    """The vocabulary of a model; thread-safe while the model is open."""

    def __init__(self, handle: Any) -> None:
        self._lib = bindings()
        self.handle = handle
        self.size: int = self._lib.llama_vocab_n_tokens(handle)
        self.bos: int = self._lib.llama_vocab_bos(handle)
        self.eos: int = self._lib.llama_vocab_eos(handle)
        self.adds_bos: bool = self._lib.llama_vocab_get_add_bos(handle) and self.bos != _NO_TOKEN
        self.sep: int = self._lib.llama_vocab_sep(handle)
        self.adds_eos: bool = self._lib.llama_vocab_get_add_eos(handle)
        self.adds_sep: bool = self._lib.llama_vocab_get_add_sep(handle)
        self.is_sentencepiece: bool = self._lib.llama_vocab_type(handle) == _VOCAB_SPM
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}
        mask = ATTR_CONTROL | ATTR_UNKNOWN | ATTR_USER_DEFINED
        attributes = (int(self._lib.llama_vocab_get_attr(handle, t)) for t in range(self.size))
        self.specials = {t: bits for t, bits in enumerate(attributes) if bits & mask}
        """The control, unknown and user-defined tokens, with their attributes."""
        candidates = {*self.specials, self.eos} - {_NO_TOKEN}
        self.ends = sorted(token for token in candidates if self.is_eog(token))
        """The tokens that end a generation."""

    def tokenize(
        self, text: str, *, parse_special: bool = False, add_special: bool = False
    ) -> list[int]:
        """The tokens of `text`; raises BackendError if llama.cpp refuses it."""
        data = text.encode("utf-8", "replace")
        room = len(data) + 8  # a token has a byte or more, but for a few at both ends
        while True:
            buffer = (ctypes.c_int32 * room)()
            count: int = self._lib.llama_tokenize(
                self.handle, data, len(data), buffer, room, add_special, parse_special
            )
            if count >= 0:
                return buffer[:count]
            if -count <= room:  # it does not ask for more room, so that another try is no use
                raise BackendError(f"llama.cpp can't tokenize a text of {len(data)} bytes")
            room = -count

    def count_if_far_over(self, text: str, size: int) -> int:
        """The tokens at the beginning of a text that has far more than `size` tokens; else 0.

        The text is counted in slices, which have other tokens at their borders.
        """
        tokens = 0
        for start in range(0, len(text), _SLICE):
            tokens += len(self.tokenize(text[start : start + _SLICE]))
            if tokens > _MARGIN * size:
                return tokens
        return 0

    def piece(self, token: int) -> bytes:
        """The token's bytes, which may be a part of a code point; control tokens as text."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def raw(self, token: int) -> bytes:
        """The token as the model's file stores it."""
        raw: bytes = self._lib.llama_vocab_get_text(self.handle, token)
        return raw

    def text(self, token: int) -> str:
        """The token as text; "" if there is no such token."""
        return "" if token == _NO_TOKEN else self.piece(token).decode("utf-8", "replace")

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation; asked for each sampled token, and so kept."""
        ends = self._ends.get(token)
        if ends is None:
            ends = bool(self._lib.llama_vocab_is_eog(self.handle, token))
            self._ends[token] = ends
        return ends

    @cached_property
    def controls(self) -> frozenset[int]:
        """The control tokens, which only a template may write."""
        return frozenset(token for token, attr in self.specials.items() if attr & ATTR_CONTROL)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes of all tokens, for grammars; slow on the first use."""
        return TokenBytes([self.piece(token) for token in range(self.size)], self.ends)

    @cached_property
    def byte_tokens(self) -> dict[int, int]:
        """The tokens of one byte, by that byte; slow on the first use."""
        pieces = self.token_bytes.pieces
        return {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1}

    @cached_property
    def sorted_pieces(self) -> list[bytes]:
        """The bytes of all tokens in their order; slow on the first use."""
        return sorted(self.token_bytes.pieces)

    @cached_property
    def max_token_bytes(self) -> int:
        """The length of the longest token, in bytes."""
        return max(len(self.piece(token)) for token in range(self.size))

    @property
    def infill(self) -> InfillTokens | None:
        """The tokens around a gap that the model fills; None if one of the three is missing."""
        lib, vocab = self._lib, self.handle
        tokens = InfillTokens(
            int(lib.llama_vocab_fim_pre(vocab)),
            int(lib.llama_vocab_fim_suf(vocab)),
            int(lib.llama_vocab_fim_mid(vocab)),
            int(lib.llama_vocab_fim_rep(vocab)),
            int(lib.llama_vocab_fim_sep(vocab)),
        )
        around_gap = tokens[:3]  # prefix, suffix and middle
        return None if _NO_TOKEN in around_gap else tokens

    @cached_property
    def suppressed(self) -> list[int]:
        """The tokens that must never be generated, as the model's file says."""
        count = ctypes.c_int32(0)
        tokens = self._lib.llama_vocab_get_suppress_tokens(self.handle, ctypes.byref(count))
        return [int(tokens[i]) for i in range(count.value)]

    def _read_piece(self, token: int) -> bytes:
        """The bytes of a token from llama.cpp, which says how much room it needs."""
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            # Nothing is stripped, and control tokens have their text.
            count: int = self._lib.llama_token_to_piece(self.handle, token, buffer, room, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            room = -count
