"""Counts what the keys use, and refuses what is over their limits."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from shepherd.backends.base import Backend
from shepherd.errors import ContextFullError
from shepherd.events import Stats
from shepherd.server.access.key import ApiKey
from shepherd.server.access.limits import Limits, LocalLimits
from shepherd.server.access.usage import Usage, UsageStore
from shepherd.server.generation import NO_TOKENS
from shepherd.server.record import current_key
from shepherd.session import Session

_ALL = 2**62


@dataclass(slots=True)
class Work:
    """The generations of one request: `answers` to the first prompt, one to each of the others.

    Without a limit, `max_tokens` becomes the one that the key allows. `stats` are noted at the end.
    `reserved` tokens are held meanwhile. If the key is limited, `round_limit` is for the further
    rounds of an agent, as `RoundLimit`, and `give_back` releases the tokens that its rounds so far
    have not used. `requests` is how many requests it counts as in the usage.
    """

    prompts: Sequence[Session]
    answers: int
    max_tokens: int
    shortens: bool = False
    stats: Sequence[Stats] | None = None
    reserved: int = 0
    round_limit: Callable[[Session, Stats], Awaitable[int]] | None = None
    give_back: Callable[[Stats], None] | None = None
    requests: int = 1

    def used(self, model: str, key: str) -> Usage:
        """The usage; the first prompt counts once."""
        stats = self.stats or ()
        prompts = (*stats[:1], *stats[self.answers :])
        return Usage(
            datetime.now(UTC).date().isoformat(),
            key,
            model,
            self.requests,
            prompt_tokens=sum(part.prompt_tokens for part in prompts),
            cached_tokens=sum(part.cached_tokens for part in prompts),
            completion_tokens=sum(part.completion_tokens for part in stats),
        )


@dataclass(slots=True)
class ReadTokens:
    """How many tokens of inputs were read."""

    tokens: int = 0


class Meter:
    """The use of all keys; without a store, it is forgotten at the end."""

    def __init__(self, store: UsageStore | None = None, limits: Limits | None = None) -> None:
        self.store = store
        self._limits = limits or LocalLimits(store)

    async def count_request(self, key: ApiKey) -> None:
        """Count a request; raises ApiError if a limit is reached."""
        await self._limits.count_request(key)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """The state of the key's limits for the headers of a response."""
        return self._limits.headers(key)

    @asynccontextmanager
    async def measured(self, backend: Backend, work: Work) -> AsyncGenerator[None]:
        """Hold the tokens that generating may take, and count those that it took.

        Raises ApiError if the key of the request has not so many left. Does nothing without a key.
        """
        key = current_key()
        if key is None:
            yield
            return
        prompt = 0
        if key.limits.counts_tokens:
            prompt = await _count_prompts(backend, work)
            wished = work.max_tokens
            work.reserved = await self._reserve(key, backend.info.context_size, prompt, work)
            work.round_limit = partial(self._next_round, key, backend, work, wished)
            work.give_back = partial(self._give_back, key, work)
        cancelled = False
        try:
            yield
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            used = work.used(backend.info.id, key.name)
            tokens = used.prompt_tokens + used.completion_tokens
            if work.stats is None and cancelled:
                tokens = prompt
            self._limits.settle_tokens(key, work.reserved, tokens)
            if self.store is not None:
                self.store.add(used)

    async def _next_round(
        self,
        key: ApiKey,
        backend: Backend,
        work: Work,
        max_tokens: int,
        session: Session,
        done: Stats,
    ) -> int:
        """Hold the tokens of a further round; returns how many it may generate.

        Raises ApiError if the key has not enough left for the prompt and one token.
        """
        prompt = await backend.count_session_tokens(session)
        context = backend.info.context_size
        room = max(1, context - prompt) if context else _ALL
        answer = min(room, max_tokens - done.completion_tokens) if max_tokens else room
        left = work.reserved - done.prompt_tokens - done.completion_tokens
        needed = max(0, prompt + 1 - left)
        wished = max(needed, prompt + answer - left)
        work.reserved += await self._limits.reserve_tokens(key, needed, wished)
        return work.reserved - done.prompt_tokens - done.completion_tokens - prompt

    def _give_back(self, key: ApiKey, work: Work, done: Stats) -> None:
        """Release the held tokens that the rounds in `done` have not used."""
        unused = work.reserved - done.prompt_tokens - done.completion_tokens
        if unused > 0:
            work.reserved -= unused
            self._limits.settle_tokens(key, unused, 0)

    async def check_tokens(self) -> None:
        """Raise ApiError if the key of the request has no tokens left."""
        key = current_key()
        if key is not None and key.limits.counts_tokens:
            self._limits.settle_tokens(key, await self._limits.reserve_tokens(key, 1, 1), 0)

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
            reserved = await self._limits.reserve_tokens(key, tokens, tokens)
        try:
            yield read
        except asyncio.CancelledError:
            read.tokens = read.tokens or reserved
            raise
        finally:
            self._limits.settle_tokens(key, reserved, read.tokens)
            if self.store is not None:
                day = datetime.now(UTC).date().isoformat()
                self.store.add(Usage(day, key.name, model, prompt_tokens=read.tokens))

    async def _reserve(self, key: ApiKey, context: int, prompt: int, work: Work) -> int:
        answers = work.answers + len(work.prompts) - 1
        if work.max_tokens == NO_TOKENS:
            return await self._limits.reserve_tokens(key, prompt, prompt)
        room = max(1, context - prompt) if context else _ALL
        if work.max_tokens:
            needed = prompt + answers * min(work.max_tokens, room)
            return await self._limits.reserve_tokens(key, needed, needed)
        needed, wished = prompt + answers, prompt + answers * room
        reserved = await self._limits.reserve_tokens(key, needed, wished)
        work.max_tokens = (reserved - prompt) // answers
        return reserved


async def _count_prompts(backend: Backend, work: Work) -> int:
    """The tokens of all prompts; one that will be shortened fills the context."""
    total = 0
    for session in work.prompts:
        try:
            total += await backend.count_session_tokens(session)
        except ContextFullError:
            if not work.shortens:
                raise
            total += backend.info.context_size
    return total
