"""Log probabilities of tokens by the model's own distribution."""

import math

from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import Candidates
from shepherd.logprobs import TokenLogprob, TokenProbability


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
