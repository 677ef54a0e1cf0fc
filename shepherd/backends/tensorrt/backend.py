"""The backend that runs a model in-process through TensorRT-LLM."""

import asyncio
import weakref
from collections.abc import Callable
from dataclasses import replace

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.inprocess.answer import Answer
from shepherd.backends.inprocess.prompt.prompt import Prompt, PromptBuilder
from shepherd.backends.inprocess.room import check_room
from shepherd.backends.inprocess.sessions import SessionMemory, thinking_as
from shepherd.backends.inprocess.text_thread import TextThread
from shepherd.backends.output import OutputFilter
from shepherd.backends.tensorrt.generating import Generating, Request
from shepherd.backends.tensorrt.parameters import guide, sampling_params
from shepherd.backends.tensorrt.seam import TokenEngine, TokenRequest, TokenStream
from shepherd.backends.vision import refuse_images
from shepherd.events import CallbackEvent, EventCallback, Topic
from shepherd.messages import Message
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, check_sampling
from shepherd.session import Session


class TokenPrefilled(Prefilled):
    """A prompt that fits; the engine reads it when the answer is asked for."""

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
        """Takes over what `open` made; on the text thread."""
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
        """Load an engine, off the event loop; `sampling` is for requests that do not say.

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

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        """The prompt is made and counted; the engine reads it together with the first token."""
        refuse_images(session.messages, self._name)
        sampling = check_sampling(session.sampling.over(self._defaults))
        parameters = sampling_params(sampling, self._engine.lacks, tuple(self._vocab.ends))
        guided = guide(session, guides=self._engine.guides)
        # A schema holds from the first token, so there is no room for reasoning before it.
        asked = thinking_as(session, thinking=self.thinking if guided is None else False)
        prompt = await self._build(asked)
        check_room(len(prompt.tokens), self._engine.context_size)
        request = TokenRequest(prompt.tokens, parameters, guided)
        handle = TokenPrefilled(Request(prompt, sampling, list(session.tools), request))
        if prompt.warning and self._sessions.is_first_warning(session):
            told = callback(CallbackEvent.SYSTEM, prompt.warning, Topic.WARNING, "")
            handle.cancelled = not told
        return handle

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        if not isinstance(prefilled, TokenPrefilled):
            raise TypeError("the handle is another backend's")
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
            prefilled.cached_tokens = generating.cached
            self._remember(request.prompt, generating, answer)
        return answer.complete(generating.stats)

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        return await self._text.run(self._prompts.count_message, message)

    async def count_session_tokens(self, session: Session) -> int:
        """The tokens of the session's whole prompt, exactly."""
        return len((await self._build(thinking_as(session, thinking=self.thinking))).tokens)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._shut_down)

    def _limited(self, request: Request, max_tokens: int) -> TokenRequest:
        room = self._engine.context_size - len(request.prompt.tokens)
        limit = min(max_tokens, room) if max_tokens else room
        asked = request.asked
        return replace(asked, parameters={**asked.parameters, "max_tokens": limit})

    async def _build(self, session: Session) -> Prompt:
        conversation = self._sessions.conversation(session)
        return await self._text.run(self._prompts.build, conversation)

    def _remember(self, prompt: Prompt, generating: Generating, answer: Answer) -> None:
        """Let the answer's text give the answer's tokens when it comes back as history."""
        self._text.post(
            self._prompts.remember_generated,
            prompt.tail,
            tuple(generating.tokens),
            answer.characters,
        )


def _shut_down(text: TextThread, engine: TokenEngine) -> None:
    text.close()
    engine.close()
