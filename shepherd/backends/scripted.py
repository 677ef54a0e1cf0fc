"""A backend that plays a script: for demonstrations, for tests of clients, for bug reports."""

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from operator import mul
from time import perf_counter

from msgspec import Struct, field
from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.backends import embedding
from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled, refuse_images
from shepherd.backends.output.markers import StopMatcher
from shepherd.backends.script import (
    Call,
    Chunk,
    Delay,
    Fail,
    Finish,
    Full,
    Problem,
    Say,
    Script,
    Step,
)
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
    finish: events.FinishReason | None = None
    cancelled: bool = False
    is_full: bool = False

    def send(self, event: events.Event) -> None:
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
        thinking = isinstance(event, events.Thinking)
        self._add(event if thinking else replace(event, text=self.stop.feed(event.text)))

    def finish_text(self) -> None:
        """Send what was held back because it could have begun a stop string."""
        self._add(events.Text(self.stop.finish()))

    def _add(self, event: events.TextEvent) -> None:
        spoken = self.reasoning if isinstance(event, events.Thinking) else self.content
        if self.max_tokens:
            event = replace(event, text=self._cut(event.text, "".join(spoken)))
        if event.text:
            spoken.append(event.text)
            self.send(event)

    def _cut(self, text: str, earlier: str) -> str:
        """As much of `text` as the limit allows after the `earlier` text of its kind."""
        room = self.max_tokens - self.tokens + count_tokens(earlier)
        tokens = list(_TOKEN.finditer(earlier + text))
        if len(tokens) <= room:
            return text
        self.is_full = True
        return text[: max(0, tokens[room].start() - len(earlier))]

    def message(self) -> messages.Message:
        calls = tuple(self.calls)
        return messages.Message.assistant("".join(self.content), "".join(self.reasoning), calls)

    def finish_reason(self) -> events.FinishReason:
        if self.cancelled:
            return events.FinishReason.CANCELLED
        if self.is_full:
            return events.FinishReason.LENGTH
        return self.finish or (
            events.FinishReason.TOOL_CALLS if self.calls else events.FinishReason.STOP
        )


class ScriptedBackend(Backend):
    """Each request plays the next generation; after the last the script starts again.

    `active` is the number of requests that hold a generation now. `requests` are the sessions'
    message counts, in order.
    """

    def __init__(self, script: Script, name: str = "script") -> None:
        self.script = script
        self.name = name
        self.active = 0
        self.requests: list[int] = []
        self._next = 0

    @property
    def info(self) -> ModelInfo:
        size, vision = self.script.context_size, self.script.vision
        return ModelInfo(
            self.name,
            "scripted",
            size,
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
        full = self._peek()
        if full is not None:
            self._next += 1
            raise errors.ContextFullError(f"the context is full by {full} tokens", full)
        self.active += 1
        self.requests.append(len(session.messages))
        return ScriptedPrefilled(self, tokens, session.sampling.stop or ())

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: events.EventCallback, max_tokens: int = 0
    ) -> Generation:
        stop = prefilled.stop if isinstance(prefilled, ScriptedPrefilled) else ()
        playback = _Playback(callback, StopMatcher(stop), max_tokens)
        started = perf_counter()
        for step in self._take():
            await self._play(step, playback)
            if playback.ended:
                break
        playback.finish_text()
        message, completion = playback.message(), playback.tokens
        stats = events.Stats(
            prompt_tokens=prefilled.prompt_tokens,
            completion_tokens=completion,
            decode_seconds=perf_counter() - started,
            context_used=prefilled.prompt_tokens + completion,
            context_size=self.script.context_size,
        )
        reason = playback.finish_reason()
        playback.send(stats)
        playback.send(events.Stop(reason))
        for call in playback.calls:
            playback.send(call)
        problems = tuple(playback.problems)
        reason, stop_string = playback.finish_reason(), playback.stop.hit or ""
        return Generation(message, reason, stats, problems, stop_string=stop_string)

    async def count_message_tokens(self, session: Session, message: messages.Message) -> int:
        calls = "".join(c.name + c.arguments_json for c in message.tool_calls)
        return count_tokens(message.plain_text + message.reasoning + calls) + MESSAGE_OVERHEAD

    async def count_session_tokens(self, session: Session) -> int:
        tokens = await super().count_session_tokens(session)
        return tokens + count_tokens(session.system_message) + _count_raw(session.raw_prompt)

    async def aclose(self) -> None:
        """There is nothing to free."""

    def _peek(self) -> int | None:
        """The overflow at the beginning of the next generation, if any."""
        steps = self._generation()
        return steps[0].tokens_over if steps and isinstance(steps[0], Full) else None

    def _generation(self) -> tuple[Step, ...]:
        generations = self.script.generations
        return generations[self._next % len(generations)] if generations else ()

    def _take(self) -> tuple[Step, ...]:
        steps = self._generation()
        self._next += 1
        return steps

    async def _play(self, step: Step, playback: _Playback) -> None:
        match step:
            case Say():
                await self._say(step, playback)
            case Call(name=name, arguments=arguments):
                call_id = f"call_{self._next}_{len(playback.calls)}"
                playback.calls.append(messages.ToolCall(call_id, name, arguments))
            case Delay(seconds=seconds):
                await asyncio.sleep(seconds)
            case Chunk(characters=characters):
                playback.chunk = characters
            case Full(tokens_over=over):
                raise errors.ContextFullError(f"the context is full by {over} tokens", over)
            case Problem(why=why):
                playback.problems.append(why)
            case Fail(message=message):
                raise errors.BackendError(message)
            case Finish(reason=reason):
                playback.finish = reason

    async def _say(self, step: Say, playback: _Playback) -> None:
        for event in _events(step):
            for start in range(0, len(event.text), playback.chunk):
                piece = event.text[start : start + playback.chunk]
                playback.say(replace(event, text=piece))
                if playback.ended:
                    return
                await asyncio.sleep(0)


def count_tokens(text: str) -> int:
    """The scripted tokenizer: words and symbols."""
    return len(_TOKEN.findall(text))


def _count_raw(prompt: RawPrompt | Infill | None) -> int:
    if prompt is None:
        return 0
    if isinstance(prompt, Infill):
        return count_tokens(f"{prompt.prefix} {prompt.start} {prompt.suffix}")
    return sum(count_tokens(part) if isinstance(part, str) else 1 for part in prompt.parts)


def _events(step: Say) -> Iterator[events.TextEvent]:
    if step.thinking:
        yield events.Thinking(step.text)
        return
    for part in _FENCE.split(step.text):
        if part:
            fenced = part.startswith("```")
            yield events.CodeBlock(part) if fenced else events.Text(part)


WIDTH = 64
"""The numbers in a vector."""


class ScriptedEmbedder(embedding.Embedder):
    """Makes the same vector of the same text each time; `context_size` is in words."""

    def __init__(self, context_size: int) -> None:
        self._size = context_size

    async def embed(self, request: embedding.EmbeddingInput) -> embedding.Embeddings:
        words = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        vectors = [embedding.shortened(_vector(some), request.dimensions) for some in words]
        return embedding.Embeddings(vectors, sum(map(len, words)))

    async def rank(self, query: str, documents: Sequence[str]) -> embedding.Ranking:
        pairs = self._pairs(embedding.RankingInput(query, documents))
        start = len(list(_words((query,))))
        vector = _vector(_words((query,)))
        scores = [sum(map(mul, vector, _vector(pair[start:]))) for pair in pairs]
        return embedding.Ranking(scores, sum(map(len, pairs)))

    async def count(self, request: embedding.EmbeddingInput | embedding.RankingInput) -> int:
        if isinstance(request, embedding.RankingInput):
            return sum(map(len, self._pairs(request)))
        words = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        return sum(map(len, words))

    def _pairs(self, request: embedding.RankingInput) -> list[list[str]]:
        return [self._words((request.query, " ", text)) for text in request.documents]

    def _words(self, parts: embedding.Parts, *, truncate: bool = False) -> list[str]:
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
    for part in parts:
        yield from _TOKEN.findall(part.lower()) if isinstance(part, str) else (str(part),)


def _vector(words: Iterable[str]) -> Sequence[float]:
    vector = [0.0] * WIDTH
    for word in words:
        digest = blake2b(word.encode("utf-8", "replace"), digest_size=2).digest()
        vector[digest[0] % WIDTH] += 1.0 if digest[1] % 2 else -1.0
    return embedding.normalised(vector if any(vector) else [1.0, *vector[1:]])
