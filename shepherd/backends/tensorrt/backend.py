"""The backend that runs a model in-process through TensorRT-LLM."""

import asyncio
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled, refuse_images
from shepherd.backends.inprocess.answer import Answer
from shepherd.backends.inprocess.prompt import Prompt, PromptBuilder
from shepherd.backends.inprocess.sessions import SessionMemory, check_prompt_size, with_thinking
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.output.filter import OutputFilter
from shepherd.backends.tensorrt.engine import (
    TokenEngine,
    TokenRequest,
    TokenStream,
    check_machine,
    load_engine,
)
from shepherd.backends.tensorrt.generating import Generating, Request, guide, sampling_params
from shepherd.backends.tensorrt.model_files import Fetch, read_facts
from shepherd.backends.text_model import refuse_raw
from shepherd.config.provider import Provider
from shepherd.config.settings import Config
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, check_sampling
from shepherd.session import Session


class TokenPrefilled(Prefilled):
    """A prompt that fits; the engine reads it when the generation starts."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.prompt_tokens = len(request.prompt.tokens)
        self.cached_tokens = 0
        self.logprobs = None if request.sampling.logprobs is None else []
        self.cancelled = False
        self.stream: TokenStream | None = None

    def release(self) -> None:
        """Let the engine stop, if it works on this; safe to call twice."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.abort()


class TensorRtBackend(Backend):
    """One model, many conversations at once; the engine batches them as they come."""

    def __init__(
        self, name: str, engine: TokenEngine, text: TextThread, defaults: Sampling
    ) -> None:
        """Takes ownership of engine and thread; runs on the text thread. Use `open`."""
        self.thinking: bool | None = None
        """As in `LlamaCppBackend`."""
        self._name = name
        self._engine = engine
        self._text = text
        self._defaults = defaults
        self._vocab = engine.model.vocab
        self._prompts = PromptBuilder(engine.model)
        self._style = self._prompts.output_style()
        self._sessions = SessionMemory()
        self._shut_down = weakref.finalize(self, _shut_down, text, engine)

    @classmethod
    async def open(
        cls, name: str, load: Callable[[], TokenEngine], sampling: Sampling = DEFAULT_SAMPLING
    ) -> "TensorRtBackend":
        """Load an engine, off the event loop; `sampling` has defaults for requests.

        Raises ModelLoadError.
        """
        defaults = check_sampling(sampling.over(DEFAULT_SAMPLING))
        engine = await asyncio.to_thread(load)
        text = TextThread()
        try:
            return await text.run(cls, name, engine, text, defaults)
        except BaseException:
            await asyncio.to_thread(_shut_down, text, engine)
            raise

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self._name, "tensorrt", self._engine.context_size, vision=False)

    @property
    def alive(self) -> bool:
        return not self._text.closed and self._engine.alive

    async def prefill_session(self, session: Session, callback: events.EventCallback) -> Prefilled:
        """The prompt is built and counted; the engine reads it together with the first token."""
        refuse_images(session.messages, self._name)
        refuse_raw(session, self._name)
        sampling = check_sampling(session.sampling.over(self._defaults))
        parameters = sampling_params(sampling, self._engine.unsupported, tuple(self._vocab.ends))
        guided = guide(session, guides=self._engine.guides)
        # A schema applies from the first token, so reasoning is not possible before it.
        adjusted = with_thinking(session, thinking=self.thinking if guided is None else False)
        prompt = await self._build(adjusted)
        check_prompt_size(len(prompt.tokens), self._engine.context_size)
        generation = TokenRequest(prompt.tokens, parameters, guided)
        tools = list(session.callable_tools)
        handle = TokenPrefilled(Request(prompt, sampling, tools, generation))
        if prompt.warning and self._sessions.is_first_warning(session):
            goes_on = callback(events.Notice(prompt.warning, events.Topic.WARNING))
            handle.cancelled = not goes_on
        return handle

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, TokenPrefilled):
            raise TypeError("the handle belongs to another backend")
        request = prefilled.request
        output = OutputFilter(self._style, request.tools, prompt_tail=request.prompt.text_tail)
        answer = Answer(
            output, callback, cancelled=prefilled.cancelled, logprobs=prefilled.logprobs
        )
        generating = Generating(request, self._vocab, self._engine.context_size)
        try:
            if not answer.cancelled:
                prefilled.stream = self._engine.submit(self._limited(request, max_tokens))
                await generating.run(prefilled.stream, answer)
        finally:
            prefilled.release()
            prefilled.cached_tokens = generating.cached_tokens
            # The answer's text then gives the same tokens in history.
            self._text.post(
                self._prompts.remember_generated,
                request.prompt.tail,
                tuple(generating.tokens),
                answer.characters,
            )
        return answer.complete(generating.stats)

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        return await self._text.run(self._prompts.count_message, message)

    async def count_session_tokens(self, session: Session) -> int:
        """The tokens of the session's whole prompt, exactly."""
        return len((await self._build(with_thinking(session, thinking=self.thinking))).tokens)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._shut_down)

    def _limited(self, request: Request, max_tokens: int) -> TokenRequest:
        """The request with its limit: as many tokens as fit, and at most `max_tokens` unless 0."""
        room = self._engine.context_size - len(request.prompt.tokens)
        limit = min(max_tokens, room) if max_tokens else room
        generation = request.generation
        return replace(generation, parameters={**generation.parameters, "max_tokens": limit})

    async def _build(self, session: Session) -> Prompt:
        """The session's prompt, made on the text thread."""
        conversation = self._sessions.conversation(session)
        return await self._text.run(self._prompts.build, conversation)


def _shut_down(text: TextThread, engine: TokenEngine) -> None:
    text.close()
    engine.close()


async def open_tensorrt(
    provider: Provider, config: Config, fetch: Fetch | None = None
) -> TensorRtBackend:
    """Load the provider's model; raises ConfigError, ModelLoadError."""
    provider = _with_model(provider)
    await asyncio.to_thread(check_machine, provider)  # before a download
    facts = await asyncio.to_thread(read_facts, provider.model, fetch)
    if not (provider.context_size or facts.context_size):
        raise errors.ConfigError(
            f"{provider.name}: the model does not say how large its context is; set it with "
            f"`shepherd provider set {provider.name} context-size TOKENS`."
        )
    load = partial(load_engine, provider, facts)
    name = Path(provider.model).name
    return await TensorRtBackend.open(name, load, config.sampling.to_sampling())


def _with_model(provider: Provider) -> Provider:
    """The provider with the path of its model, if that is a directory; raises ConfigError."""
    if not provider.model:
        raise errors.ConfigError(
            f"{provider.name}: TensorRT-LLM in this process needs a model, a directory or a name "
            f"on the hub: `shepherd provider set {provider.name} model …`; or give the address of "
            "`trtllm-serve` as base-url."
        )
    folder = Path(provider.model).expanduser()
    return provider.model_copy(update={"model": str(folder)}) if folder.is_dir() else provider
