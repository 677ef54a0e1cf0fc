"""The chain of samplers that chooses the next token of a request."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shepherd.backends.inprocess.constraint import CompiledConstraint
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import NativeContext
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import (
    Candidates,
    LogprobMeter,
    Shortlist,
    logits_row,
)
from shepherd.backends.llamacpp.sampling.choice import Choice, find_options
from shepherd.backends.llamacpp.sampling.guard import (
    CallDetector,
    GrammarGuard,
    forced_tokens,
    without_extensible,
)
from shepherd.backends.llamacpp.sampling.native_chain import NativeChain
from shepherd.errors import InvalidRequestError
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, TokenLogprob

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.sampling.candidates import Row

NO_TOKEN = -1
"""The result if no token is possible: the answer ends."""


MIN_VOCABULARY = 16_384
"""The size from which most tokens are left out before the samplers: below, they are quicker."""


class SamplerChain:
    """The samplers of `NativeChain`, the grammar of a constraint, and log probabilities.

    The grammar checks the token that the samplers chose. Only if it forbids that token are all
    tokens masked before sampling again. `logprob` belongs to the last sampled token, None if not
    requested. `close` must be called to free the chain.
    """

    def __init__(
        self,
        sampling: Sampling,
        vocab: Vocab,
        context_size: int,
        constraint: CompiledConstraint | None = None,
    ) -> None:
        self.choice: Choice | None = None
        """The few texts of which the next one must be, behind forced text."""
        self._lib = bindings()
        self._vocab = vocab
        self._candidates: Candidates | None = None
        self._shortlist: Shortlist | None = None
        self._guard: GrammarGuard | None = None
        """The grammar that the answer is in: the whole answer's, or that of a free call."""
        self._constraint = constraint
        self._detector: CallDetector | None = None
        """Finds where a free call begins; None if the grammar is that of the whole answer."""
        if constraint is not None and constraint.constraint.trigger:
            self._detector = CallDetector(constraint.constraint)
        elif constraint is not None:
            self._guard = GrammarGuard(constraint.matcher, vocab)
        sampling = sampling.over(DEFAULT_SAMPLING)
        self._has_chosen = False
        """Whether the last text came from a choice, behind which the next one may begin."""
        self._temperature = sampling.temperature or 0.0
        native = NativeChain(sampling, vocab, context_size)
        self._looks_back = native.looks_back
        self._chain: Any = native.build()
        if vocab.size >= MIN_VOCABULARY and native.leaders:
            self._shortlist = Shortlist(vocab.size, native.leaders, native.biases)
        self.logprob: TokenLogprob | None = None
        self._meter: LogprobMeter | None = None
        if sampling.logprobs is not None:
            self._meter = LogprobMeter(vocab, sampling.logprobs)
        self._measures_after = bool(sampling.logprobs_after)
        self._selected_from: Candidates | None = None
        """The candidates of the last token, after the samplers."""

    def prime(self, tokens: Sequence[int]) -> None:
        """Let the penalties count the tokens before the answer, without images."""
        if self._looks_back:
            for token in tokens[-self._looks_back :]:
                if token >= 0:
                    self._lib.llama_sampler_accept(self._chain, token)

    def sample(self, context: NativeContext, index: int) -> int:
        """Sample and accept the next token after the batch index `index`; may be NO_TOKEN."""
        # llama.cpp does all in one call
        if self._guard is None and self._shortlist is None and not self._measures_after:
            place = context.batch_index(index)
            token: int = self._lib.llama_sampler_sample(self._chain, context.handle, place)
            self._follow(token)
        else:
            token = self.pick(context, index)
            if token != NO_TOKEN:
                self.accept(token)
        self.logprob = None
        if self._meter is not None and token != NO_TOKEN:
            self.logprob = self._meter.measure(self._measured_row(context, index, token), token)
        return token

    def pick(self, context: NativeContext, index: int) -> int:
        """Sample the next token after the batch index `index` without accepting it.

        It still consumes random numbers. May return NO_TOKEN.
        """
        token = NO_TOKEN
        if self._guard is not None:
            try:
                token = self._pick_allowed(self._guard, context, index)
            except InvalidRequestError:  # the grammar is too slow
                if self._detector is None:
                    raise
        # Where it allows nothing or is too slow, a free call's grammar is dropped, and that of the
        # answer ends it.
        if token == NO_TOKEN and (self._guard is None or self._detector is not None):
            self._guard = None
            token = self._pick_any(context, index)
        return token

    def begin_choice(self, context: NativeContext, index: int) -> bool:
        """Begin to weigh the texts of a choice with the logits at an index, if there is a choice.

        Nothing is sampled then: `choose` follows.
        """
        if self.choice is not None:
            self.choice.begin(logits_row(context, index, self._vocab.size))
        return self.choice is not None

    def choose(self, choice: Choice) -> list[int]:
        """Choose one of the weighed texts, and accept its tokens; [] if all are banned."""
        import numpy as np

        if self._candidates is None:
            self._candidates = Candidates(self._vocab.size)
        row, tokens = choice.weights(self._vocab.size)
        self._candidates.fill_some(row, np.array(tokens))
        self._candidates.apply(self._chain)
        selected = self._candidates.selected
        option = [] if selected is None else choice.option_with(selected)
        for token in option:
            self.accept(token)
        self._has_chosen = True
        return option

    def accept(self, token: int) -> None:
        """Advance by a token; a constraint's grammar must allow it."""
        self.choice = None
        self._lib.llama_sampler_accept(self._chain, token)
        self._follow(token)

    def force(self, answer: Sequence[int], *, weighs: bool = True) -> list[int]:
        """Accept the tokens that the grammar forces after those of an answer, and return them.

        With `weighs`, `choice` is set behind them if few texts may follow.
        There are none if log probabilities are requested, which need the results of each token.
        """
        guard, detector = self._guard, self._detector
        # The model itself chooses the tool of a free call.
        lacks_name = detector is not None and not detector.has_name
        if guard is None or self._meter is not None or lacks_name:
            return []
        accepted: list[int] = []
        is_forced = bool(guard.forced())
        for token in self._forced(guard, answer) if is_forced else ():
            self.accept(token)
            accepted.append(token)
            if self._guard is None:  # the call has ended, or its grammar was too slow
                break
        # Most tokens are free text: there is no choice between few texts behind those.
        if weighs and self._guard is not None and (is_forced or self._has_chosen):
            written = [*answer, *accepted]
            options = find_options(self._vocab, self._guard, written, may_end=detector is None)
            self.choice = Choice(options, self._temperature) if options else None
        self._has_chosen = False
        return accepted

    def write(self, tokens: list[int]) -> list[int]:
        """Accept these tokens without a choice, and return them; none if the grammar forbids one.

        They have no log probabilities.
        """
        if self._guard is not None and self._guard.allowed_part(tokens) != tokens:
            return []
        self.logprob = None
        for token in tokens:
            self.accept(token)
        return tokens

    @property
    def ended(self) -> bool:
        """Whether the grammar of the whole answer allows nothing more."""
        return self._guard is not None and self._detector is None and self._guard.ended

    def close(self) -> None:
        """Free the chain; safe to call twice."""
        if self._chain:
            self._lib.llama_sampler_free(self._chain)
            self._chain = None
        self._guard = None

    def _pick_any(self, context: NativeContext, index: int) -> int:
        """A token without regard to the grammar."""
        candidates = None
        if self._shortlist is not None:
            candidates = self._shortlist.candidates(context, index)
        if candidates is None:
            candidates = self._filled(context, index)
        return self._select(candidates)

    def _select(self, candidates: Candidates) -> int:
        """The token that the samplers select."""
        candidates.apply(self._chain)
        self._selected_from = candidates
        token = candidates.selected
        return NO_TOKEN if token is None else token

    def _measured_row(self, context: NativeContext, index: int, token: int) -> "Row":
        """The logits of which a sampled token's log probability is told."""
        if self._selected_from is None or not self._measures_after:
            return logits_row(context, index, self._vocab.size)
        row = self._selected_from.remaining(self._vocab.size)
        if not self._temperature:  # only the best token was possible
            row[:] = -math.inf
            row[token] = 0.0
        return row

    def _pick_allowed(self, guard: GrammarGuard, context: NativeContext, index: int) -> int:
        """A token that the grammar allows; a tool that is not offered ends the grammar.

        Raises InvalidRequestError if the grammar is too slow.
        """
        token = self._pick_any(context, index)
        if token != NO_TOKEN and guard.allows(token):  # the usual case, without a mask
            return token
        if token != NO_TOKEN and self._names_unknown_tool(token):
            self._guard = None
            return token
        candidates = self._filled(context, index)
        guard.mask(candidates)
        selected = self._select(candidates)
        return selected if selected != NO_TOKEN and guard.allows(selected) else NO_TOKEN

    def _forced(self, guard: GrammarGuard, answer: Sequence[int]) -> list[int]:
        """The certain tokens of the text that the grammar forces.

        A grammar of a call ends where free text follows, whose first token may begin in the call.
        """
        try:
            forced = guard.forced()
            if not forced:
                return []
            tokens = guard.allowed_part(forced_tokens(self._vocab, answer, forced))
            # Then no text follows with which the last token could be joined.
            if self._detector is None and guard.ends_after(tokens):
                return tokens
        except InvalidRequestError:
            if self._detector is None:
                raise
            self._guard = None
            return []
        return without_extensible(self._vocab, tokens)

    def _filled(self, context: NativeContext, index: int) -> Candidates:
        """All tokens with their logits at a batch index."""
        if self._candidates is None:
            self._candidates = Candidates(self._vocab.size)
        self._candidates.fill(logits_row(context, index, self._vocab.size))
        return self._candidates

    def _follow(self, token: int) -> None:
        """Advance the grammar and the detector of calls by an accepted token."""
        guard, detector = self._guard, self._detector
        if guard is not None and not self._vocab.is_eog(token):
            try:
                guard.accept(token)
            except InvalidRequestError:  # it is too slow, and needed only for the whole answer
                if detector is None:
                    raise
                self._guard = None
        if detector is not None:
            self._look_for_calls(detector, token)

    def _look_for_calls(self, detector: CallDetector, token: int) -> None:
        """Begin the grammar of a call at its marker, and drop it at the call's end."""
        piece = self._vocab.piece(token)
        if self._guard is None:
            call_text = detector.feed(piece)
            if call_text is not None and self._constraint is not None:
                self._begin_call(detector, self._constraint, call_text)
            return
        detector.follow(piece.decode("utf-8", "replace"))
        if self._guard.complete:
            self._guard = None
            detector.end_call()

    def _begin_call(
        self, detector: CallDetector, constraint: CompiledConstraint, text: str
    ) -> None:
        """Start the grammar after the marker; `text` comes after it in the same token."""
        guard = GrammarGuard(constraint.matcher, self._vocab)
        if guard.follow(text):
            self._guard = guard
            detector.follow(text)
        else:  # it is no call that the grammar knows, and stays free
            detector.end_call()

    def _names_unknown_tool(self, token: int) -> bool:
        """Whether a free call with this token names a tool that is not offered."""
        text = self._vocab.piece(token).decode("utf-8", "replace")
        return self._detector is not None and self._detector.names_unknown_tool(text)
