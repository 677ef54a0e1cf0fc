"""What drafts tokens for a large model in a context of its own, and a small model that does."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from shepherd.backends.llamacpp.cache.prefixes import common_prefix
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.llamacpp.native.context import DECODED, NativeContext, Span
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.scheduling.job import Job
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


class Drafter(ABC):
    """Drafts the likeliest tokens in a context of its own, for several requests at once.

    Owner thread only; `close` frees it.
    """

    def __init__(self, context: NativeContext) -> None:
        """Owns the context."""
        self._context = context
        self._lib = bindings()
        self._greedy: Any = self._lib.llama_sampler_init_greedy()
        self.seconds_per_token = 0.0
        """What drafting one token takes, by a moving average; 0 if that is unknown."""

    def note(self, jobs: Sequence[Job], spans: Sequence[Span]) -> None:
        """Learn what the large model has just decoded for these jobs."""
        del jobs, spans  # a model that reads the texts itself needs neither

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[int]]:
        """A draft for each request; empty while the request's text is not read yet."""
        started = self._context.stopwatch.now()
        ready = [request for request in requests if self._is_ready(request)]
        drafts: dict[int, list[int]] = {request.sequence: [] for request in requests}
        for count in range(max((request.length for request in ready), default=0)):
            # Shorter drafts are complete before longer ones.
            spans = [
                Span(
                    request.sequence,
                    len(request.tokens) - 1 + count,
                    [(drafts[request.sequence] or request.tokens)[-1]],
                    wants_logits=True,
                )
                for request in ready
                if request.length > count
            ]
            if not self._read(spans):
                break
            for index, span in enumerate(spans):
                token = self._lib.llama_sampler_sample(self._greedy, self._context.handle, index)
                drafts[span.sequence].append(int(token))
        self._end_drafts(ready)
        ended = self._context.stopwatch.finished()  # the next batch must not wait for this work
        tokens = sum(map(len, drafts.values()))
        if tokens:
            each, known = (ended - started) / tokens, self.seconds_per_token
            self.seconds_per_token = known + _LEARNING_RATE * (each - known) if known else each
        return [drafts[request.sequence] for request in requests]

    def warm_up(self) -> None:  # noqa: B027 - a layer is part of a model that is warm
        """As `NativeContext.warm_up`, before the first draft."""

    def close(self) -> None:
        """Free everything; safe to call twice."""
        if self._greedy:
            self._lib.llama_sampler_free(self._greedy)
            self._greedy = None
        self._context.close()

    @abstractmethod
    def _is_ready(self, request: DraftRequest) -> bool:
        """Read all but the last token; False if more steps are needed."""

    @abstractmethod
    def _read(self, spans: Sequence[Span]) -> bool:
        """Decode the last token of each draft; False if that has failed."""

    def _end_drafts(self, requests: Sequence[DraftRequest]) -> None:
        """Forget what was drafted, unless the next draft looks which of it was right."""
        del requests

    @abstractmethod
    def _forget_all(self) -> None:
        """Note that the memory is empty."""

    def _decode(self, spans: Sequence[Span]) -> bool:
        """Decode a batch; after a failure the whole memory is cleared."""
        try:
            code = self._context.decode(spans)
        except BackendError:  # an answer needs no draft, so it goes on without
            code = -1
        if code != DECODED:
            self._context.clear()
            self._forget_all()
        return code == DECODED


class _Mirror(Struct):
    """The tokens in memory; the first `confirmed` of them are certainly those of the owner."""

    owner: object = None
    tokens: list[int] = field(default_factory=list[int])
    confirmed: int = 0


class DraftModel(Drafter):
    """A small model; it reads the text of each request itself."""

    def __init__(self, model: NativeModel, context: NativeContext) -> None:
        """Owns both, whose memory must be able to forget rejected tokens: see `open`."""
        super().__init__(context)
        self._model = model
        self._mirrors = [_Mirror() for _ in range(context.sequences)]

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

    def warm_up(self) -> None:
        self._context.warm_up()

    def close(self) -> None:
        super().close()
        self._model.close()

    def _is_ready(self, request: DraftRequest) -> bool:
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

    def _read(self, spans: Sequence[Span]) -> bool:
        is_decoded = self._decode(spans)
        for span in spans if is_decoded else ():
            self._mirrors[span.sequence].tokens.extend(span.tokens)
        return is_decoded

    def _forget_all(self) -> None:
        self._mirrors = [_Mirror() for _ in self._mirrors]


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
