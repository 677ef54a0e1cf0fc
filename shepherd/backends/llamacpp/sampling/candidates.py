"""The candidates for a next token, and their log probabilities."""

import ctypes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.logits import leading_tokens, log_total, logits_row
from shepherd.logprobs import TokenLogprob, TokenProbability

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.sampling.logits import Row, Tokens

_IMPOSSIBLE = float("-inf")
_FIELDS = 3  # id, logit, probability: four bytes each


class Candidates:
    """Tokens with their logits as samplers read them, in a buffer that is reused."""

    def __init__(self, size: int) -> None:
        import numpy as np

        lib = bindings()
        self._lib = lib
        self.size = size
        memory = bytearray(_FIELDS * 4 * size)
        self._data = (lib.llama_token_data * size).from_buffer(memory)
        self._ids = np.frombuffer(memory, np.int32)[0::_FIELDS]
        self._logits = np.frombuffer(memory, np.float32)[1::_FIELDS]
        self._pointer = ctypes.pointer(self._data[0])  # `cast` would make a cycle of references
        self._array = lib.llama_token_data_array(self._data, size, -1, False)

    def fill(self, row: "Row") -> None:
        """Load the logits of all tokens."""
        import numpy as np

        self._ids[:] = np.arange(self.size, dtype=np.int32)
        self._logits[:] = row
        self._reset(self.size)

    def fill_some(self, row: "Row", tokens: "Tokens") -> None:
        """Load the logits of these tokens, at most `size` of them."""
        count = len(tokens)
        self._ids[:count] = tokens
        self._logits[:count] = row[tokens]
        self._reset(count)

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

        bits = np.unpackbits(np.frombuffer(allowed, np.uint8), bitorder="little")[: self.size]
        for token in banned:
            bits[token] = 0
        for token in ends:
            bits[token] = 1
        self._logits[bits == 0] = _IMPOSSIBLE

    def apply(self, sampler: Any) -> None:
        """Apply a sampler or a chain."""
        self._lib.llama_sampler_apply(sampler, ctypes.byref(self._array))

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
    """Log probabilities before any sampler, bias or grammar, with `alternatives` other tokens."""

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        import numpy as np

        self._shares = np.empty(vocab.size, np.float32)
        self._vocab = vocab
        self._alternatives = alternatives

    def measure(self, context: NativeContext, index: int, token: int) -> TokenLogprob:
        """The log probabilities of `token` and of the most likely tokens at a batch index."""
        row = logits_row(context, index, self._vocab.size)
        total = log_total(row, self._shares)
        piece = self._vocab.piece
        top = tuple(TokenProbability(piece(t), value - total, id=t) for t, value in self._best(row))
        return TokenLogprob(piece(token), float(row[token]) - total, top, id=token)

    def _best(self, row: "Row") -> list[tuple[int, float]]:
        """The most likely tokens with their logits, best first."""
        if not self._alternatives:
            return []
        tokens = leading_tokens(row, self._alternatives)
        logits = row[tokens]
        order = (-logits).argsort(kind="stable")[: self._alternatives]
        return list(zip(tokens[order].tolist(), logits[order].tolist(), strict=True))
