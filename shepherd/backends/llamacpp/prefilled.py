"""A request in progress: its length check, its job, and its updates."""

from collections.abc import Sequence

from msgspec import Struct, field, structs

from shepherd.backends.base import Prefilled
from shepherd.backends.inprocess.answer import Failed, Finished, Progress, Queued, Ready, Update
from shepherd.backends.inprocess.constraint import CompiledConstraint
from shepherd.backends.inprocess.prompt import Prompt
from shepherd.backends.inprocess.sessions import check_prompt_size
from shepherd.backends.llamacpp.cache.prefixes import Owner
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.sampling.candidates import PromptMeter
from shepherd.backends.llamacpp.sampling.guard import ThoughtBudget, ThoughtMeter
from shepherd.backends.llamacpp.scheduling.job import Account, Job, Mailbox
from shepherd.backends.llamacpp.vision.parts import ImageTokens, image_runs
from shepherd.backends.llamacpp.worker import Worker
from shepherd.backends.tenant import Tenant
from shepherd.events import CallbackEvent, EventCallback, PrefillProgress, Stats
from shepherd.images import Image
from shepherd.messages import Role, ToolSpec
from shepherd.sampling import BIAS_RANGE, Sampling, TokenLogprob
from shepherd.session import Session

_USUAL_BYTES = 8
"""A text with more bytes per token of context than this is counted before it is tokenized."""


class Request(Struct, frozen=True):
    """A prompt, and how to answer it."""

    prompt: Prompt
    sampling: Sampling
    tools: list[ToolSpec]
    constraint: CompiledConstraint | None = None
    raw: bool = False
    measured: bool = False
    thought: ThoughtBudget | None = None
    continued: CallbackEvent | None = None
    """The kind of text that the answer continues; None for a new answer."""
    images: tuple[tuple[Image, ImageTokens], ...] = ()
    repeatable: bool = False
    """Whether the answer should come out the same again."""
    key: object = field(default_factory=object)
    """An identity that all answers to one request share."""
    session: str = ""
    tenant: Tenant = Tenant()
    shared: int = 0
    """The tokens at the beginning of the prompt that other tenants may share."""


class LlamaPrefilled(Prefilled):
    """A session's prompt; it is in memory after `wait`.

    `cancelled` is true once the callback has returned False.
    """

    def __init__(
        self, worker: Worker, jobs: set[Job], request: Request, size: int, vocab: Vocab
    ) -> None:
        """Queue the prompt of a request; raises BackendError if the worker has stopped.

        `jobs` has those that run or wait, until `release`. `size` is that of the context.
        """
        self.prompt = prompt = request.prompt
        self.request = request
        self._vocab = vocab
        self.prompt_tokens = len(prompt.tokens)
        self.cached_tokens = 0
        # A list is filled with those of the answer, while it is generated.
        self.logprobs = None if request.sampling.logprobs is None else []
        self.cancelled = False
        self._worker = worker
        self._jobs = jobs
        self._context_size = size
        self._mailbox = Mailbox()
        self._has_reported = False
        """Whether progress was reported, which then must reach its end."""
        meter = PromptMeter(vocab, request.sampling.logprobs or 0) if request.measured else None
        self._job = Job(
            self.prompt_tokens,
            list(prompt.tokens),
            request.sampling,
            receive=self._mailbox.put,
            constraint=request.constraint,
            request=request.key,
            session=request.session,
            account=Account(request.tenant),
            owner=Owner(request.tenant.name, request.shared),
            repeatable=request.repeatable,
            prompt_meter=meter,
            thought=ThoughtMeter(request.thought) if request.thought is not None else None,
            images=image_runs(prompt.tokens, request.images) if request.images else [],
        )
        worker.submit(self._job)
        jobs.add(self._job)

    async def wait(self, callback: EventCallback) -> None:
        """Wait until the prompt is in memory and report progress; raises BackendError."""
        while not self.cancelled:
            for update in await self._mailbox.take():
                if self._note(update, callback):
                    return

    def start(self, max_tokens: int) -> None:
        """Start to generate; raises BackendError if the worker has stopped."""
        # Text that nobody reads as it grows may come in one piece.
        self._job.holds_text = self._job.joins_text and not self.wants_pieces
        self._worker.start(self._job, max_tokens)

    async def updates(self) -> list[Update]:
        """The updates since the last call; waits for the first."""
        return await self._mailbox.take()

    def expect(self, seconds: float | None) -> None:
        """Tell after the answer when its session asks again; None if a person reads it."""
        self._worker.expect(self._job, seconds)

    def cancel(self) -> None:
        """Stop the work."""
        self.cancelled = True
        self._worker.cancel(self._job)

    @property
    def unenforced(self) -> Sequence[str]:
        return self.request.constraint.unenforced if self.request.constraint is not None else ()

    def release(self) -> None:
        """Release the slot; safe to call twice."""
        self._worker.release(self._job)
        self._jobs.discard(self._job)

    def stats(self) -> Stats:
        """The measurements so far."""
        return self._job.stats(self._context_size)

    @property
    def tokens(self) -> Sequence[int]:
        return () if self._job.images else tuple(self._job.tokens)

    @property
    def generated(self) -> tuple[int, ...]:
        return tuple(self._job.tokens[self.prompt_tokens :])

    @property
    def sampling(self) -> Sampling:
        """The parameters as they are applied; `ignore_eos` is a ban of tokens."""
        sampling = self.request.sampling
        lowest = BIAS_RANGE[0]  # which bans a token
        bans = [(token, lowest) for token in self._vocab.ends] if sampling.ignore_eos else []
        return structs.replace(sampling, logit_bias=(*(sampling.logit_bias or ()), *bans))

    @property
    def prompt_logprobs(self) -> Sequence[TokenLogprob]:
        meter = self._job.prompt_meter
        return () if meter is None else tuple(meter.logprobs)

    @property
    def prompt_text(self) -> str:
        """The text of all tokens of the prompt, without images, whose placeholders are negative."""
        pieces = (self._vocab.piece(token) for token in self.prompt.tokens if token >= 0)
        return b"".join(pieces).decode("utf-8", "replace")

    def _note(self, update: Update, callback: EventCallback) -> bool:
        """Handle one update; True if the wait is over."""
        match update:
            case Queued(place=place, seconds=seconds):
                waits = PrefillProgress(0, self.prompt_tokens, 0, place, seconds)
                return self._report(callback, waits)
            case Progress(done=done, total=total, cached=cached):
                self._has_reported = True
                self.cached_tokens = cached
                return self._report(callback, PrefillProgress(done, total, cached))
            case Ready(cached=cached):
                self.cached_tokens = cached
                if self._has_reported:
                    total = self.prompt_tokens
                    self._report(callback, PrefillProgress(total, total, cached))
                return True
            case Failed(error=error):
                raise error
            case Finished():  # the engine ends a job before it is ready only if it was cancelled
                self.cancelled = True
                return True
            case _:
                return False

    def _report(self, callback: EventCallback, progress: PrefillProgress) -> bool:
        """Report progress; a callback that returns False cancels the request. True if it is."""
        if not callback(progress):
            self.cancel()
        return self.cancelled


class LengthLimit:
    """Refuses conversations that are far too long, before they are tokenized to their end."""

    def __init__(self, vocab: Vocab, context_size: int) -> None:
        self._vocab = vocab
        self._size = context_size

    def check_session(self, session: Session) -> None:
        """Raise ContextFullError for a session that can't fit, without rendering it.

        Each message takes at least one token. Templates write the messages of users and tools
        completely, except for whitespace around them.
        """
        if session.raw_prompt is not None:  # its text is checked before it is tokenized
            return
        if len(session.messages) >= self._size:
            check_prompt_size(len(session.messages), self._size)
        complete = (m.content for m in session.messages if m.role in (Role.USER, Role.TOOL))
        self._check_bytes(sum(len(text.strip()) for text in complete))

    def check_text(self, text: str) -> None:
        """Raise ContextFullError for a rendered prompt that does not fit; counts it in slices."""
        if len(text) <= _USUAL_BYTES * self._size:
            return
        self._check_bytes(len(text))
        tokens = self._vocab.count_if_far_over(text, self._size)
        if tokens:
            check_prompt_size(tokens, self._size)

    def _check_bytes(self, minimum: int) -> None:
        """Raise ContextFullError if `minimum` bytes can't fit, even in tokens of maximum length."""
        if minimum <= self._size:  # usual, and then the longest token need not be looked for
            return
        tokens = minimum // self._vocab.max_token_bytes
        if tokens >= self._size:
            check_prompt_size(tokens, self._size)
