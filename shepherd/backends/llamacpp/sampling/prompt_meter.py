"""The log probabilities of a prompt's own tokens."""

import math
from collections.abc import Sequence

from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import LogprobMeter
from shepherd.logprobs import TokenLogprob

MAX_MEASURED = 64
"""Tokens of a prompt that are measured in one step: each needs the logits of all tokens."""


class PromptMeter:
    """Measures a prompt while it is decoded from its beginning. Owner thread only.

    `logprobs` may be read once the prompt is in memory.
    """

    def __init__(self, vocab: Vocab, alternatives: int) -> None:
        self.logprobs: list[TokenLogprob] = []
        self._vocab = vocab
        self._alternatives = alternatives

    def restart(self) -> None:
        """Forget what was measured, as the prompt is decoded again."""
        self.logprobs.clear()

    def measure(self, context: NativeContext, index: int, following: Sequence[int]) -> None:
        """Measure the tokens that follow those at the batch indices from `index` on."""
        meter = LogprobMeter(self._vocab, self._alternatives)
        for place, token in enumerate(following, index):
            self.logprobs.append(meter.measure(context, place, token))

    def begin(self, token: int) -> None:
        """Take the first token, which nothing precedes."""
        if not self.logprobs:
            piece = self._vocab.piece(token)
            self.logprobs.append(TokenLogprob(piece, math.nan, id=token))
