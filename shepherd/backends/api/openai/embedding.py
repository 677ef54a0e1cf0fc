"""OpenAI's embeddings, and the reranking that servers with OpenAI's API have beside them."""

from collections.abc import Sequence

from shepherd.backends.api.adapter import ApiRequest, EmbeddingAnswer, EmbeddingApi
from shepherd.backends.api.coerce import as_count, as_object, as_objects
from shepherd.backends.api.embedding import (
    as_vectors,
    texts_or_tokens,
)
from shepherd.backends.embedding import EmbeddingInput
from shepherd.messages import JsonObject


class OpenAIEmbeddings(EmbeddingApi):
    """`embeddings` and `rerank` below the base URL; `query` is Azure's version."""

    def __init__(self, query: str = "") -> None:
        self._query = query

    def request(self, model: str, request: EmbeddingInput) -> ApiRequest:
        body: JsonObject = {"model": model, "input": texts_or_tokens(request)}
        if request.dimensions:
            body["dimensions"] = request.dimensions
        return ApiRequest(f"embeddings{self._query}", body, stream=False)

    def parse(self, body: JsonObject) -> EmbeddingAnswer:
        items = as_objects(body.get("data"))
        items.sort(key=lambda item: as_count(item.get("index")) or 0)
        usage = as_object(body.get("usage"))
        vectors = as_vectors([item.get("embedding") for item in items])
        return EmbeddingAnswer(vectors, as_count(usage.get("prompt_tokens")))

    def rank_request(self, model: str, query: str, documents: Sequence[str]) -> ApiRequest:
        body: JsonObject = {"model": model, "query": query, "documents": list(documents)}
        return ApiRequest("rerank", body, stream=False)
