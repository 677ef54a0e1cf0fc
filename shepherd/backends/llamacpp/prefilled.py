"""A request on its way: its job, its updates, and the slot that it holds."""

from dataclasses import dataclass, field

from shepherd.backends.base import GenerationStats, Prefilled
from shepherd.backends.inprocess.grammar.constraint import CompiledConstraint
from shepherd.backends.inprocess.prompt.prompt import Prompt
from shepherd.backends.inprocess.updates import Failed, Finished, Progress, Ready, Update
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.mailbox import Mailbox
from shepherd.backends.llamacpp.worker import Worker
from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.messages import ToolSpec
from shepherd.sampling import Sampling


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
