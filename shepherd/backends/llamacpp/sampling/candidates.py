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
    """All tokens of a vocabulary with their logits; filled again for each use, never copied."""

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
        """Take the logits of a batch index."""
        self._ids[:] = memoryview(self._order)
        self._logits[:] = context.logits_bytes(index, self._size).cast("f")
        self._reset(self._size)

    def only(self, token: int) -> None:
        """Take this token alone."""
        self._data[0].id = token
        self._data[0].logit = 0.0
        self._reset(1)

    def keep(self, allowed: bytes, ends: Iterable[int], *, banned: Iterable[int]) -> None:
        """Make all tokens impossible but those whose bit is set, and `ends`.

        Of the `banned` a bit says nothing. Asked after `fill`, before samplers change the order.
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
        """Let a sampler or a chain work on them."""
        self._lib.llama_sampler_apply(sampler, ctypes.byref(self._array))

    def logit(self, token: int) -> float:
        """A token's logit; asked after `fill`, before samplers change the order."""
        return self._logits[token]

    def first(self, count: int) -> list[tuple[int, float, float]]:
        """The first tokens that are left, each with its logit and its probability."""
        left = range(min(count, self._array.size))
        picked = (self._array.data[i] for i in left)
        return [(int(t.id), float(t.logit), float(t.p)) for t in picked]

    @property
    def allowed(self) -> bool:
        """Whether the first one is still possible; asked after `only`."""
        return self._data[0].logit > _IMPOSSIBLE

    @property
    def selected(self) -> int | None:
        """The token that was picked, None if it is not possible."""
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
    """Measures before any sampler, bias or grammar; `alternatives` tokens beside the chosen one.

    `close` frees it.
    """

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        self._lib = bindings()
        self._vocab = vocab
        self._alternatives = alternatives
        self._candidates = Candidates(vocab.size)
        self._softmax = self._lib.llama_sampler_init_dist(0)  # what it picks is not asked for
        self._best = self._lib.llama_sampler_init_top_k(max(1, alternatives))

    def measure(self, context: NativeContext, index: int, token: int) -> TokenLogprob:
        """The log probability of `token` behind a batch index, and of the likeliest there."""
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
            TokenProbability(piece(t), value - total) for t, value, _ in best[: self._alternatives]
        )
        return TokenLogprob(piece(token), logit - total, top)

    def clone(self) -> "LogprobMeter":
        """Another one, to be closed on its own."""
        return LogprobMeter(self._vocab, self._alternatives)

    def close(self) -> None:
        """Free the native parts; safe to call twice."""
        for sampler in (self._softmax, self._best):
            if sampler:
                self._lib.llama_sampler_free(sampler)
        self._softmax = self._best = None
