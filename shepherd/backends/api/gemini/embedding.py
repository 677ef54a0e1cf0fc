"""Gemini's batchEmbedContents."""

from urllib.parse import quote

from shepherd.backends.api.adapter import ApiRequest, EmbeddingAnswer, EmbeddingApi
from shepherd.backends.api.coerce import as_count, as_object, as_objects
from shepherd.backends.api.embedding import as_vectors
from shepherd.backends.api.gemini.traits import model_path
from shepherd.backends.embedding import EmbeddingInput, normalised, plain_texts
from shepherd.messages import JsonObject


class GeminiEmbeddings(EmbeddingApi):
    """Takes texts only. Shortened vectors come without a length of 1, which is made here."""

    def request(self, model: str, request: EmbeddingInput) -> ApiRequest:
        name = model_path(model)
        size = {"outputDimensionality": request.dimensions} if request.dimensions else {}
        requests: list[JsonObject] = [
            {"model": name, "content": {"parts": [{"text": text}]}, **size}
            for text in plain_texts(request.inputs)
        ]
        path = f"/v1beta/{quote(name, safe='/')}:batchEmbedContents"
        return ApiRequest(path, {"requests": requests}, stream=False)

    def parse(self, body: JsonObject) -> EmbeddingAnswer:
        values = [item.get("values") for item in as_objects(body.get("embeddings"))]
        usage = as_object(body.get("usageMetadata"))
        vectors = [normalised(vector) for vector in as_vectors(values)]
        return EmbeddingAnswer(vectors, as_count(usage.get("promptTokenCount")))
