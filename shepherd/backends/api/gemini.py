"""The adapter to Google's Gemini."""

from collections.abc import Iterator, Mapping
from typing import ClassVar
from urllib.parse import quote

from shepherd.backends.api import adapter, embedding, gemini_request, model_list, stream
from shepherd.backends.embedding import EmbeddingInput, normalised, plain_texts
from shepherd.events import FinishReason
from shepherd.json_text import as_count, as_error_status, as_object, as_objects, as_text, as_texts
from shepherd.messages import JsonObject
from shepherd.session import Session

_FILTERED = {
    "SAFETY": "its safety filter",
    "RECITATION": "it would have recited a source",
    "LANGUAGE": "the language is not supported",
    "BLOCKLIST": "a forbidden term",
    "PROHIBITED_CONTENT": "prohibited content",
    "SPII": "sensitive personal information",
    "JAILBREAK": "it was taken for an attempt to break the rules",
    "MODEL_ARMOR": "Model Armor",
    "ESCALATION": "an escalation rule",
    "PUP_LIMITED_DISABLED": "the account is limited; see Google's Prohibited Use Policy",
}
_FAILED = {
    "MALFORMED_FUNCTION_CALL": "made a call that can't be read; ask again",
    "UNEXPECTED_TOOL_CALL": "called a tool that is not on offer; ask again",
    "TOO_MANY_TOOL_CALLS": "made too many calls in one answer; ask again",
    "MISSING_THOUGHT_SIGNATURE": "misses a thought signature in the conversation; clear it",
    "MALFORMED_RESPONSE": "gave an answer that can't be read; ask again",
}


def finish(reason: str, message: str, *, calls: bool) -> stream.Stop:
    """The stop that `finishReason` means; `message` is the API's own, or "".

    `calls`: the answer has calls. Gemini has no reason of its own for them.
    """
    if reason == "MAX_TOKENS":
        return stream.Stop(FinishReason.LENGTH)
    if reason in ("STOP", "FINISH_REASON_UNSPECIFIED"):
        return stream.Stop(FinishReason.TOOL_CALLS if calls else FinishReason.STOP)
    if reason in _FAILED:
        note = f"Gemini {_FAILED[reason]}"
    elif reason in _FILTERED:
        note = f"Gemini stopped its answer: {_FILTERED[reason]}"
    else:
        note = f"Gemini stopped its answer: {reason}"
    return stream.Stop(FinishReason.STOP, _with_message(note, message))


def _with_message(note: str, message: str) -> str:
    return f"{note} ({message})" if message else note


class GeminiDecoder(stream.Decoder):
    """Decodes the chunks of one answer; requests ask for one candidate only."""

    def __init__(self) -> None:
        self._call_count = 0
        self._text_length = 0
        self._signed_parts: list[JsonObject] = []

    def feed(self, name: str, data: JsonObject) -> list[stream.Delta]:
        return list(self._deltas(data))

    def _deltas(self, data: JsonObject) -> Iterator[stream.Delta]:
        if "error" in data:
            self.complete = True
            yield stream.Error(data, as_error_status(as_object(data["error"]).get("code")))
            return
        candidates = as_objects(data.get("candidates"))
        candidate = candidates[0] if candidates else {}
        for part in as_objects(as_object(candidate.get("content")).get("parts")):
            yield from self._part(part)
        if (usage := _usage(as_object(data.get("usageMetadata")))) is not None:
            yield usage
        yield from self._stop(candidate, as_object(data.get("promptFeedback")))

    def _part(self, part: JsonObject) -> Iterator[stream.Delta]:
        if call := as_object(part.get("functionCall")):
            yield self._call(call, _signature(part))
            return
        if _signature(part):  # it must go back at the same place of the text
            signed = {"at": self._text_length, "part": _signed_part(part)}
            self._signed_parts.append(signed)
        text = as_text(part.get("text"))
        if not text:
            return
        if part.get("thought") is True:
            yield stream.Thinking(text)
        else:
            self._text_length += len(text)
            yield stream.Text(text)

    def _call(self, call: JsonObject, signature: str) -> stream.Call:
        """A call, which Gemini sends whole; its id and signature must go back with it."""
        key, self._call_count = self._call_count, self._call_count + 1
        call_id, name = as_text(call.get("id")), as_text(call.get("name"))
        kept = {"id": call_id, "thoughtSignature": signature}
        extra = {field: value for field, value in kept.items() if value}
        return stream.Call(key, call_id, name, as_object(call.get("args")), extra or None)

    def _stop(self, candidate: JsonObject, feedback: JsonObject) -> Iterator[stream.Delta]:
        """The end, if the chunk tells one: of the answer, or of a prompt that was refused."""
        if self.complete:
            return
        if reason := as_text(candidate.get("finishReason")):
            message = as_text(candidate.get("finishMessage"))
            stop = finish(reason, message, calls=self._call_count > 0)
        elif blocked := as_text(feedback.get("blockReason")):
            note = f"Gemini refused to answer: {_FILTERED.get(blocked, blocked)}"
            note = _with_message(note, as_text(feedback.get("blockReasonMessage")))
            stop = stream.Stop(FinishReason.STOP, note)
        else:
            return
        self.complete = True
        if self._signed_parts:
            yield stream.Extra({"signed": self._signed_parts})
        yield stop


def _signature(part: JsonObject) -> str:
    """The part's signature, or "" without one that can be sent back."""
    signature = as_text(part.get("thoughtSignature"))
    return signature if signature.isascii() else ""


def _signed_part(part: JsonObject) -> JsonObject:
    """The part to send back, always as text."""
    thought = {"thought": True} if part.get("thought") is True else {}
    signature = {"thoughtSignature": part["thoughtSignature"]}
    return {"text": as_text(part.get("text"))} | thought | signature


def _usage(usage: JsonObject) -> stream.Usage | None:
    """Thoughts are counted apart from the candidate; the prompt's count includes cached tokens."""
    prompt = as_count(usage.get("promptTokenCount"))
    cached = as_count(usage.get("cachedContentTokenCount"))
    candidate = as_count(usage.get("candidatesTokenCount"))
    thoughts = as_count(usage.get("thoughtsTokenCount"))
    if prompt is None and candidate is None and thoughts is None:
        return None
    answer = None
    if candidate is not None or thoughts is not None:
        answer = (candidate or 0) + (thoughts or 0)
    return stream.Usage(prompt, cached, answer)


class GeminiEmbeddings(adapter.EmbeddingApi):
    """Takes texts only. Shortened vectors come without a length of 1, which is made here."""

    def request(self, model: str, request: EmbeddingInput) -> adapter.ApiRequest:
        name = gemini_request.model_path(model)
        size = {"outputDimensionality": request.dimensions} if request.dimensions else {}
        requests: list[JsonObject] = [
            {"model": name, "content": {"parts": [{"text": text}]}, **size}
            for text in plain_texts(request.inputs)
        ]
        path = f"{_resource(model)}:batchEmbedContents"
        return adapter.ApiRequest(path, {"requests": requests}, stream=False)

    def parse(self, body: JsonObject) -> adapter.EmbeddingAnswer:
        values = [item.get("values") for item in as_objects(body.get("embeddings"))]
        usage = as_object(body.get("usageMetadata"))
        vectors = [normalised(vector) for vector in embedding.as_vectors(values)]
        return adapter.EmbeddingAnswer(vectors, as_count(usage.get("promptTokenCount")))


_VERSION = "/v1beta"


class GeminiAdapter(adapter.Adapter):
    """generateContent, streamed as server-sent events."""

    name: ClassVar[str] = "gemini"
    default_base_url: ClassVar[str] = "https://generativelanguage.googleapis.com"
    prints_calls = False
    image_types: ClassVar[frozenset[str]] = frozenset({"image/png", "image/jpeg", "image/webp"})

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": api_key} if api_key else {}

    def chat(
        self, session: Session, model: adapter.ModelTraits, max_tokens: int
    ) -> adapter.ApiRequest:
        path = f"{_resource(model.id)}:streamGenerateContent?alt=sse"
        return adapter.ApiRequest(path, gemini_request.chat_body(session, model, max_tokens))

    def decoder(self) -> stream.Decoder:
        return GeminiDecoder()

    @property
    def embeddings(self) -> adapter.EmbeddingApi:
        return GeminiEmbeddings()

    def models(self) -> adapter.ApiRequest:
        return adapter.ApiRequest(f"{_VERSION}/models?pageSize=1000", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[adapter.ModelEntry]:
        """The models that can answer; others (embeddings, images) are left out."""
        entries = map(_entry, as_objects(body.get("models")))
        return [entry for entry in entries if entry is not None]

    def probes(self, model: str) -> list[adapter.ApiRequest]:
        """The model's own page, which also exists for models that the list leaves out."""
        return [adapter.ApiRequest(_resource(model), method="GET", stream=False)]

    def parse_probe(
        self, request: adapter.ApiRequest, body: JsonObject, model: str
    ) -> adapter.ModelEntry | None:
        return _entry(body)


def _resource(model: str) -> str:
    """The path of a model, such as "/v1beta/models/gemini-3-pro"."""
    return f"{_VERSION}/{quote(gemini_request.model_path(model), safe='/')}"


def _entry(item: JsonObject) -> adapter.ModelEntry | None:
    """A model of the list; None for one that can't answer, such as a model of embeddings."""
    name, methods = as_text(item.get("name")), as_texts(item.get("supportedGenerationMethods"))
    if not name or (methods and "generateContent" not in methods):
        return None
    return model_list.listed_model(name.removeprefix("models/"), item)
