"""The candidates for a next token, and their log probabilities."""

import ctypes
import math
from array import array
from collections.abc import Iterable
from typing import Any

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.logprobs import TokenLogprob, TokenProbability

_IMPOSSIBLE = float("-inf")
_FIELDS = 3  # id, logit, probability: four bytes each


class Candidates:
    """All tokens of a vocabulary with their logits, in a buffer that is reused."""

    def __init__(self, size: int) -> None:
        lib = bindings()
        self._lib = lib
        self._size = size
        self._memory = memory = bytearray(_FIELDS * 4 * size)
        self._data = (lib.llama_token_data * size).from_buffer(memory)
        self._ids = memoryview(memory).cast("i")[0::_FIELDS]
        self._logits = memoryview(memory).cast("f")[1::_FIELDS]
        self._order = array("i", range(size))
        self._pointer: Any = ctypes.cast(self._data, lib.llama_token_data_p)
        self._array = lib.llama_token_data_array(self._data, size, -1, False)

    def fill(self, context: NativeContext, index: int) -> None:
        """Load the logits of a batch index."""
        self._ids[:] = memoryview(self._order)
        self._logits[:] = context.logits_bytes(index, self._size).cast("f")
        self._reset(self._size)

    def only(self, token: int) -> None:
        """Load only this token."""
        self._data[0].id = token
        self._data[0].logit = 0.0
        self._reset(1)

    def keep(self, allowed: bytes, ends: Iterable[int], *, banned: Iterable[int]) -> None:
        """Forbid all tokens except `ends` and those whose bit is set in `allowed`.

        The bits of `banned` tokens are ignored. Call it after `fill` and before any sampler.
        """
        import numpy as np

        bits = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little")[: self._size]
        for token in banned:
            bits[token] = 0
        for token in ends:
            bits[token] = 1
        logits = np.frombuffer(self._memory, np.float32)[1::_FIELDS]
        logits[bits == 0] = _IMPOSSIBLE

    def apply(self, sampler: Any) -> None:
        """Apply a sampler or a chain."""
        self._lib.llama_sampler_apply(sampler, ctypes.byref(self._array))

    def logit(self, token: int) -> float:
        """A token's logit; call it after `fill` and before any sampler."""
        return self._logits[token]

    def first(self, count: int) -> list[tuple[int, float, float]]:
        """The first remaining tokens, each with its logit and probability."""
        picked = (self._array.data[i] for i in range(min(count, self._array.size)))
        return [(int(t.id), float(t.logit), float(t.p)) for t in picked]

    @property
    def allowed(self) -> bool:
        """Whether the token of `only` is still possible."""
        return self._data[0].logit > _IMPOSSIBLE

    @property
    def selected(self) -> int | None:
        """The selected token; None if it is forbidden."""
        if not 0 <= self._array.selected < self._array.size:
            return None
        picked = self._array.data[self._array.selected]
        return int(picked.id) if picked.logit > _IMPOSSIBLE else None

    def _reset(self, size: int) -> None:
        self._array.data = self._pointer
        self._array.size = size
        self._array.selected = -1
        self._array.sorted = False


class LogprobMeter:
    """Log probabilities before any sampler, bias or grammar, with `alternatives` other tokens.

    `close` frees the native parts.
    """

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        self._lib = bindings()
        self._vocab = vocab
        self._alternatives = alternatives
        self._candidates = Candidates(vocab.size)
        self._softmax = self._lib.llama_sampler_init_dist(0)  # its selection is not used
        self._best = self._lib.llama_sampler_init_top_k(max(1, alternatives))

    def measure(self, context: NativeContext, index: int, token: int) -> TokenLogprob:
        """The log probabilities of `token` and of the most likely tokens at a batch index."""
        candidates = self._candidates
        candidates.fill(context, index)
        logit = candidates.logit(token)
        candidates.apply(self._softmax)
        candidates.apply(self._best)
        best = candidates.first(max(1, self._alternatives))
        _, best_logit, share = best[0]
        total = best_logit - math.log(share)
        piece = self._vocab.piece
        top = tuple(
            TokenProbability(piece(t), value - total, id=t)
            for t, value, _ in best[: self._alternatives]
        )
        return TokenLogprob(piece(token), logit - total, top, id=token)

    def clone(self) -> "LogprobMeter":
        """A separate meter, which must be closed too."""
        return LogprobMeter(self._vocab, self._alternatives)

    def close(self) -> None:
        """Free the native parts; safe to call twice."""
        for sampler in (self._softmax, self._best):
            if sampler:
                self._lib.llama_sampler_free(sampler)
        self._softmax = self._best = None
