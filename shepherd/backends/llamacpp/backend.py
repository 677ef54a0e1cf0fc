"""The backend that runs a model in-process."""

import asyncio
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from shepherd.backends import base
from shepherd.backends.inprocess.answer import Answer, Finished
from shepherd.backends.inprocess.prompt import PromptBuilder
from shepherd.backends.inprocess.raw import check_tokens, join_parts
from shepherd.backends.inprocess.sessions import SessionMemory
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.prefilled import LlamaPrefilled, Request
from shepherd.backends.llamacpp.request_builder import RequestBuilder
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.tool_times import ToolTimes
from shepherd.backends.llamacpp.worker import Worker
from shepherd.backends.output.filter import OutputFilter, PlainOutput
from shepherd.backends.text_model import ModelFile, TextModel
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BusyError
from shepherd.events import EventCallback, FinishReason, Notice, Stats, Topic
from shepherd.messages import Message
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, check_sampling, choice_seed
from shepherd.session import Session

REWOUND = "A call was not well formed; it was taken back and written again."

SHORT_TEXT = 4096
"""Characters of a text, or tokens, that take no more time than a prompt beside them."""


class LlamaCppBackend(base.Backend):
    """One model, many conversations at once. Used from the event loop that loaded it."""

    def __init__(
        self, name: str, sampling: Sampling, engine: Engine, worker: Worker, text: TextThread
    ) -> None:
        """Takes ownership of the engine, the worker and the thread; use `load`."""
        self.thinking: bool | None = None
        """Whether the model reasons; None leaves it to the sessions."""
        self._name = name
        self._worker = worker
        self._text = text
        self._vocab = engine.model.vocab
        self._images = engine.images
        self._prompts = PromptBuilder(engine.model)
        self._style = self._prompts.output_style()
        self._requests = RequestBuilder(engine, self._prompts, self._style, text, sampling, name)
        self._scheduler = engine.scheduler
        self._pool = engine.scheduler.pool
        self._context = engine.context
        self._capacity = engine.context.sequences + engine.settings.max_queue
        """Requests of one tenant that may run and wait together."""
        self._jobs: set[Job] = set()
        self._tool_times = ToolTimes()
        self._long_texts = TextThread("llama.cpp long texts")
        self.text_model = LlamaText(
            engine, self._prompts, (text, self._long_texts), self._requests.defaults, self._jobs
        )
        self._notices = [*engine.notices(), *filter(None, (self._prompts.notice,))]
        # Saved conversations are found again only if their texts become the same tokens.
        self._text.post(self._prompts.learn, self._pool.saved_prompts())
        # A backend that nobody closes must not keep its threads and memory.
        self._shut_down = weakref.finalize(self, _shut_down, text, worker, self._long_texts)

    @classmethod
    async def load(
        cls,
        path: Path,
        settings: LlamaCppSection,
        sampling: Sampling | None = None,
        *,
        parallel: int | base.Concurrency = 1,
        name: str = "",
        cache: Path | None = None,
    ) -> Self:
        """Load a GGUF file, off the event loop; `parallel` requests share its context.

        `sampling` has defaults for requests, and takes precedence over the file's recommendations.
        Conversations are saved in the folder `cache`, unless it is None. Raises ModelLoadError,
        or ConfigError for a bad setting.
        """
        sampling = sampling or Sampling()
        check_sampling(sampling.over(DEFAULT_SAMPLING))
        streams = (
            parallel
            if isinstance(parallel, base.Concurrency)
            else base.Concurrency(max(1, parallel))
        )
        worker = Worker(lambda post, wake: Engine.load(path, settings, streams, post, cache, wake))
        text = TextThread()
        try:
            engine = await asyncio.wrap_future(worker.loaded)
            return await text.run(cls, name or path.stem, sampling, engine, worker, text)
        except BaseException:  # also if the caller is cancelled: the model may be there by now
            await asyncio.to_thread(_shut_down, text, worker)
            raise

    @property
    def info(self) -> base.ModelInfo:
        return base.ModelInfo(
            self._name,
            "llamacpp",
            self._context.size,
            trained_tools=BUILTIN_TOOLS if self._name == BUILTIN_NAME else None,
            vision=self._images is not None,
            raw_prompts=True,
            checks_calls=self._requests.checks_calls,
            text_model=self.text_model,
        )

    @property
    def alive(self) -> bool:
        return not self._text.closed and self._worker.alive

    async def reachable(self) -> bool:
        """Whether the backend can answer now: both threads are alive and make progress."""
        return self.alive and not (self._worker.stalled or self._text.stalled)

    @property
    def status(self) -> base.BackendStatus:
        queue = self._scheduler.queue
        # The owner thread changes the jobs meanwhile, so that these are numbers of some moment.
        requests = [job.state(queue.seconds_per_place) for job in self._jobs]
        return base.BackendStatus(
            self._pool.tiers,
            waiting_requests=queue.waiting,
            requests=requests,
            seconds=queue.accounts.seconds,
            batches=self._context.decoded_batches,
            batch_parts=self._context.decoded_parts,
        )

    @property
    def running(self) -> int:
        """The number of requests that run, wait, or hold a finished prompt."""
        return len(self._jobs)

    async def prefill_session(self, session: Session, callback: EventCallback) -> base.Prefilled:
        return await self._prefill(await self._request(session), session, callback)

    async def prefill_choices(
        self, session: Session, callback: EventCallback, count: int
    ) -> list[base.Prefilled]:
        """Decode the prompt once; all but the first answer may still wait for a sequence."""
        request = await self._request(session)
        first = await self._prefill(request, session, callback)
        handles: list[base.Prefilled] = [first]
        try:
            for index in range(1, count):
                seed = choice_seed(request.sampling.seed, index)
                sampling = replace(request.sampling, seed=seed)
                # The first one has measured the prompt for all.
                handle = self._submit(replace(request, sampling=sampling, measured=False))
                handles.append(handle)
                if first.cancelled:
                    handle.cancel()
        except BaseException:
            for handle in handles:
                handle.release()
            raise
        return handles

    async def generate_from_prefilled(
        self, prefilled: base.Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> base.Generation:
        if not isinstance(prefilled, LlamaPrefilled):
            raise TypeError("the handle belongs to another backend")
        output = self._output(prefilled.request)
        answer = Answer(
            output, callback, cancelled=prefilled.cancelled, logprobs=prefilled.logprobs
        )
        generated: tuple[int, ...] = ()
        try:
            await self._run(prefilled, answer, max_tokens)
            generated, stats = prefilled.generated, prefilled.stats()
            if answer.kept is not None and not answer.cancelled:
                generated, stats = await self._rewind(prefilled, answer, callback, max_tokens)
        finally:  # a part of an answer may be kept in the history, too
            if not prefilled.request.raw:
                # Its text then gives the same tokens in the history.
                remember, tail = self._prompts.remember_generated, prefilled.prompt.tail
                tokens = generated or prefilled.generated
                self._text.post(remember, tail, tokens, answer.characters)
        generation = answer.complete(stats)
        prefilled.expect(self._tool_times.expect(generation.message.tool_calls))
        return generation

    def note_lease(self, lease: base.Lease) -> None:
        self._worker.expect(lease.session, lease.seconds)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        """The tokens of a message by itself, exactly."""
        return await self._requests.count_message(message)

    async def count_session_tokens(self, session: Session) -> int:
        """The tokens of the session's whole prompt, exactly."""
        return await self._requests.count_session(session, thinking=self.thinking)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._shut_down)

    async def _request(self, session: Session) -> Request:
        self._tool_times.learn(session.messages)
        return await self._requests.build(session, thinking=self.thinking)

    async def _prefill(
        self, request: Request, session: Session, callback: EventCallback
    ) -> LlamaPrefilled:
        """Queue a request and wait until its prompt is in memory; raises BusyError."""
        own = sum(job.account.tenant.name == request.tenant.name for job in self._jobs)
        if own >= self._capacity:
            raise BusyError(f"{own} requests are running or waiting; try again later")
        handle = self._submit(request)
        try:
            if not self._send_warnings(session, request, callback):
                handle.cancel()
            await handle.wait(callback)
        except BaseException:
            handle.release()
            raise
        return handle

    def _submit(self, request: Request) -> LlamaPrefilled:
        """Queue the prompt of a request; raises BackendError if the worker has stopped."""
        return LlamaPrefilled(self._worker, self._jobs, request, self._context.size, self._vocab)

    def _output(self, request: Request) -> OutputFilter | PlainOutput:
        """What makes events of an answer's text; that of a raw prompt has no markers."""
        if request.raw:
            return PlainOutput()
        tail = request.prompt.text_tail
        return OutputFilter(
            self._style,
            request.tools,
            prompt_tail=tail,
            continued=request.continued,
            rewinds=self._requests.rewinds(request),
        )

    async def _run(self, prefilled: LlamaPrefilled, answer: Answer, max_tokens: int) -> None:
        """Pass the updates of a job to its answer, until one of them or the callback ends it."""
        if not answer.cancelled:
            prefilled.start(max_tokens)
        while not answer.cancelled and answer.finished is None and answer.kept is None:
            answer.take(await prefilled.updates())
        if answer.cancelled:
            prefilled.cancel()

    async def _rewind(
        self, first: LlamaPrefilled, answer: Answer, callback: EventCallback, max_tokens: int
    ) -> tuple[tuple[int, ...], Stats]:
        """Take a call back that went wrong, and write it again where it began, under a grammar.

        The result are the tokens of the answer and its measures.
        """
        before, generated = first.stats(), first.generated
        first.cancel()
        first.release()
        request = await self._requests.rewound(first.request, generated, answer)
        if request is None:  # then it is text, and ends the answer
            finished = answer.finished or Finished(FinishReason.STOP, before, generated)
            answer.rewind(written=False)
            answer.take([finished])
            return generated, before
        if not callback(Notice(REWOUND, Topic.NOTICE)):
            answer.cancelled = True
        answer.rewind(written=True)
        again = self._submit(request)
        try:
            await again.wait(lambda _: not answer.cancelled)
            begun = again.prompt.tokens[first.prompt_tokens :]
            left = max(1, max_tokens - len(begun)) if max_tokens else 0
            await self._run(again, answer, left)
            stats = _added(before, again.stats(), len(begun))
            if answer.finished is not None:
                answer.finished = replace(answer.finished, stats=stats)
            return (*begun, *again.generated), stats
        finally:
            again.release()

    def _send_warnings(self, session: Session, request: Request, callback: EventCallback) -> bool:
        """Send notices and warnings; returns False if the callback cancelled."""
        notices, self._notices = self._notices, []  # those of loading come with the first request
        if request.prompt.warning and self._requests.sessions.is_first_warning(session):
            notices = [*notices, request.prompt.warning]
        if request.constraint is not None and request.constraint.unenforced:
            keywords = ", ".join(request.constraint.unenforced)
            notices = [*notices, f"The answer may not follow all of its JSON schema: {keywords}."]
        return all(callback(Notice(text, Topic.WARNING)) for text in notices)


def _shut_down(text: TextThread, worker: Worker, long_texts: TextThread | None = None) -> None:
    """Stop tokenizing before the vocabulary is freed."""
    text.close()
    if long_texts is not None:
        long_texts.close()
    worker.stop()


def _added(first: Stats, again: Stats, begun: int) -> Stats:
    """The measures of an answer that was written in two parts; `begun` tokens of it were kept."""
    return replace(
        again,
        prompt_tokens=first.prompt_tokens,
        cached_tokens=first.cached_tokens,
        restored_tokens=first.restored_tokens,
        completion_tokens=begun + again.completion_tokens,
        prefill_seconds=first.prefill_seconds + again.prefill_seconds,
        decode_seconds=first.decode_seconds + again.decode_seconds,
        drafted_tokens=first.drafted_tokens + again.drafted_tokens,
        accepted_tokens=first.accepted_tokens + again.accepted_tokens,
    )


class LlamaText(TextModel):
    """The text side of one loaded model.

    Its work runs on the thread for text, whose other calls are the prompts of all requests. Long
    texts have a thread of their own, so that these do not wait for them.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: PromptBuilder,
        threads: tuple[TextThread, TextThread],
        sampling: Sampling,
        running: Collection[object],
    ) -> None:
        """`threads` are those for prompts and for long texts.

        `running` are the requests at work, `sampling` the defaults.
        """
        model = engine.model
        self._vocab = vocab = model.vocab
        self._prompts = prompts
        self._text, self._long_texts = threads
        self._running = running
        self._sessions = SessionMemory()
        self._sequences = engine.context.sequences
        self._file = ModelFile(
            name=model.name,
            template=prompts.source,
            context_size=engine.context.size,
            trained_context=model.trained_context,
            vocabulary=vocab.size,
            bytes=model.bytes,
            bos=vocab.text(vocab.bos),
            eos=vocab.text(vocab.eos),
            sampling=sampling,
            places=model.places,
        )

    @property
    def file(self) -> ModelFile:
        return self._file

    @property
    def slots(self) -> Sequence[bool]:
        """Whether each sequence is busy; the first ones count as busy, whichever really are."""
        busy = len(self._running)
        return [index < busy for index in range(self._sequences)]

    async def tokenize(
        self, parts: Sequence[str | int], *, special: bool = True, begins: bool = False
    ) -> list[int]:
        length = sum(len(part) if isinstance(part, str) else 1 for part in parts)
        thread = self._thread(length)
        return await thread.run(join_parts, self._vocab, parts, special=special, begins=begins)

    async def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        return await self._thread(len(tokens)).run(self._pieces, tokens)

    async def render(self, session: Session, *, answer: bool = True) -> str:
        conversation = self._sessions.conversation(session)
        return await self._text.run(self._prompts.rendered, conversation, answer=answer)

    def _thread(self, length: int) -> TextThread:
        """The thread for a text of so many characters or tokens."""
        return self._text if length <= SHORT_TEXT else self._long_texts

    def _pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token; raises InvalidRequestError for a number that is none."""
        check_tokens(self._vocab, tokens)
        return [self._vocab.piece(token) for token in tokens]
