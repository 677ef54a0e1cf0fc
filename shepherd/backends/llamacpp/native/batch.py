"""What llama.cpp computes at once: tokens of sequences, or of an image."""

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.errors import BackendError

SECTIONS = 4
"""The numbers of a position with M-RoPE: time, row, column, and one without a use."""


class Span(NamedTuple):
    """Tokens of one sequence in a batch; `start` is the position of the first.

    The last `outputs` tokens give logits if `wants_logits` is true.
    """

    sequence: int
    start: int
    tokens: Sequence[int]
    wants_logits: bool
    outputs: int = 1


class Batch:
    """The arrays of a `llama_batch`, which are reused; each token belongs to one sequence."""

    def __init__(self, size: int) -> None:
        """llama.cpp gets pointers to the arrays, so that they must live as long as the batch."""
        int_pointer = ctypes.POINTER(ctypes.c_int32)
        self._tokens = (ctypes.c_int32 * size)()
        self._positions = (ctypes.c_int32 * size)()
        self._counts = (ctypes.c_int32 * size)(*([1] * size))  # each token is in one sequence
        self._sequences = (ctypes.c_int32 * size)()
        self._outputs = (ctypes.c_int8 * size)()
        stride = ctypes.sizeof(ctypes.c_int32)
        base = ctypes.addressof(self._sequences)
        # llama.cpp takes a list of sequences for each token: here the place of its only one.
        self._pointers = (int_pointer * size)(
            *(ctypes.cast(base + i * stride, int_pointer) for i in range(size))
        )
        self.size = size
        self._states = (ctypes.c_float * 0)()
        self.native = bindings().llama_batch(
            0,  # tokens so far, as `fill` says
            self._tokens,
            None,
            self._positions,
            self._counts,
            self._pointers,
            self._outputs,
        )

    def take_states(self, width: int) -> None:
        """Make room for a hidden state of `width` bytes for each token."""
        self._states = (ctypes.c_float * (self.size * width // ctypes.sizeof(ctypes.c_float)))()
        self.native.embd = ctypes.cast(self._states, ctypes.POINTER(ctypes.c_float))

    def put_states(self, states: bytes) -> None:
        """Write the hidden states of all tokens."""
        ctypes.memmove(self._states, states, len(states))

    def fill(self, spans: Sequence[Span]) -> int:
        """Write the spans into the arrays; returns the number of tokens."""
        at = 0
        for span in spans:
            end = at + len(span.tokens)
            if end > self.size:
                raise BackendError(f"a batch of {end} tokens exceeds n_batch ({self.size})")
            self._tokens[at:end] = span.tokens
            self._positions[at:end] = range(span.start, span.start + end - at)
            self._sequences[at:end] = [span.sequence] * (end - at)
            self._outputs[at:end] = [0] * (end - at)
            self._outputs[end - span.outputs : end] = [span.wants_logits] * span.outputs
            at = end
        self.native.n_tokens = at
        return at


def pad(spans: Sequence[Span], rows: int) -> tuple[list[Span], list[int]]:
    """Pad the tokens and the outputs of each span to a multiple of `rows`.

    Returns the longer spans, and the index in their batch of each token of the original ones.
    llama.cpp splits a batch at multiples of the shortest span, so no part of it has fewer rows.
    """
    padded: list[Span] = []
    places: list[int] = []
    at = 0
    for span in spans:
        count = len(span.tokens)
        missing = -count % rows  # up to the next multiple
        outputs = span.outputs + missing
        # The padding is computed and then removed from memory, so that any token will do.
        padded.append(
            span._replace(
                tokens=[*span.tokens, *[span.tokens[-1]] * missing],
                outputs=outputs + -outputs % rows,
            )
        )
        places.extend(range(at, at + count))
        at += count + missing
    return padded, places


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
