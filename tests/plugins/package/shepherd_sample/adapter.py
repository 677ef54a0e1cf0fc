"""A vendor's API: one line of JSON for each piece of an answer."""

from collections.abc import Iterable, Mapping

from shepherd.backends.api.adapter import Adapter, ApiRequest, ModelEntry, ModelTraits
from shepherd.backends.api.stream import Decoder, Delta, Framing, Stop, Text, Usage
from shepherd.events import FinishReason
from shepherd.messages import JsonObject
from shepherd.session import Session


class ParrotDecoder(Decoder):
    """Reads `{"text": …}` and, at the end, `{"tokens": …}`."""

    def feed(self, name: str, data: JsonObject) -> Iterable[Delta]:
        if "text" in data:
            yield Text(data["text"])
        if "tokens" in data:
            self.complete = True
            yield Usage(prompt_tokens=data["tokens"], completion_tokens=data["tokens"])
            yield Stop(FinishReason.STOP)


class ParrotAdapter(Adapter):
    """The requests and answers of Parrot."""

    name = "parrot"
    framing = Framing.NDJSON

    def auth(self, api_key: str) -> Mapping[str, str]:
        return {"X-Parrot-Key": api_key} if api_key else {}

    def chat(self, session: Session, model: ModelTraits, max_tokens: int) -> ApiRequest:
        return ApiRequest("/say", {"model": model.id, "text": session.messages[-1].content})

    def decoder(self) -> Decoder:
        return ParrotDecoder()

    def models(self) -> ApiRequest:
        return ApiRequest("/models", method="GET", stream=False)

    def parse_models(self, body: JsonObject) -> list[ModelEntry]:
        return [ModelEntry(name, context_size=4096) for name in body["models"]]
