"""A backend that plays a script: for demonstrations, for tests of clients, for bug reports."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import mul
from time import perf_counter

from msgspec import Struct, field, structs

from shepherd import errors, events, messages
from shepherd.backends import embedding, script
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled, refuse_images
from shepherd.backends.output.markers import StopMatcher
from shepherd.session import Infill, RawPrompt, Session

MESSAGE_OVERHEAD = 4
"""Tokens per message in addition to its text; a word or a symbol is one token."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_FENCE = re.compile(r"(```.*?(?:```\n?|\Z))", re.DOTALL)


class ScriptedPrefilled(Prefilled):
    """One generation of the script, claimed by a request."""

    def __init__(
        self, backend: "ScriptedBackend", prompt_tokens: int, stop: Sequence[str] = ()
    ) -> None:
        self.backend = backend
        self.prompt_tokens = prompt_tokens
        self.stop = stop
        self.cached_tokens = 0

    def release(self) -> None:
        self.backend.active -= 1


class _Playback(Struct):
    """The output of one generation so far."""

    callback: events.EventCallback
    stop: StopMatcher
    max_tokens: int = 0
    chunk: int = 1_000_000
    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[messages.ToolCall] = field(default_factory=list[messages.ToolCall])
    problems: list[str] = field(default_factory=list[str])
    scripted_reason: events.FinishReason | None = None
    cancelled: bool = False
    is_full: bool = False

    def send(self, event: events.Event) -> None:
        """Give the event to the callback, which cancels the answer if it returns False."""
        if not self.cancelled:
            self.cancelled = not self.callback(event)

    @property
    def ended(self) -> bool:
        """Whether nothing more is played."""
        return self.cancelled or self.is_full or self.stop.hit is not None

    @property
    def tokens(self) -> int:
        """How many tokens the text and the reasoning have so far."""
        return count_tokens("".join(self.content)) + count_tokens("".join(self.reasoning))

    def say(self, event: events.TextEvent) -> None:
        """Send a piece of text, up to a stop string or the last token."""
        if not isinstance(event, events.Thinking):  # reasoning has no stop strings
            event = structs.replace(event, text=self.stop.feed(event.text))
        self._add(event)

    def finish_text(self) -> None:
        """Send what was held back because it could have begun a stop string."""
        self._add(events.Text(self.stop.finish()))

    def _add(self, event: events.TextEvent) -> None:
        """Send a piece as far as the limit of tokens allows, and add it to the message."""
        pieces = self.reasoning if isinstance(event, events.Thinking) else self.content
        if self.max_tokens:
            event = structs.replace(event, text=self._cut(event.text, "".join(pieces)))
        if event.text:
            pieces.append(event.text)
            self.send(event)

    def _cut(self, text: str, earlier: str) -> str:
        """As much of `text` as the limit allows after the `earlier` text of its kind."""
        # Counted together, because the first word may go on from the earlier text.
        max_tokens = self.max_tokens - self.tokens + count_tokens(earlier)
        tokens = list(_TOKEN.finditer(earlier + text))
        if len(tokens) <= max_tokens:
            return text
        self.is_full = True
        return text[: max(0, tokens[max_tokens].start() - len(earlier))]

    def finish_reason(self) -> events.FinishReason:
        """Why the answer has ended: what really happened counts more than the script."""
        if self.cancelled:
            return events.FinishReason.CANCELLED
        if self.is_full:
            return events.FinishReason.LENGTH
        usual = events.FinishReason.TOOL_CALLS if self.calls else events.FinishReason.STOP
        return self.scripted_reason or usual


class ScriptedBackend(Backend):
    """Each request plays the next generation; after the last the script starts again.

    `active` is the number of requests that hold a generation now. `requests` are the sessions'
    message counts, in order.
    """

    def __init__(self, script: script.Script, name: str = "script") -> None:
        self.script = script
        self.name = name
        self.active = 0
        self.requests: list[int] = []
        self._played = 0
        """How many generations were played, or refused because the context was full."""

    @property
    def info(self) -> ModelInfo:
        size, vision = self.script.context_size, self.script.vision
        return ModelInfo(
            id=self.name,
            backend="scripted",
            context_size=size,
            vision=vision,
            raw_prompts=True,
            embedder=ScriptedEmbedder(size),
        )

    async def prefill_session(self, session: Session, callback: events.EventCallback) -> Prefilled:
        if self.script.vision is False:
            refuse_images(session.messages, self.name)
        tokens = await self.count_session_tokens(session)
        if tokens >= self.script.context_size:
            raise errors.ContextFullError(
                f"request ({tokens} tokens) exceeds the available context size "
                f"({self.script.context_size} tokens)",
                tokens - self.script.context_size + 1,
                tokens,
            )
        steps = self._next_steps()
        if steps and isinstance(steps[0], script.Full):  # the prompt itself does not fit
            self._played += 1
            over = steps[0].tokens_over
            raise errors.ContextFullError(f"the context is full by {over} tokens", over)
        self.active += 1
        self.requests.append(len(session.messages))
        return ScriptedPrefilled(self, tokens, session.sampling.stop or ())

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        stop = prefilled.stop if isinstance(prefilled, ScriptedPrefilled) else ()
        playback = _Playback(callback, StopMatcher(stop), max_tokens)
        started = perf_counter()
        steps = self._next_steps()
        self._played += 1
        for step in steps:
            await self._play(step, playback)
            if playback.ended:
                break
        playback.finish_text()
        content, reasoning = "".join(playback.content), "".join(playback.reasoning)
        message = messages.Message.assistant(content, reasoning, tuple(playback.calls))
        completion = playback.tokens
        stats = events.Stats(
            prompt_tokens=prefilled.prompt_tokens,
            completion_tokens=completion,
            decode_seconds=perf_counter() - started,
            context_used=prefilled.prompt_tokens + completion,
            context_size=self.script.context_size,
        )
        for event in (stats, events.Stop(playback.finish_reason()), *playback.calls):
            playback.send(event)
        reason = playback.finish_reason()  # again: one of these events may have cancelled it
        problems, stop_string = tuple(playback.problems), playback.stop.hit or ""
        return Generation(message, reason, stats, problems, stop_string=stop_string)

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        calls = "".join(c.name + c.arguments_json for c in message.tool_calls)
        return count_tokens(message.plain_text + message.reasoning + calls) + MESSAGE_OVERHEAD

    async def count_session_tokens(self, session: Session) -> int:
        tokens = await super().count_session_tokens(session)
        return tokens + count_tokens(session.system_message) + _count_raw(session.raw_prompt)

    async def aclose(self) -> None:
        """There is nothing to free."""

    def _next_steps(self) -> tuple[script.Step, ...]:
        """The generation that comes next; after the last one, the first."""
        generations = self.script.generations
        return generations[self._played % len(generations)] if generations else ()

    async def _play(self, step: script.Step, playback: _Playback) -> None:
        """Do one step of the script; raises the error that the step stands for."""
        match step:
            case script.Say():
                await self._say(step, playback)
            case script.Call(name=name, arguments=arguments):
                call_id = f"call_{self._played}_{len(playback.calls)}"
                playback.calls.append(messages.ToolCall(call_id, name, arguments))
            case script.Delay(seconds=seconds):
                await asyncio.sleep(seconds)
            case script.Chunk(characters=characters):
                playback.chunk = characters
            case script.Full(tokens_over=over):
                raise errors.ContextFullError(f"the context is full by {over} tokens", over)
            case script.Problem(why=why):
                playback.problems.append(why)
            case script.Fail(message=message):
                raise errors.BackendError(message)
            case script.Finish(reason=reason):
                playback.scripted_reason = reason

    async def _say(self, step: script.Say, playback: _Playback) -> None:
        """Send the text in pieces of the script's size."""
        for event in _events(step):
            for start in range(0, len(event.text), playback.chunk):
                piece = event.text[start : start + playback.chunk]
                playback.say(structs.replace(event, text=piece))
                if playback.ended:
                    return
                await asyncio.sleep(0)  # other requests play meanwhile


def count_tokens(text: str) -> int:
    """The scripted tokenizer: words and symbols."""
    return len(_TOKEN.findall(text))


def _count_raw(prompt: RawPrompt | Infill | None) -> int:
    """The tokens of a raw prompt, whose parts may be numbers of tokens; 0 without one."""
    if prompt is None:
        return 0
    if isinstance(prompt, Infill):
        return count_tokens(f"{prompt.prefix} {prompt.start} {prompt.suffix}")
    return sum(count_tokens(part) if isinstance(part, str) else 1 for part in prompt.parts)


def _events(step: script.Say) -> Iterator[events.TextEvent]:
    """The text as reasoning, or as content with its code blocks apart."""
    if step.thinking:
        yield events.Thinking(step.text)
        return
    for part in filter(None, _FENCE.split(step.text)):
        yield events.CodeBlock(part) if part.startswith("```") else events.Text(part)


WIDTH = 64
"""The numbers in a vector."""


class ScriptedEmbedder(embedding.Embedder):
    """Makes the same vector of the same text each time; `context_size` is in words."""

    def __init__(self, context_size: int) -> None:
        self._size = context_size

    async def embed(self, request: embedding.EmbeddingInput) -> embedding.Embeddings:
        inputs = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        vectors = [embedding.shortened(_vector(words), request.dimensions) for words in inputs]
        return embedding.Embeddings(vectors, sum(map(len, inputs)))

    async def rank(self, query: str, documents: Sequence[str]) -> embedding.Ranking:
        pairs = self._words_of_pairs(embedding.RankingInput(query, documents))
        query_words = list(_words((query,)))
        query_vector = _vector(query_words)
        vectors = [_vector(pair[len(query_words) :]) for pair in pairs]  # of the documents alone
        scores = [sum(map(mul, query_vector, vector)) for vector in vectors]
        return embedding.Ranking(scores, sum(map(len, pairs)))

    async def count(self, request: embedding.EmbeddingInput | embedding.RankingInput) -> int:
        """The words that the model would read; this backend counts a word as a token."""
        if isinstance(request, embedding.RankingInput):
            return sum(map(len, self._words_of_pairs(request)))
        words = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        return sum(map(len, words))

    def _words_of_pairs(self, request: embedding.RankingInput) -> list[list[str]]:
        """For each document, the words of the query and its own, which a model reads together."""
        return [self._words((request.query, " ", text)) for text in request.documents]

    def _words(self, parts: embedding.Parts, *, truncate: bool = False) -> list[str]:
        """As many words of the input as fit; raises ContextFullError unless it may be cut."""
        words = list(_words(parts))
        if len(words) > self._size and not truncate:
            raise errors.ContextFullError(
                f"input ({len(words)} tokens) exceeds the available context size "
                f"({self._size} tokens)",
                len(words) - self._size,
                len(words),
            )
        return words[: self._size]


def _words(parts: embedding.Parts) -> Iterable[str]:
    """The words of texts in lower case; a token's number is a word."""
    for part in parts:
        yield from _TOKEN.findall(part.lower()) if isinstance(part, str) else (str(part),)


def _vector(words: Iterable[str]) -> Sequence[float]:
    """A vector of length 1: each word adds 1 or -1 to one of its numbers, both by its hash."""
    vector = [0.0] * WIDTH
    for word in words:
        place, sign = blake2b(word.encode("utf-8", "replace"), digest_size=2).digest()
        vector[place % WIDTH] += 1.0 if sign % 2 else -1.0
    if not any(vector):
        vector[0] = 1.0  # zeros have no direction
    return embedding.normalised(vector)
