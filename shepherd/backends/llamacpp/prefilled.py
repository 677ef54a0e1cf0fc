"""A request in progress: its length check, its job, and its updates."""

from dataclasses import dataclass, field

from shepherd.backends.base import GenerationStats, Prefilled
from shepherd.backends.inprocess.grammar.constraint import CompiledConstraint
from shepherd.backends.inprocess.prompt.prompt import Prompt
from shepherd.backends.inprocess.sessions import check_room
from shepherd.backends.inprocess.updates import Failed, Finished, Progress, Ready, Update
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.scheduling.delivery import Mailbox
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.worker import Worker
from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.messages import Role, ToolSpec
from shepherd.sampling import Sampling
from shepherd.session import Session

_USUAL_BYTES = 8
"""More bytes a token than this is unusual, so a text this long is worth counting first."""

_SLICE = 8 * 1024
_MARGIN = 2
"""Cutting a text into slices changes its count by far less than this factor."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the model: a prompt, and how to answer it."""

    prompt: Prompt
    sampling: Sampling
    tools: list[ToolSpec]
    constraint: CompiledConstraint | None = None
    key: object = field(default_factory=object)
    """The same for all answers to one request."""


class LlamaPrefilled(Prefilled):
    """A session's prompt, queued at once and in memory after `wait`.

    `cancelled` is set when the callback said no on the way.
    """

    def __init__(self, worker: Worker, jobs: set[Job], request: Request, size: int) -> None:
        """Queue the prompt; raises BackendError when the worker no longer serves."""
        self.prompt = prompt = request.prompt
        self.tools = request.tools
        self.prompt_tokens = len(prompt.tokens)
        self.cached_tokens = 0
        self.logprobs = None if request.sampling.logprobs is None else []
        self.cancelled = False
        self._worker = worker
        self._jobs = jobs
        self._context_size = size
        self._mailbox = Mailbox()
        self._progressed = False
        self._job = Job(
            self.prompt_tokens,
            list(prompt.tokens),
            request.sampling,
            receive=self._mailbox.put,
            constraint=request.constraint,
            request=request.key,
        )
        worker.submit(self._job)
        jobs.add(self._job)

    async def wait(self, callback: EventCallback) -> None:
        """Wait until the prompt is in memory, telling how far it is; raises what failed."""
        while not self.cancelled:
            for update in await self._mailbox.take():
                if self._note(update, callback):
                    return

    def start(self, max_tokens: int) -> None:
        """Let it generate; raises BackendError when the worker no longer serves."""
        self._worker.start(self._job, max_tokens)

    async def updates(self) -> list[Update]:
        """What came since the last time, at least one update."""
        return await self._mailbox.take()

    def cancel(self) -> None:
        """Stop the work."""
        self.cancelled = True
        self._worker.cancel(self._job)

    def release(self) -> None:
        """Give the slot back; safe to call twice."""
        self._worker.release(self._job)
        self._jobs.discard(self._job)

    def stats(self) -> GenerationStats:
        """The measures so far."""
        return self._job.stats(self._context_size)

    def generated(self) -> tuple[int, ...]:
        """The tokens so far."""
        return tuple(self._job.tokens[self.prompt_tokens :])

    def _note(self, update: Update, callback: EventCallback) -> bool:
        """Take in one update; True when waiting is over."""
        match update:
            case Progress(done=done, total=total):
                self._progressed = True
                self._tell(callback, done, total)
                return self.cancelled
            case Ready(cached=cached):
                self.cached_tokens = cached
                if self._progressed:
                    self._tell(callback, self.prompt_tokens, self.prompt_tokens)
                return True
            case Failed(error=error):
                raise error
            case Finished():
                self.cancelled = True
                return True
            case _:
                return False

    def _tell(self, callback: EventCallback, done: int, total: int) -> None:
        if not callback(CallbackEvent.SYSTEM, f"{done}/{total}", Topic.PREFILL, ""):
            self.cancel()


class LengthLimit:
    """What fits into a context at most, by a model's vocabulary."""

    def __init__(self, vocab: Vocab, context_size: int) -> None:
        self._vocab = vocab
        self._size = context_size

    def check_session(self, session: Session) -> None:
        """Raise ContextFullError for a session that need not be rendered to know that.

        Each message takes a token at least, and templates write what users and tools say, but for
        blanks around it.
        """
        if len(session.messages) >= self._size:
            check_room(len(session.messages), self._size)
        heard = (m.content for m in session.messages if m.role in (Role.USER, Role.TOOL))
        self._check_bytes(sum(len(text.strip()) for text in heard))

    def check_text(self, text: str) -> None:
        """Raise ContextFullError for a rendered prompt that does not fit, counted in slices."""
        if len(text) <= _USUAL_BYTES * self._size:
            return
        self._check_bytes(len(text))
        tokens = 0
        for start in range(0, len(text), _SLICE):
            tokens += len(self._vocab.tokenize(text[start : start + _SLICE]))
            if tokens > _MARGIN * self._size:
                check_room(tokens, self._size)

    def _check_bytes(self, least: int) -> None:
        """No token has more bytes than the longest; a text has `least` bytes or more."""
        tokens = least // self._vocab.longest if least > self._size else 0
        if tokens >= self._size:
            check_room(tokens, self._size)
