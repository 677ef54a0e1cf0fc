"""Vectors from any of the upstreams."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from shepherd.affinity import Prefix
from shepherd.backends.base import Backend
from shepherd.backends.embedding import (
    Embedder,
    EmbeddingInput,
    Embeddings,
    Ranking,
    RankingInput,
)
from shepherd.backends.upstreams.group import UpstreamGroup
from shepherd.backends.upstreams.route import UpstreamRoute
from shepherd.errors import InvalidRequestError
from shepherd.events import ignore_events

T = TypeVar("T")


class UpstreamsEmbedder(Embedder):
    """Sends each request to the least busy upstream, and elsewhere if that one fails."""

    def __init__(self, group: UpstreamGroup) -> None:
        self._group = group

    async def embed(self, request: EmbeddingInput) -> Embeddings:
        return await self._run(lambda embedder: embedder.embed(request))

    async def rank(self, query: str, documents: Sequence[str]) -> Ranking:
        return await self._run(lambda embedder: embedder.rank(query, documents))

    async def count(self, request: EmbeddingInput | RankingInput) -> int:
        return await self._run(lambda embedder: embedder.count(request))

    async def _run(self, work: Callable[[Embedder], Awaitable[T]]) -> T:
        route = UpstreamRoute(self._group, Prefix(key=random.getrandbits(64)))
        try:
            return await route.run(lambda backend: work(_embedder(backend)), ignore_events)
        finally:
            route.close()


def _embedder(backend: Backend) -> Embedder:
    if backend.embedder is None:
        raise InvalidRequestError(f"{backend.info.id} makes no embeddings.", "model")
    return backend.embedder
