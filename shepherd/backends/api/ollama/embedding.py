"""Ollama's `/api/embed`."""

from shepherd.backends.api.adapter import ApiRequest, EmbeddingAnswer, EmbeddingApi
from shepherd.backends.api.coerce import as_count, as_list
from shepherd.backends.api.embedding import as_vectors
from shepherd.backends.embedding import EmbeddingInput, plain_texts
from shepherd.messages import JsonObject


class OllamaEmbeddings(EmbeddingApi):
    """Takes texts only; shortens them if it is allowed to."""

    def request(self, model: str, request: EmbeddingInput) -> ApiRequest:
        body: JsonObject = {
            "model": model,
            "input": plain_texts(request.inputs),
            "truncate": request.truncate,
        }
        if request.dimensions:
            body["dimensions"] = request.dimensions
        return ApiRequest("/api/embed", body, stream=False)

    def parse(self, body: JsonObject) -> EmbeddingAnswer:
        vectors = as_vectors(as_list(body.get("embeddings")))
        return EmbeddingAnswer(vectors, as_count(body.get("prompt_eval_count")))
