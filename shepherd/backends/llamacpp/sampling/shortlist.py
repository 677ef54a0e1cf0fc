"""The few tokens of a large vocabulary that can be chosen."""

import math
from collections.abc import Mapping

from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.sampling.candidates import Candidates
from shepherd.backends.llamacpp.sampling.logits import leading_tokens, logits_row

MAX_TOKENS = 4096
"""Longer lists save no time."""


class Shortlist:
    """The candidates for a chain that begins with the choice of the likeliest tokens.

    Such a chain gives the same result without all other tokens.
    """

    def __init__(self, vocabulary: int, leaders: int, biases: Mapping[int, float]) -> None:
        """The chain adds `biases` to logits, then it chooses `leaders` tokens."""
        self._vocabulary = vocabulary
        self._biases = biases
        self._raised = [token for token, bias in biases.items() if bias > 0]
        self._is_single = leaders == 1
        self._leaders = leaders + len(biases)
        self._candidates = Candidates(MAX_TOKENS) if self._leaders <= MAX_TOKENS else None

    def candidates(self, context: NativeContext, index: int) -> Candidates | None:
        """The candidates at a batch index; None if they are too many."""
        import numpy as np

        if self._candidates is None:
            return None
        row = logits_row(context, index, self._vocabulary)
        tokens = leading_tokens(row, self._leaders)
        if self._raised:
            tokens = np.array(sorted({*tokens.tolist(), *self._raised}), np.intp)
        if not 0 < len(tokens) <= MAX_TOKENS:
            return None
        self._candidates.fill_some(row, tokens)
        return self._candidates

    def best(self, context: NativeContext, index: int) -> int | None:
        """The token with the highest logit, if that decides; else None."""
        if not self._is_single:
            return None
        row = logits_row(context, index, self._vocabulary)
        token = int(row.argmax())
        logit = float(row[token])
        biased = (float(row[t]) + bias for t, bias in self._biases.items())
        if token in self._biases or not max(biased, default=-math.inf) < logit:
            return None
        return token
