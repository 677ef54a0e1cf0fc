"""The chain of samplers that picks a request's next token."""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from shepherd.backends.llamacpp.bindings import bindings
from shepherd.backends.llamacpp.call_watch import CallWatch
from shepherd.backends.llamacpp.candidates import Candidates
from shepherd.backends.llamacpp.context import NativeContext
from shepherd.backends.llamacpp.grammar.constraint import Constraint
from shepherd.backends.llamacpp.guard import GrammarGuard
from shepherd.backends.llamacpp.vocab import Vocab
from shepherd.errors import InvalidRequestError
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
        self._constraint = constraint
        self._watch: CallWatch | None = None
        if constraint is not None and constraint.trigger:
            self._watch = CallWatch(
                constraint.trigger,
                constraint.opening,
                constraint.names,
                reasoning=constraint.reasoning,
            )
        elif constraint is not None:
            self._guard = GrammarGuard(constraint.grammar, vocab)

    def prime(self, tokens: Sequence[int]) -> None:
        """Let the penalties see what comes before the answer."""
        if self._penalises:
            for token in tokens[-self._last_n :]:
                self._lib.llama_sampler_accept(self._chain, token)

    def sample(self, context: NativeContext, index: int) -> int:
        """The next token after the batch index `index`, or NOTHING; it counts as accepted."""
        if self._watch is not None:
            return self._sample_watched(self._watch, context, index)
        if self._guard is not None:
            return self._sample_guarded(self._guard, context, index)
        return self._sample_freely(context, index)

    def _sample_freely(self, context: NativeContext, index: int) -> int:
        token: int = self._lib.llama_sampler_sample(self._chain, context.handle, index)
        return token

    def _sample_watched(self, watch: CallWatch, context: NativeContext, index: int) -> int:
        """Freely, but for the calls; one that can't go on by its grammar goes on without."""
        token = NOTHING
        if self._guard is not None:
            token = self._sample_guarded(self._guard, context, index)
        if token == NOTHING:
            self._drop_guard()
            token = self._sample_freely(context, index)
        piece = self._vocab.piece(token)
        if self._guard is None:
            rest = watch.feed(piece)
            if rest is not None and self._constraint is not None:
                self._begin_call(watch, self._constraint, rest)
            return token
        watch.follow(piece.decode("utf-8", "replace"))
        if self._guard.complete:
            self._drop_guard()
            watch.behind_call()
        return token

    def _begin_call(self, watch: CallWatch, constraint: Constraint, rest: str) -> None:
        """The marker has come, with `rest` behind it in the same token."""
        guard = GrammarGuard(constraint.grammar, self._vocab)
        if guard.follow(rest):
            self._guard = guard
            watch.follow(rest)
        else:
            guard.close()
            watch.behind_call()

    def _strays(self, token: int) -> bool:
        text = self._vocab.piece(token).decode("utf-8", "replace")
        return self._watch is not None and self._watch.strays(text)

    def _drop_guard(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _sample_guarded(self, guard: GrammarGuard, context: NativeContext, index: int) -> int:
        """A token that the grammar allows; a name that is not on offer ends its reign."""
        if self._candidates is None:
            self._candidates = Candidates(self._vocab.size)
        candidates = self._candidates
        candidates.fill(context, index)
        candidates.apply(self._chain)
        token = candidates.selected
        if token is None or not guard.allows(token):
            if token is not None and self._strays(token):
                self._drop_guard()
                self._lib.llama_sampler_accept(self._chain, token)
                return token
            candidates.fill(context, index)
            guard.mask(candidates)
            candidates.apply(self._chain)
            token = candidates.selected
            if token is None or not guard.allows(token):
                return NOTHING
        self._lib.llama_sampler_accept(self._chain, token)
        if not self._vocab.is_eog(token):
            self._follow(guard, token)
        return token

    def _follow(self, guard: GrammarGuard, token: int) -> None:
        """Go on by the grammar; one that is too slow ends what asked for it, but no free answer."""
        try:
            guard.accept(token)
        except InvalidRequestError:
            if self._watch is None:
                raise
            self._drop_guard()

    def close(self) -> None:
        """Free the chain; safe to call twice."""
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
        self._drop_guard()

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
