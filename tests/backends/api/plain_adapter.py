"""The smallest adapter there can be, for tests of what is the same for all adapters.

An event holds any of: text, thought, call (a stream.Call's fields), extra, usage (a stream.Usage's
fields), stop (with note), error (with status).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from shepherd.backends.api import stream
from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelEntry, ModelTraits
from shepherd.errors import InvalidRequestError
from shepherd.events import FinishReason
from shepherd.messages import JsonObject
from shepherd.session import Session


class PlainDecoder(stream.Decoder):
    def feed(self, name: str, data: JsonObject) -> Iterable[stream.Delta]:
        try:
            return list(self._deltas(data))
        except (TypeError, ValueError):
            return []

    def _deltas(self, data: JsonObject) -> Iterator[stream.Delta]:
        if "error" in data:
            yield stream.Error(data, data.get("status", 500))
        if "text" in data:
            yield stream.Text(data["text"])
        if "thought" in data:
            yield stream.Thinking(data["thought"])
        if "call" in data:
            yield stream.Call(**data["call"])
        yield from self._rest(data)

    def _rest(self, data: JsonObject) -> Iterator[stream.Delta]:
        if "extra" in data:
            yield stream.Extra(data["extra"])
        if "usage" in data:
            yield stream.Usage(**data["usage"])
        if "stop" in data:
            self.complete = True
            yield stream.Stop(FinishReason(data["stop"]), data.get("note", ""))


class PlainAdapter(Adapter):
    """`/chat` with the messages as they are, `/models` with ids and sizes, `/props` with a size."""

    name: ClassVar[str] = "plain"

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"x-key": api_key} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        if session.sampling.mirostat:
            raise InvalidRequestError("plain has no mirostat", "mirostat")
        messages = [{"role": m.role.value, "content": m.content} for m in session.messages]
        body: dict[str, Any] = {"model": model.id, "messages": messages}
        return ApiRequest("/chat", body | ({"max_tokens": max_tokens} if max_tokens else {}))

    def decoder(self) -> stream.Decoder:
        return PlainDecoder()

    def models(self) -> ApiRequest:
        return ApiRequest("/models", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        return [ModelEntry(m["id"], m.get("size", 0), source="the list") for m in body["models"]]

    def probes(self, model: str) -> list[ApiRequest]:
        return [ApiRequest(path, method="GET", stream=False) for path in ("../other", "/props")]

    def parse_probe(self, request: ApiRequest, body: JsonObject, model: str) -> ModelEntry | None:
        return ModelEntry(model, body.get("size", 0), source="the probe")


class SilentAdapter(PlainAdapter):
    """Its models never print a call."""

    prints_calls = False


class LinesAdapter(PlainAdapter):
    framing: ClassVar[stream.Framing] = stream.Framing.NDJSON
