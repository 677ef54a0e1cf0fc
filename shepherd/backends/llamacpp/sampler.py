"""The chain of samplers that picks a request's next token."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from shepherd.backends.llamacpp.bindings import bindings
from shepherd.backends.llamacpp.candidates import Candidates
from shepherd.backends.llamacpp.context import NativeContext
from shepherd.backends.llamacpp.grammar.constraint import Constraint
from shepherd.backends.llamacpp.guard import GrammarGuard
from shepherd.backends.llamacpp.vocab import Vocab
from shepherd.sampling import DEFAULT_SAMPLING, Sampling

RANDOM_SEED = 0xFFFFFFFF

NOTHING = -1
"""What is sampled when no token is possible: the answer ends."""


class SamplerChain:
    """Order: suppressed tokens, top_k, top_p, min_p, penalties, temperature, pick.

    Temperature 0 picks the best token. A constraint's grammar comes before all of them: first it
    is asked about the token that was picked, and only if it forbids that one about all tokens.
    `close` frees the chain; nothing else does.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocab: Vocab,
        context_size: int,
        constraint: Constraint | None = None,
    ) -> None:
        self._lib = bindings()
        self._sampling = sampling.over(DEFAULT_SAMPLING)
        params = self._lib.llama_sampler_chain_default_params()
        self._chain: Any = self._lib.llama_sampler_chain_init(params)
        last_n = self._sampling.penalty_last_n or 0
        self._last_n = context_size if last_n < 0 else last_n
        self._suppress(vocab)
        if self._sampling.temperature or self._penalises:
            self._add_filters(vocab)
        self._add_pick()
        self._vocab = vocab
        self._candidates: Candidates | None = None
        self._guard: GrammarGuard | None = None
        if constraint is not None:
            self._guard = GrammarGuard(constraint.grammar, vocab)

    def prime(self, tokens: Sequence[int]) -> None:
        """Let the penalties see what comes before the answer."""
        if self._penalises:
            for token in tokens[-self._last_n :]:
                self._lib.llama_sampler_accept(self._chain, token)

    def sample(self, context: NativeContext, index: int) -> int:
        """The next token after the batch index `index`, or NOTHING; it counts as accepted."""
        if self._guard is not None:
            return self._sample_guarded(self._guard, context, index)
        token: int = self._lib.llama_sampler_sample(self._chain, context.handle, index)
        return token

    def _sample_guarded(self, guard: GrammarGuard, context: NativeContext, index: int) -> int:
        if self._candidates is None:
            self._candidates = Candidates(self._vocab.size)
        candidates = self._candidates
        candidates.fill(context, index)
        candidates.apply(self._chain)
        token = candidates.selected
        if token is None or not guard.allows(token):
            candidates.fill(context, index)
            guard.mask(candidates)
            candidates.apply(self._chain)
            token = candidates.selected
            if token is None or not guard.allows(token):
                return NOTHING
        self._lib.llama_sampler_accept(self._chain, token)
        if not self._vocab.is_eog(token):
            guard.accept(token)
        return token

    def close(self) -> None:
        """Free the chain; safe to call twice."""
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
        if self._guard is not None:
            self._guard.close()

    @property
    def _penalises(self) -> bool:
        s = self._sampling
        return self._last_n > 0 and (
            s.penalty_repeat != 1.0 or bool(s.penalty_freq) or bool(s.penalty_present)
        )

    def _add(self, sampler: Any) -> None:
        self._lib.llama_sampler_chain_add(self._chain, sampler)

    def _add_filters(self, vocab: Vocab) -> None:
        lib, s = self._lib, self._sampling
        keep = s.min_keep or 0
        if s.top_k:
            self._add(lib.llama_sampler_init_top_k(s.top_k))
        if s.top_p is not None and s.top_p < 1.0:
            self._add(lib.llama_sampler_init_top_p(s.top_p, keep))
        if s.min_p:
            self._add(lib.llama_sampler_init_min_p(s.min_p, keep))
        if self._penalises:
            self._add(
                lib.llama_sampler_init_penalties(
                    vocab.size,
                    self._last_n,
                    s.penalty_repeat,
                    s.penalty_freq,
                    s.penalty_present,
                )
            )

    def _add_pick(self) -> None:
        lib, s = self._lib, self._sampling
        if not s.temperature:
            self._add(lib.llama_sampler_init_greedy())
            return
        if s.temperature != 1.0:
            self._add(lib.llama_sampler_init_temp(s.temperature))
        self._add(lib.llama_sampler_init_dist(RANDOM_SEED if s.seed is None else s.seed))

    def _suppress(self, vocab: Vocab) -> None:
        lib, tokens = self._lib, vocab.suppressed
        if tokens:
            biases = (lib.llama_logit_bias * len(tokens))(
                *(lib.llama_logit_bias(ctypes.c_int32(t), -math.inf) for t in tokens)
            )
            self._add(lib.llama_sampler_init_logit_bias(vocab.size, len(tokens), biases))
