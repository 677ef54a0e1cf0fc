"""The backend that runs a model in-process."""

import asyncio
import weakref
from dataclasses import replace
from pathlib import Path

from shepherd.backends.base import (
    Backend,
    CacheTier,
    Concurrency,
    Generation,
    ModelInfo,
    Prefilled,
)
from shepherd.backends.inprocess.answer import Answer
from shepherd.backends.inprocess.grammar.compiler import GrammarCompiler
from shepherd.backends.inprocess.grammar.constraint import (
    CompiledConstraint,
    Constrainer,
    Constraint,
)
from shepherd.backends.inprocess.grammar.matcher import TokenBytes
from shepherd.backends.inprocess.prompt.conversation import Conversation
from shepherd.backends.inprocess.prompt.prompt import Prompt, PromptBuilder
from shepherd.backends.inprocess.prompt.raw import raw_prompt
from shepherd.backends.inprocess.sessions import (
    SessionMemory,
    check_continuable,
    check_prompt_size,
    continued_text,
    with_thinking,
)
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.prefilled import LengthLimit, LlamaPrefilled, Request
from shepherd.backends.llamacpp.sampling.parameters import recommended_sampling, resolve_biases
from shepherd.backends.llamacpp.sampling.thought import (
    EFFORT_TOKENS,
    ThoughtBudget,
    thought_budget,
)
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.text_model import LlamaText
from shepherd.backends.llamacpp.vision.parts import PromptImages, raw_images
from shepherd.backends.llamacpp.worker import Worker
from shepherd.backends.output import OutputFilter, PlainOutput
from shepherd.backends.text_model import TextModel
from shepherd.backends.vision import cannot_see, earlier_images, refuse_images
from shepherd.config.sections import LlamaCppSection
from shepherd.dataclass import dataclass
from shepherd.errors import BusyError, InvalidRequestError
from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.messages import Message
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, check_sampling, choice_seed
from shepherd.session import RawPrompt, Session


class LlamaCppBackend(Backend):
    """One model, many conversations at once. Used from the event loop that loaded it."""

    def __init__(
        self, name: str, sampling: Sampling, engine: Engine, worker: Worker, text: TextThread
    ) -> None:
        """Takes ownership of the engine, the worker and the thread; use `load`."""
        self.thinking: bool | None = None
        """Whether the model reasons; None leaves it to the sessions."""
        self._name = name
        defaults = recommended_sampling(engine.model.metadata).over(DEFAULT_SAMPLING)
        self._defaults = check_sampling(sampling.over(defaults))
        self._worker = worker
        self._text = text
        self._vocab = vocab = engine.model.vocab
        self._files = engine.model.files
        self._images = engine.images
        self._prompts = PromptBuilder(engine.model)
        self._style = self._prompts.output_style()
        syntax = self._prompts.call_syntax(self._style)
        self._constrainer = Constrainer(self._style, syntax, free_calls=engine.checks_calls)
        self._scheduler = engine.scheduler
        self._pool = engine.scheduler.pool
        self._context_size = engine.context.size
        self._limit = LengthLimit(self._vocab, self._context_size)
        self._capacity = engine.context.sequences + engine.max_queue
        self._grammars = GrammarCompiler(lambda: text.run(_token_bytes, vocab))
        self._thinking_tokens = engine.max_thinking_tokens
        self._jobs: set[Job] = set()
        self._sessions = SessionMemory()
        self._text_model = LlamaText(engine, self._prompts, text, self._defaults, self._jobs)
        self._notices = engine.notices()
        self._text.post(self._prompts.learn, self._pool.saved_prompts())
        self._shut_down = weakref.finalize(self, _shut_down, text, worker)

    @classmethod
    async def load(
        cls,
        path: Path,
        settings: LlamaCppSection,
        sampling: Sampling | None = None,
        *,
        parallel: int | Concurrency = 1,
        name: str = "",
        cache: Path | None = None,
    ) -> "LlamaCppBackend":
        """Load a GGUF file, off the event loop; `parallel` requests share its context.

        `sampling` has defaults for requests, and takes precedence over the file's recommendations.
        Conversations are saved in the folder `cache`, unless it is None. Raises ModelLoadError,
        or ConfigError for a bad setting.
        """
        sampling = sampling or Sampling()
        check_sampling(sampling.over(DEFAULT_SAMPLING))
        shared = parallel if isinstance(parallel, Concurrency) else Concurrency(max(1, parallel))
        worker = Worker(lambda post: Engine.load(path, settings, shared, post, cache))
        text = TextThread()
        try:
            engine = await asyncio.wrap_future(worker.loaded)
            return await text.run(cls, name or path.stem, sampling, engine, worker, text)
        except BaseException:
            await asyncio.to_thread(_shut_down, text, worker)
            raise

    @property
    def info(self) -> ModelInfo:
        tools = BUILTIN_TOOLS if self._name == BUILTIN_NAME else None
        return ModelInfo(
            self._name,
            "llamacpp",
            self._context_size,
            trained_tools=tools,
            vision=self._images is not None,
            raw_prompts=True,
            checks_calls=self._constrainer.checks_calls,
        )

    @property
    def text_model(self) -> TextModel:
        return self._text_model

    @property
    def alive(self) -> bool:
        return not self._text.closed and self._worker.alive

    async def reachable(self) -> bool:
        """Whether the backend can answer now: both threads are alive and make progress."""
        return self.alive and not (self._worker.stalled or self._text.stalled)

    @property
    def cache_tiers(self) -> tuple[CacheTier, ...]:
        return self._pool.tiers

    @property
    def waiting_requests(self) -> int:
        return self._scheduler.waiting

    @property
    def running(self) -> int:
        """The number of requests that run, wait, or hold a finished prompt."""
        return len(self._jobs)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        return await self._prefill(await self._request(session), session, callback)

    async def prefill_choices(
        self, session: Session, callback: EventCallback, count: int
    ) -> list[Prefilled]:
        """Decode the prompt once; all but the first answer may still wait for a sequence."""
        request = await self._request(session)
        first = await self._prefill(request, session, callback)
        handles = [first]
        try:
            for index in range(1, count):
                seed = choice_seed(request.sampling.seed, index)
                sampling = replace(request.sampling, seed=seed)
                own = replace(request, sampling=sampling, measured=False)
                handles.append(self._submit(own))
        except BaseException:
            for handle in handles:
                handle.release()
            raise
        for handle in handles if first.cancelled else []:
            handle.cancel()
        return [*handles]

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, LlamaPrefilled):
            raise TypeError("the handle belongs to another backend")
        output = self._output(prefilled.request)
        answer = Answer(
            output, callback, cancelled=prefilled.cancelled, logprobs=prefilled.logprobs
        )
        try:
            await self._run(prefilled, answer, max_tokens)
        finally:
            self._remember(prefilled, answer)
        return answer.complete(prefilled.stats())

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        if self._images is None or not message.images:
            return await self._text.run(self._prompts.count_message, message)
        prepared = [await self._images.prepare(image) for image in message.images]
        text = await self._text.run(self._prompts.count_message, replace(message, images=()))
        return text + sum(len(image.tokens) for image in prepared)

    async def count_session_tokens(self, session: Session) -> int:
        """The tokens of the session's whole prompt, exactly."""
        session = with_thinking(session, thinking=self.thinking)
        conversation = self._conversation(session)
        images = await self._prepared_images(session, conversation)
        return len((await self._text.run(self._build, session, conversation, images)).tokens)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._shut_down)

    async def _request(self, session: Session) -> Request:
        self._files.check()
        session = with_thinking(session, thinking=self.thinking)
        check_continuable(session)
        if self._images is None:
            refuse_images(session.messages, self._name)
        sampling = check_sampling(session.sampling.over(self._defaults))
        conversation = self._conversation(session)
        tools = list(session.callable_tools)
        images = await self._prepared_images(session, conversation)
        # one visit of the text thread: each costs as much as a token of a small model
        prepared = await self._text.run(self._prepare, session, conversation, sampling, images)
        sampling, prompt = prepared.sampling, prepared.prompt
        constraint = await self._compiled(prepared.constraint)
        request = Request(
            prompt,
            sampling,
            tools,
            constraint,
            thought=prepared.thought,
            continued=continued_text(session),
            images=tuple(images.values()),
        )
        raw = session.raw_prompt
        if raw is None:
            return request
        measured = isinstance(raw, RawPrompt) and raw.measured
        return replace(request, raw=True, measured=measured)

    async def _prefill(
        self, request: Request, session: Session, callback: EventCallback
    ) -> LlamaPrefilled:
        if len(self._jobs) >= self._capacity:
            raise BusyError(f"{len(self._jobs)} requests are running or waiting; try again later")
        handle = self._submit(request)
        try:
            if not self._warn(session, request, callback):
                handle.cancel()
            await handle.wait(callback)
        except BaseException:
            handle.release()
            raise
        return handle

    def _submit(self, request: Request) -> LlamaPrefilled:
        size = self._context_size
        return LlamaPrefilled.queue(self._worker, self._jobs, request, size, self._vocab)

    def _output(self, request: Request) -> OutputFilter | PlainOutput:
        if request.raw:
            return PlainOutput()
        tail = request.prompt.text_tail
        return OutputFilter(
            self._style, request.tools, prompt_tail=tail, continued=request.continued
        )

    def _conversation(self, session: Session) -> Conversation | None:
        """The session at this moment; None if a raw prompt replaces its messages."""
        if session.raw_prompt is not None:
            return None
        return self._sessions.conversation(session, sees=self._images is not None)

    async def _prepared_images(
        self, session: Session, conversation: Conversation | None
    ) -> PromptImages:
        """The images of the prompt with their tokens, by their marks; raises ImageError."""
        images = raw_images(session) if conversation is None else conversation.images
        if not images:
            return {}
        if self._images is None:
            raise cannot_see(self._name)
        earlier = [] if conversation is None else earlier_images(session.messages)
        return await self._images.prepare_all(images, earlier)

    def _prepare(
        self,
        session: Session,
        conversation: Conversation | None,
        sampling: Sampling,
        images: PromptImages,
    ) -> "_Prepared":
        """Check, render and tokenize a session. Text thread only."""
        self._limit.check_session(session)
        if sampling.logit_bias or sampling.ignore_eos:
            sampling = resolve_biases(sampling, self._vocab)
        prompt = self._build(session, conversation, images)
        check_prompt_size(len(prompt.tokens), self._context_size)
        constraint = self._constrainer.constraint(session, prompt.text_tail)
        return _Prepared(sampling, prompt, constraint, self._thought(session, prompt))

    def _thought(self, session: Session, prompt: Prompt) -> ThoughtBudget | None:
        """The limit of the reasoning; None for a raw prompt, whose text has no markers."""
        if session.raw_prompt is not None:
            return None
        tokens = session.thinking_budget
        if tokens is None and "reasoning_effort" not in self._prompts.source:
            tokens = EFFORT_TOKENS.get(session.thinking_effort, self._thinking_tokens or None)
        return thought_budget(tokens, self._style.think, prompt.text_tail)

    def _build(
        self,
        session: Session,
        conversation: Conversation | None,
        images: PromptImages,
    ) -> Prompt:
        """The prompt; `conversation` is None for a raw prompt. Text thread only."""
        check = self._limit.check_text
        if conversation is None:
            assert session.raw_prompt is not None
            runs = [tokens.tokens for _, tokens in images.values()]
            return raw_prompt(self._vocab, session.raw_prompt, check, runs)
        tokens = {mark: entry.tokens for mark, (_, entry) in images.items()}
        return self._prompts.build(conversation, check, tokens)

    async def _compiled(self, constraint: Constraint | None) -> CompiledConstraint | None:
        if constraint is None:
            return None
        own = not constraint.foreign
        try:
            matcher = await self._grammars.matcher(constraint.grammar, own=own)
        except InvalidRequestError:
            if constraint.enforced:
                raise
            return None
        return CompiledConstraint(constraint, matcher)

    async def _run(self, prefilled: LlamaPrefilled, answer: Answer, max_tokens: int) -> None:
        if not answer.cancelled:
            prefilled.start(max_tokens)
        while not answer.cancelled and answer.finished is None:
            answer.take(await prefilled.updates())
        if answer.cancelled:
            prefilled.cancel()

    def _remember(self, prefilled: LlamaPrefilled, answer: Answer) -> None:
        """Remember the answer's tokens, so that its text gives the same tokens in history."""
        tail, tokens = prefilled.prompt.tail, prefilled.generated
        if not prefilled.request.raw:
            self._text.post(self._prompts.remember_generated, tail, tokens, answer.characters)

    def _warn(self, session: Session, request: Request, callback: EventCallback) -> bool:
        """Send notices and warnings; returns False if the callback cancelled."""
        notices, self._notices = self._notices, []
        if request.prompt.warning and self._sessions.is_first_warning(session):
            notices = [*notices, request.prompt.warning]
        compiled = request.constraint
        if compiled is not None and compiled.constraint.unenforced:
            keywords = ", ".join(compiled.constraint.unenforced)
            notices = [*notices, f"The answer may not follow all of its JSON schema: {keywords}."]
        return all(callback(CallbackEvent.SYSTEM, text, Topic.WARNING, "") for text in notices)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A session as the engine needs it; the constraint's grammar is not compiled yet."""

    sampling: Sampling
    prompt: Prompt
    constraint: Constraint | None
    thought: ThoughtBudget | None


def _token_bytes(vocab: Vocab) -> TokenBytes:
    return vocab.token_bytes


def _shut_down(text: TextThread, worker: Worker) -> None:
    """Stop tokenizing before the vocabulary is freed."""
    text.close()
    worker.stop()
