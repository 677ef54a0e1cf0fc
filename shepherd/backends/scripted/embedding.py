"""Vectors by the words of a text: equal words make similar vectors."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import mul

from shepherd.backends.embedding import (
    Embedder,
    EmbeddingInput,
    Embeddings,
    Parts,
    Ranking,
    RankingInput,
    normalised,
    shortened,
)
from shepherd.errors import ContextFullError

WIDTH = 64
"""The numbers in a vector."""

_WORD = re.compile(r"\w+|[^\w\s]")


class ScriptedEmbedder(Embedder):
    """Makes the same vector of the same text each time; `context_size` is in words."""

    def __init__(self, context_size: int) -> None:
        self._size = context_size

    async def embed(self, request: EmbeddingInput) -> Embeddings:
        words = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        vectors = [shortened(_vector(some), request.dimensions) for some in words]
        return Embeddings(vectors, sum(map(len, words)))

    async def rank(self, query: str, documents: Sequence[str]) -> Ranking:
        pairs = self._pairs(RankingInput(query, documents))
        start = len(list(_words((query,))))
        vector = _vector(_words((query,)))
        scores = [sum(map(mul, vector, _vector(pair[start:]))) for pair in pairs]
        return Ranking(scores, sum(map(len, pairs)))

    async def count(self, request: EmbeddingInput | RankingInput) -> int:
        if isinstance(request, RankingInput):
            return sum(map(len, self._pairs(request)))
        words = [self._words(parts, truncate=request.truncate) for parts in request.inputs]
        return sum(map(len, words))

    def _pairs(self, request: RankingInput) -> list[list[str]]:
        return [self._words((request.query, " ", text)) for text in request.documents]

    def _words(self, parts: Parts, *, truncate: bool = False) -> list[str]:
        words = list(_words(parts))
        if len(words) > self._size and not truncate:
            raise ContextFullError(
                f"input ({len(words)} tokens) exceeds the available context size "
                f"({self._size} tokens)",
                len(words) - self._size,
                len(words),
            )
        return words[: self._size]


def _words(parts: Parts) -> Iterable[str]:
    for part in parts:
        yield from _WORD.findall(part.lower()) if isinstance(part, str) else (str(part),)


def _vector(words: Iterable[str]) -> Sequence[float]:
    vector = [0.0] * WIDTH
    for word in words:
        digest = blake2b(word.encode("utf-8", "replace"), digest_size=2).digest()
        vector[digest[0] % WIDTH] += 1.0 if digest[1] % 2 else -1.0
    return normalised(vector if any(vector) else [1.0, *vector[1:]])
