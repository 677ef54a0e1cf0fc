"""Embeddings of an image as a batch for llama.cpp."""

import ctypes
from array import array
from typing import Any, NamedTuple

from shepherd.backends.llamacpp.native.bindings import bindings

SECTIONS = 4
"""The numbers of a position with M-RoPE: time, row, column, and one without a use."""


class ImageSpan(NamedTuple):
    """Some tokens of an image in one sequence; only the last one gives logits, if requested.

    `embeddings` has `width` numbers for each token. `positions` are complete, section by section:
    one number for each token, or `SECTIONS` with M-RoPE. Attention is not causal in some models:
    all tokens of an image then attend to each other.
    """

    sequence: int
    embeddings: "array[float]"
    width: int
    positions: "array[int]"
    causal: bool
    wants_logits: bool

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.embeddings) // self.width


class ImageBatch:
    """The arrays of a `llama_batch` with embeddings instead of tokens."""

    def __init__(self, span: ImageSpan, outputs: int = 1) -> None:
        """The last `outputs` tokens give logits, if the span wants them."""
        count = span.tokens
        self._embeddings = (ctypes.c_float * len(span.embeddings)).from_buffer(span.embeddings)
        self._positions = (ctypes.c_int32 * len(span.positions)).from_buffer(span.positions)
        self._counts = (ctypes.c_int32 * count)(*([1] * count))
        self._sequence = ctypes.c_int32(span.sequence)
        pointer = ctypes.pointer(self._sequence)
        self._pointers = (ctypes.POINTER(ctypes.c_int32) * count)(*([pointer] * count))
        self._outputs = (ctypes.c_int8 * count)()
        self._outputs[count - outputs :] = [span.wants_logits] * outputs
        self.native: Any = bindings().llama_batch(
            count,
            None,
            self._embeddings,
            self._positions,
            self._counts,
            self._pointers,
            self._outputs,
        )
