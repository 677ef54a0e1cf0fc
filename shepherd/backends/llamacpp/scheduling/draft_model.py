"""A small model that drafts tokens for a large one, in a context of its own."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from shepherd.backends.llamacpp.cache.prefixes import common_prefix
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.errors import BackendError, ModelLoadError

MAX_PADDING = 128
"""Vocabularies of one family may differ by so many unused tokens at the end."""

_LEARNING_RATE = 0.1


class DraftRequest(Struct, frozen=True):
    """A request for a draft of `length` tokens after `tokens`.

    `owner` identifies the request, because another one may use the same sequence later.
    """

    owner: object
    sequence: int
    tokens: Sequence[int]
    length: int


class TokenSeconds:
    """How long a drafted token takes, by a moving average; 0 before the first."""

    def __init__(self) -> None:
        self.mean = 0.0

    def note(self, tokens: int, seconds: float) -> None:
        """Learn from a draft of so many tokens."""
        if tokens:
            measured = seconds / tokens
            self.mean += _LEARNING_RATE * (measured - self.mean) if self.mean else measured


class _Mirror(Struct):
    """The tokens in memory; the first `confirmed` of them are certainly those of the owner."""

    owner: object = None
    tokens: list[int] = field(default_factory=list[int])
    confirmed: int = 0


class DraftModel:
    """Drafts greedily, for several requests at once. Owner thread only; `close` frees it."""

    def __init__(self, model: NativeModel, context: NativeContext) -> None:
        """Owns both, whose memory must be able to forget rejected tokens: see `open`."""
        self._seconds = TokenSeconds()
        self._model = model
        self._context = context
        self._stopwatch = context.stopwatch
        self._mirrors = [_Mirror() for _ in range(context.sequences)]
        self._lib = bindings()
        self._greedy: Any = self._lib.llama_sampler_init_greedy()

    @classmethod
    def open(cls, model: NativeModel, context: NativeContext) -> "DraftModel":
        """Test the memory, and take both; raises ModelLoadError if it can't forget tokens."""
        context.decode([Span(0, 0, [0, 0], wants_logits=True)])
        if not context.remove(0, 1):
            raise ModelLoadError(
                "A recurrent model can't draft: its memory can't forget rejected tokens."
            )
        context.clear()
        return cls(model, context)

    @property
    def seconds_per_token(self) -> float:
        """What drafting one token takes, in seconds; 0 if that is unknown."""
        return self._seconds.mean

    def note(self, jobs: Sequence[object], spans: Sequence[Span]) -> None:
        """Nothing: it reads the text of a request itself."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A draft for each request; empty while the request's text is not read yet."""
        started = self._stopwatch.now()
        ready = [request for request in requests if self._catch_up(request)]
        drafts: dict[int, list[int]] = {request.sequence: [] for request in requests}
        last_tokens = {request.sequence: request.tokens[-1] for request in ready}
        for count in range(max((request.length for request in ready), default=0)):
            # Shorter drafts are complete before longer ones.
            going_on = [request.sequence for request in ready if request.length > count]
            tokens = self._next([(sequence, last_tokens[sequence]) for sequence in going_on])
            if tokens is None:
                break
            for sequence, token in zip(going_on, tokens, strict=True):
                drafts[sequence].append(token)
                last_tokens[sequence] = token
        ended = self._stopwatch.finished()  # the next batch must not wait for this work
        self._seconds.note(sum(map(len, drafts.values())), ended - started)
        return [drafts[request.sequence] for request in requests]

    def warm_up(self) -> None:
        """As `NativeContext.warm_up`, before the first draft."""
        self._context.warm_up()

    def close(self) -> None:
        """Free everything; safe to call twice."""
        if self._greedy:
            self._lib.llama_sampler_free(self._greedy)
            self._greedy = None
        self._context.close()
        self._model.close()

    def _catch_up(self, request: DraftRequest) -> bool:
        """Read all but the last token; False if more steps are needed."""
        sequence, mirror = request.sequence, self._mirrors[request.sequence]
        if mirror.owner is not request.owner:
            mirror.owner, mirror.confirmed = request.owner, 0
        end = len(request.tokens) - 1
        known = mirror.confirmed  # an answer only grows, so that these need no comparison
        known += common_prefix(mirror.tokens[known:], request.tokens[known:end])
        if known < len(mirror.tokens):  # drafted tokens that the large model has rejected
            self._context.remove(sequence, known)
            del mirror.tokens[known:]
        chunk = list(request.tokens[known : min(end, known + self._context.limits.draft_chunk)])
        if chunk and not self._read([Span(sequence, known, chunk, wants_logits=False)]):
            return False
        mirror.confirmed = len(mirror.tokens)
        return mirror.confirmed == end

    def _next(self, last: list[tuple[int, int]]) -> list[int] | None:
        """The most likely token after each pair of a sequence and its last token.

        None if there is no room.
        """
        spans = [
            Span(sequence, len(self._mirrors[sequence].tokens), [token], wants_logits=True)
            for sequence, token in last
        ]
        if not self._read(spans):
            return None
        sample = self._lib.llama_sampler_sample
        return [int(sample(self._greedy, self._context.handle, i)) for i in range(len(spans))]

    def _read(self, spans: list[Span]) -> bool:
        """Decode and mirror; after a failure the whole memory is cleared."""
        try:
            code = self._context.decode(spans)
        except BackendError:  # an answer needs no draft, so it goes on without
            code = -1
        if code != DECODED:
            self._context.clear()
            self._mirrors = [_Mirror() for _ in self._mirrors]
            return False
        for span in spans:
            self._mirrors[span.sequence].tokens.extend(span.tokens)
        return True


def check_same_vocabulary(draft: Vocab, target: Vocab) -> None:
    """Raise ModelLoadError unless the tokens mean the same in both models."""
    shared_size = min(draft.size, target.size)
    padding = max(draft.size, target.size) - shared_size
    reason = ""
    if padding > MAX_PADDING:
        reason = f"it has {draft.size} tokens instead of {target.size}"
    elif draft.eos != target.eos:
        reason = "another token ends its answers"
    else:
        different = next((t for t in range(shared_size) if draft.raw(t) != target.raw(t)), None)
        if different is not None:
            mine, theirs = draft.text(different), target.text(different)
            reason = f"its token {different} is {mine!r} instead of {theirs!r}"
    if reason:
        raise ModelLoadError(
            f"The draft model's vocabulary is not the model's: {reason}. Use a smaller model of "
            "the same family, or none."
        )
