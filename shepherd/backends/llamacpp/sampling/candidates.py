"""The logits of a batch: candidates for the next token, and log probabilities."""

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.sampling import TokenLogprob, TokenProbability

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Row = NDArray[np.float32]
    Tokens = NDArray[np.intp]

_BLOCKS = 512
"""The parts of a row whose maxima are compared: enough for usual counts, and few to sort."""

_IMPOSSIBLE = float("-inf")
_FIELDS = 3  # id, logit, probability: four bytes each

MAX_TOKENS = 4096
"""Longer lists save no time."""

MAX_MEASURED = 64
"""Tokens of a prompt that are measured in one step: each needs the logits of all tokens."""


def logits_row(context: NativeContext, index: int, size: int) -> "Row":
    """The logits at a batch index; not a copy, and valid until the next batch."""
    import numpy as np

    return np.frombuffer(context.logits_row(index, size), np.float32)


def log_total(row: "Row", shares: "Row") -> float:
    """The logarithm of the sum of all exponentials; `shares` is overwritten."""
    import numpy as np

    best = row.max()
    np.subtract(row, best, out=shares)
    np.exp(shares, out=shares)
    return float(best) + math.log(float(shares.sum()))


def leading_tokens(row: "Row", count: int) -> "Tokens":
    """The tokens with the `count` highest logits in ascending order, and some more.

    The highest logits of the row's blocks bound the result from below.
    """
    import numpy as np

    rows = len(row) // max(_BLOCKS, 2 * count)
    if rows < 2:  # the blocks would be single tokens
        return np.arange(len(row))
    blocks = len(row) // rows
    maxima = row[: rows * blocks].reshape(rows, blocks).max(axis=0)
    # Each maximum is the logit of a token, so that `count` tokens reach the count-th highest one.
    bound = np.partition(maxima, blocks - count)[blocks - count]
    return (row >= bound).nonzero()[0]


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
    def selected(self) -> int | None:
        """The selected token; None if it is forbidden."""
        if not 0 <= self._array.selected < self._array.size:  # no sampler has selected one
            return None
        picked = self._array.data[self._array.selected]
        return int(picked.id) if picked.logit > _IMPOSSIBLE else None

    def remaining(self, vocabulary: int) -> "Row":
        """The logits of all tokens after the samplers; those that were dropped have none."""
        import numpy as np

        numbers = ctypes.c_float * (_FIELDS * self._array.size)
        address = ctypes.addressof(self._array.data.contents)
        fields = np.frombuffer(numbers.from_address(address), np.float32).reshape(-1, _FIELDS)
        row = np.full(vocabulary, _IMPOSSIBLE, np.float32)
        row[fields[:, 0].view(np.int32)] = fields[:, 1]
        return row

    def _reset(self, size: int) -> None:
        """Undo what samplers change in the array: where it is, its size and its order."""
        self._array.data = self._pointer
        self._array.size = size
        self._array.selected = -1
        self._array.sorted = False


class LogprobMeter:
    """Log probabilities with `alternatives` other tokens."""

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        import numpy as np

        self._shares = np.empty(vocab.size, np.float32)
        self._vocab = vocab
        self._alternatives = alternatives

    def measure(self, row: "Row", token: int) -> TokenLogprob:
        """The log probabilities of `token` and of the most likely tokens, from the logits of all.

        Tokens without a logit are not possible, and never among the most likely ones.
        """
        total = log_total(row, self._shares)
        piece = self._vocab.piece
        # A log probability is the logit less the logarithm of the sum of all exponentials.
        top = tuple(TokenProbability(piece(t), logit - total, id=t) for t, logit in self._best(row))
        return TokenLogprob(piece(token), float(row[token]) - total, top, id=token)

    def _best(self, row: "Row") -> list[tuple[int, float]]:
        """The most likely tokens with their logits, best first."""
        if not self._alternatives:
            return []
        tokens = leading_tokens(row, self._alternatives)
        logits = row[tokens]
        order = (-logits).argsort(kind="stable")[: self._alternatives]
        best = zip(tokens[order].tolist(), logits[order].tolist(), strict=True)
        return [(token, logit) for token, logit in best if logit > _IMPOSSIBLE]


class Shortlist:
    """The candidates for a chain that begins with the choice of the likeliest tokens.

    Such a chain gives the same result without all other tokens.
    """

    def __init__(self, vocabulary: int, leaders: int, biases: Mapping[int, float]) -> None:
        """The chain adds `biases` to logits, then it chooses `leaders` tokens."""
        self._vocabulary = vocabulary
        self._raised = [token for token, bias in biases.items() if bias > 0]
        self._leaders = leaders + len(biases)  # each bias may remove one of the leaders
        self._candidates = Candidates(MAX_TOKENS) if self._leaders <= MAX_TOKENS else None

    def candidates(self, context: NativeContext, index: int) -> Candidates | None:
        """The candidates at a batch index; None if they are too many."""
        import numpy as np

        if self._candidates is None:
            return None
        row = logits_row(context, index, self._vocabulary)
        tokens = leading_tokens(row, self._leaders)
        if self._raised:  # a bias may bring these among the likeliest
            tokens = np.array(sorted({*tokens.tolist(), *self._raised}), np.intp)
        if not 0 < len(tokens) <= MAX_TOKENS:
            return None
        self._candidates.fill_some(row, tokens)
        return self._candidates


class PromptMeter:
    """Measures a prompt while it is decoded from its beginning. Owner thread only.

    `logprobs` may be read once the prompt is in memory.
    """

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        self.logprobs: list[TokenLogprob] = []
        self._vocab = vocab
        self._alternatives = alternatives

    def measure(self, context: NativeContext, index: int, following: Sequence[int]) -> None:
        """Measure the tokens that follow those at the batch indices from `index` on."""
        meter = LogprobMeter(self._vocab, self._alternatives)
        for place, token in enumerate(following, index):
            row = logits_row(context, place, self._vocab.size)
            self.logprobs.append(meter.measure(row, token))

    def begin(self, token: int) -> None:
        """Take the first token, which nothing precedes."""
        if not self.logprobs:
            piece = self._vocab.piece(token)
            self.logprobs.append(TokenLogprob(piece, math.nan, id=token))
