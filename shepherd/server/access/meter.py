"""Counts what the keys use, and refuses what is over their limits."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct, field

from shepherd import errors, events
from shepherd.backends.base import Backend
from shepherd.server.access import shared
from shepherd.server.access.key import ApiKey
from shepherd.server.access.usage import Usage, UsageStore, today
from shepherd.server.generation import NO_TOKENS
from shepherd.server.record import current_key, current_record
from shepherd.session import Session

_NO_KNOWN_LIMIT = 2**62
"""The tokens of an answer whose model has a context of unknown size."""


class Work(Struct):
    """The generations of one request: `answers` to the first prompt, one to each of the others.

    Without a limit, `max_tokens` becomes the one that the key allows. `stats` are noted at the end.
    `requests` is how many requests it counts as in the usage.
    """

    prompts: Sequence[Session]
    answers: int
    max_tokens: int
    shortens: bool = False
    stats: Sequence[events.Stats] | None = None
    requests: int = 1

    def total(self) -> events.Stats:
        """The measures of all of it: the answers share the first prompt.

        The cost is that of the answers whose price is known.
        """
        stats = self.stats or ()
        costs = [answer.cost for answer in stats if answer.cost is not None]
        prompts = (*stats[:1], *stats[self.answers :])
        return events.Stats(
            prompt_tokens=sum(prompt.prompt_tokens for prompt in prompts),
            cached_tokens=sum(prompt.cached_tokens for prompt in prompts),
            completion_tokens=sum(answer.completion_tokens for answer in stats),
            prefill_seconds=sum(prompt.prefill_seconds for prompt in prompts),
            decode_seconds=sum(answer.decode_seconds for answer in stats),
            context_used=max((answer.context_used for answer in stats), default=0),
            drafted_tokens=sum(answer.drafted_tokens for answer in stats),
            accepted_tokens=sum(answer.accepted_tokens for answer in stats),
            cost=sum(costs) if costs else None,
        )


class ReadTokens(Struct):
    """How many tokens of inputs were read."""

    tokens: int = 0


class Meter(Struct, frozen=True, eq=False):
    """The use of all keys; without a store and other limits, it is forgotten at the end."""

    store: UsageStore | None = None
    limits: shared.SharedLimits = field(default_factory=shared.limits_in_memory)

    def settle(self, key: ApiKey, reserved: int, tokens: int, used: Usage) -> None:
        """Replace held tokens by those that count against the limits, and keep the usage."""
        self.limits.settle_tokens(key, reserved, tokens)
        if self.store is not None:
            self.store.add(used)

    async def reserve(self, key: ApiKey, needed: int, wished: int) -> int:
        """Hold tokens of the key, and count the request unless it is; see `reserve_tokens`."""
        record, requests = current_record(), 0
        if record is not None and record.is_uncounted:
            record.is_uncounted, requests = False, 1
        return await self.limits.reserve_tokens(key, needed, wished, requests=requests)

    def budget(self) -> "Budget":
        """The tokens of the request that is being served."""
        return Budget(self)

    async def check_tokens(self) -> None:
        """Raise ApiError if the key of the request has no tokens left."""
        key = current_key()
        if key is not None and key.limits.counts_tokens:
            # only a reservation looks at the limits, so one token is held for a moment
            self.limits.settle_tokens(key, await self.reserve(key, 1, 1), 0)

    @asynccontextmanager
    async def reading(
        self, model: str, count: Callable[[], Awaitable[int]]
    ) -> AsyncGenerator["ReadTokens"]:
        """Hold the tokens of inputs that are only read, and count those that were read.

        `count` gives them before the work. Raises ApiError if the key of the request has not so
        many left.
        """
        read, key = ReadTokens(), current_key()
        if key is None:
            yield read
            return
        reserved = 0
        if key.limits.counts_tokens:
            tokens = await count()
            reserved = await self.reserve(key, tokens, tokens)
        try:
            yield read
        except asyncio.CancelledError:
            read.tokens = read.tokens or reserved  # they may have been read before the client left
            raise
        finally:
            used = Usage(today(), key.name, model, prompt_tokens=read.tokens)
            self.settle(key, reserved, read.tokens, used)


class Budget(Struct, eq=False):
    """The tokens that one piece of work holds of the key of its request, which pays for it.

    Without a key it has no limit, and nothing is counted.
    """

    meter: Meter
    _held_tokens: int = 0
    _wished_tokens: int = 0
    _limited_by: ApiKey | None = None
    _backend: Backend | None = None

    @asynccontextmanager
    async def measured(self, backend: Backend, work: Work) -> AsyncGenerator[None]:
        """Hold the tokens that generating may take, and count those that it took.

        Raises ApiError if the key of the request has not so many left.
        """
        key = current_key()
        if key is None:
            yield
            return
        prompt = 0  # tokens, counted only if a limit needs them
        if key.limits.counts_tokens:
            prompt = await _count_prompts(backend, work)
            self._wished_tokens = work.max_tokens
            self._held_tokens = await self._reserve(key, backend.info.context_size, prompt, work)
            self._limited_by, self._backend = key, backend
        cancelled = False
        try:
            yield
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            total = work.total()
            read, written = total.prompt_tokens, total.completion_tokens
            counts = work.requests, read, total.cached_tokens, written, total.cost
            used = Usage(today(), key.name, backend.info.id, *counts)
            tokens = read + written
            if work.stats is None and cancelled:
                tokens = prompt  # it may have been read before the client left
            self.meter.settle(key, self._held_tokens, tokens, used)

    async def next_round(self, session: Session, done: events.Stats) -> int:
        """Hold the tokens of a further round after those in `done`.

        Returns how many it may generate, 0 for no limit. Raises ApiError if the key has not enough
        left for the prompt and one token.
        """
        key, backend = self._limited_by, self._backend
        if key is None or backend is None:
            return 0
        prompt = await backend.count_session_tokens(session)
        answer = _answer_room(backend.info.context_size, prompt)
        if self._wished_tokens:
            answer = min(answer, self._wished_tokens - done.completion_tokens)
        used = done.prompt_tokens + done.completion_tokens
        left = self._held_tokens - used  # what earlier rounds held and have not used
        needed = max(0, prompt + 1 - left)
        wished = max(needed, prompt + answer - left)
        self._held_tokens += await self.meter.reserve(key, needed, wished)
        return self._held_tokens - used - prompt

    def give_back(self, done: events.Stats) -> None:
        """Release the held tokens that the rounds in `done` have not used."""
        unused = self._held_tokens - done.prompt_tokens - done.completion_tokens
        if self._limited_by is not None and unused > 0:
            self._held_tokens -= unused
            self.meter.limits.settle_tokens(self._limited_by, unused, 0)

    async def _reserve(self, key: ApiKey, context: int, prompt: int, work: Work) -> int:
        """Hold the tokens of all prompts and answers.

        With a limit for an answer, all of them must be left. Without one, the answers share what
        is left, and get that as their limit.
        """
        answers = work.answers + len(work.prompts) - 1  # one for each prompt after the first
        if work.max_tokens == NO_TOKENS:
            return await self.meter.reserve(key, prompt, prompt)
        room = _answer_room(context, prompt)
        if work.max_tokens:
            needed = prompt + answers * min(work.max_tokens, room)
            return await self.meter.reserve(key, needed, needed)
        needed, wished = prompt + answers, prompt + answers * room
        reserved = await self.meter.reserve(key, needed, wished)
        work.max_tokens = (reserved - prompt) // answers
        return reserved


def _answer_room(context: int, prompt: int) -> int:
    """The tokens that an answer has room for, by the sizes of the context and of the prompt.

    A prompt that is too long gets one: the model refuses it, with a better error than a limit.
    """
    return max(1, context - prompt) if context else _NO_KNOWN_LIMIT


async def _count_prompts(backend: Backend, work: Work) -> int:
    """The tokens of all prompts; one that will be shortened fills the context."""
    total = 0
    for session in work.prompts:
        try:
            total += await backend.count_session_tokens(session)
        except errors.ContextFullError:
            if not work.shortens:
                raise
            total += backend.info.context_size
    return total
