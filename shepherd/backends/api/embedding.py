"""Embeddings and reranking through a provider's API."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import TypeGuard

from shepherd.backends import embedding
from shepherd.backends.api.adapter import EmbeddingApi
from shepherd.backends.api.http.client import ApiClient
from shepherd.errors import BackendError, InvalidRequestError
from shepherd.json_text import as_count, as_list, as_object, as_objects

MAX_INPUTS = 128
"""The inputs of one request to a provider; more are divided among several."""

_MAX_FLOAT = 3.4e38
"""The largest number of 32 bits, in which vectors are stored and sent."""

_BYTES_PER_TOKEN = 4
"""For an estimate where the provider does not count."""


class ApiEmbedder(embedding.Embedder):
    """One model of a provider."""

    def __init__(self, client: ApiClient, api: EmbeddingApi, model: str) -> None:
        self._client = client
        self._api = api
        self._model = model

    async def embed(self, request: embedding.EmbeddingInput) -> embedding.Embeddings:
        vectors: list[Sequence[float]] = []
        tokens = 0
        for start in range(0, len(request.inputs), MAX_INPUTS):
            inputs = request.inputs[start : start + MAX_INPUTS]
            part = embedding.EmbeddingInput(inputs, request.dimensions, request.truncate)
            answer = self._api.parse(await self._client.fetch(self._api.request(self._model, part)))
            if len(answer.vectors) != len(inputs):
                raise BackendError(
                    f"The provider of {self._model} has sent {len(answer.vectors)} vectors for "
                    f"{len(inputs)} inputs."
                )
            vectors += answer.vectors
            tokens += _estimate(inputs) if answer.tokens is None else answer.tokens
        return embedding.Embeddings(vectors, tokens)

    async def rank(self, query: str, documents: Sequence[str]) -> embedding.Ranking:
        request = self._api.rank_request(self._model, query, documents)
        if request is None:
            raise InvalidRequestError(f"The provider of {self._model} can't rerank.", "model")
        body = await self._client.fetch(request)
        scores: dict[object, float] = {}
        for item in as_objects(body.get("results")):
            score = item.get("relevance_score")
            if _is_number(score):
                scores[item.get("index")] = float(score)
        indexes = range(len(documents))
        if any(index not in scores for index in indexes):
            message = f"The provider of {self._model} has not sent a score for each document."
            raise BackendError(message)
        tokens = as_count(as_object(body.get("usage")).get("total_tokens"))
        if tokens is None:
            tokens = await self.count(embedding.RankingInput(query, documents))
        return embedding.Ranking([scores[index] for index in indexes], tokens)

    async def count(self, request: embedding.EmbeddingInput | embedding.RankingInput) -> int:
        if isinstance(request, embedding.RankingInput):  # a ranker reads the query each time
            return _estimate([(request.query, text) for text in request.documents])
        return _estimate(request.inputs)


def as_vectors(values: Sequence[object]) -> list[list[float]]:
    """The vectors in a list; what is not a list of numbers is left out, and so is an empty one."""
    lists = [as_list(value) for value in values]
    return [list(map(float, items)) for items in lists if items and all(map(_is_number, items))]


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is a number that a vector of 32-bit floats can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _MAX_FLOAT  # so it is neither NaN nor infinite


def _estimate(inputs: Sequence[Sequence[str | int]]) -> int:
    """About how many tokens there are, by the length of texts; a number is a token."""
    tokens = size = 0
    for part in chain.from_iterable(inputs):
        if isinstance(part, str):
            size += len(part.encode("utf-8", "replace"))
        else:
            tokens += 1
    return tokens + math.ceil(size / _BYTES_PER_TOKEN)


def texts_or_tokens(request: embedding.EmbeddingInput) -> list[object]:
    """Each input as one text, or as numbers of tokens if it has nothing else."""
    result: list[object] = []
    for parts in request.inputs:
        only_tokens = bool(parts) and all(isinstance(part, int) for part in parts)
        result.append(list(parts) if only_tokens else embedding.plain_texts([parts])[0])
    return result
