"""Makes requests to the engine from sessions: prompts, samplers, grammars and images."""

from collections.abc import Sequence
from itertools import accumulate

from msgspec.structs import replace

from shepherd import errors, messages
from shepherd.backends.base import cannot_see, earlier_images, refuse_images
from shepherd.backends.inprocess import sessions, threads
from shepherd.backends.inprocess.answer import Answer
from shepherd.backends.inprocess.constraint import CompiledConstraint, Constrainer, Constraint
from shepherd.backends.inprocess.conversation import Conversation
from shepherd.backends.inprocess.matcher import GrammarCompiler
from shepherd.backends.inprocess.prompt import Prompt, PromptBuilder
from shepherd.backends.inprocess.raw import raw_prompt
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.prefilled import LengthLimit, Request
from shepherd.backends.llamacpp.sampling import guard
from shepherd.backends.llamacpp.sampling.native_chain import recommended_sampling, resolve_biases
from shepherd.backends.llamacpp.vision.parts import PromptImages, raw_images
from shepherd.backends.output.style import OutputStyle
from shepherd.backends.tenant import current_tenant
from shepherd.sampling import DEFAULT_SAMPLING, Sampling, check_sampling
from shepherd.session import RawPrompt, Session


class RequestBuilder:
    """Prepares sessions for one engine. Used from one event loop; text is made in its thread."""

    def __init__(
        self,
        engine: Engine,
        prompts: PromptBuilder,
        style: OutputStyle,
        text: threads.TextThread,
        sampling: Sampling,
        name: str,
    ) -> None:
        """`sampling` has the settings; errors call the model `name`."""
        self._name = name
        self._settings = sampling
        recommended = recommended_sampling(engine.model.metadata).over(DEFAULT_SAMPLING)
        self.defaults = check_sampling(sampling.over(recommended))
        """What counts where a request says nothing; complete."""
        self._text = text
        self._prompts = prompts
        self._style = style
        self._vocab = vocab = engine.model.vocab
        self._files = engine.model.files
        self._images = engine.images
        self._constrainer = Constrainer(style, free_calls=engine.settings.check_calls)
        self.checks_calls = self._constrainer.checks_calls
        """Whether the tools' schemas are enforced while the model writes a call."""
        self._context_size = engine.context.size
        self._limit = LengthLimit(vocab, self._context_size)
        self._grammars = GrammarCompiler(lambda: text.run(lambda: vocab.token_bytes))
        self._thinking_tokens = engine.settings.max_thinking_tokens
        self.sessions = sessions.SessionMemory()
        """What is known of the sessions between requests, as which of them were warned."""

    async def build(self, session: Session, *, thinking: bool | None) -> Request:
        """The request of a session; raises a ShepherdError that says what is wrong with it."""
        self._files.check()
        session = sessions.with_thinking(session, thinking=thinking)
        sessions.check_continuable(session)
        if self._images is None:  # the model does not see
            refuse_images(session.messages, self._name)
        sampling = check_sampling(session.sampling.over(self.defaults))
        conversation = self._conversation(session)
        images = await self._prepared_images(session, conversation)
        # one visit of the text thread: each costs as much as a token of a small model
        request, constraint = await self._text.run(
            self._prepare, session, conversation, sampling, images
        )
        tenant, shared = current_tenant(), 0
        if tenant.name and tenant.shares_prompts and conversation is not None:
            shared = await self._text.run(self._prompts.head, conversation, request.prompt.tokens)
        compiled = await self._compiled(constraint)
        return replace(request, constraint=compiled, tenant=tenant, shared=shared)

    def rewinds(self, request: Request) -> bool:
        """Whether a call that goes wrong in the answer can be taken back and written again."""
        held = request.constraint
        is_free = held is None or bool(held.constraint.trigger)
        is_counted = request.sampling.logprobs is None
        return self._constrainer.rewinds and bool(request.tools) and is_free and is_counted

    async def rewound(
        self, request: Request, generated: Sequence[int], answer: Answer
    ) -> Request | None:
        """The request that goes on with a call behind what the answer keeps; None if none can."""
        constraint = await self._compiled(self._constrainer.again(request.tools))
        if constraint is None:
            return None
        kept, separator = answer.kept or 0, answer.separator
        tokens = await self._text.run(self._beginning, generated, kept, separator)
        prompt = replace(request.prompt, tokens=[*request.prompt.tokens, *tokens])
        return replace(request, prompt=prompt, constraint=constraint, thought=None)

    def _beginning(self, generated: Sequence[int], kept: int, separator: str) -> list[int]:
        """The tokens of so many characters of an answer, and of what follows. Text thread only."""
        data = b"".join(map(self._vocab.piece, generated))
        text = data.decode("utf-8", "replace")[:kept].encode()
        ends = accumulate(len(self._vocab.piece(token)) for token in generated)
        inside = [end for end in ends if end <= len(text)]
        tokens = list(generated[: len(inside)])
        ending = text[inside[-1] if inside else 0 :] + separator.encode()
        return tokens + (guard.forced_tokens(self._vocab, tokens, ending) if ending else [])

    async def count_message(self, message: messages.Message) -> int:
        """The tokens of a message, exactly."""
        if self._images is None or not message.images:
            return await self._text.run(self._prompts.count_message, message)
        prepared = [await self._images.prepare(image) for image in message.images]
        text_tokens = await self._text.run(self._prompts.count_message, replace(message, images=()))
        return text_tokens + sum(len(image.tokens) for image in prepared)

    async def count_session(self, session: Session, *, thinking: bool | None) -> int:
        """The tokens of the session's whole prompt, exactly."""
        session = sessions.with_thinking(session, thinking=thinking)
        conversation = self._conversation(session)
        images = await self._prepared_images(session, conversation)
        prompt = await self._text.run(self._prompt, session, conversation, images)
        return len(prompt.tokens)

    def _conversation(self, session: Session) -> Conversation | None:
        """The session at this moment; None if a raw prompt replaces its messages."""
        if session.raw_prompt is not None:
            return None
        return self.sessions.conversation(session, sees=self._images is not None)

    async def _prepared_images(
        self, session: Session, conversation: Conversation | None
    ) -> PromptImages:
        """The images of the prompt with their tokens, by their marks; raises ImageError."""
        images = raw_images(session) if conversation is None else conversation.images
        if not images:
            return {}
        if self._images is None:
            raise cannot_see(self._name)
        # Those that an earlier model may have seen need not be readable for this one.
        earlier = [] if conversation is None else earlier_images(session.messages)
        return await self._images.prepare_all(images, earlier)

    def _prepare(
        self,
        session: Session,
        conversation: Conversation | None,
        sampling: Sampling,
        images: PromptImages,
    ) -> tuple[Request, Constraint | None]:
        """Check, render and tokenize a session; its constraint is not compiled yet.

        Text thread only.
        """
        self._limit.check_session(session)
        if sampling.logit_bias or sampling.ignore_eos:
            sampling = resolve_biases(sampling, self._vocab)
        prompt = self._prompt(session, conversation, images)
        sessions.check_prompt_size(len(prompt.tokens), self._context_size)
        constraint = self._constrainer.constraint(session, prompt.text_tail)
        raw = session.raw_prompt
        own = session.sampling.over(self._settings)  # without what the model's file recommends
        request = Request(
            prompt,
            sampling,
            list(session.callable_tools),
            raw=raw is not None,
            measured=isinstance(raw, RawPrompt) and raw.measured,
            thought=self._thought(session, prompt),
            continued=sessions.continued_text(session),
            images=tuple(images.values()),
            repeatable=own.seed is not None or own.temperature == 0 or own.top_k == 1,
            session=session.id,
        )
        return request, constraint

    def _thought(self, session: Session, prompt: Prompt) -> guard.ThoughtBudget | None:
        """The limit of the reasoning; None for a raw prompt, whose text has no markers."""
        if session.raw_prompt is not None:
            return None
        tokens = session.thinking_budget
        # A template that reads the effort tells the model of it: no limit is needed.
        if tokens is None and "reasoning_effort" not in self._prompts.source:
            tokens = guard.EFFORT_TOKENS.get(session.thinking_effort, self._thinking_tokens or None)
        return guard.thought_budget(tokens, self._style.think, prompt.text_tail)

    def _prompt(
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
        closes = self._style.think if session.thinking_budget == 0 else ()
        return self._prompts.build(conversation, check, tokens, closes)

    async def _compiled(self, constraint: Constraint | None) -> CompiledConstraint | None:
        """The constraint with its grammar; None if that fails and need not be enforced."""
        if constraint is None:
            return None
        is_own = not constraint.foreign  # all of it was made from schemas
        try:
            matcher = await self._grammars.matcher(constraint.grammar, own=is_own)
        except errors.InvalidRequestError:
            if constraint.enforced:
                raise
            return None
        return CompiledConstraint(constraint, matcher)
