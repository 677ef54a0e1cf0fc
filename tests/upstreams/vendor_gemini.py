"""Google as a vendor: calls have no ids, and those of the current turn are signed."""

from dataclasses import dataclass, field
from typing import ClassVar

from shepherd.backends.api.gemini_request import SKIP_SIGNATURE
from shepherd.messages import JsonObject
from tests.backends.api.gemini.official import check_body
from tests.backends.api.upstream import Received, Reply
from tests.upstreams.vendor import Answer, Said, Vendor, require


@dataclass
class GeminiVendor(Vendor):
    """generateContent of a model that signs its calls."""

    made: set[str] = field(default_factory=set[str])

    kind: ClassVar[str] = "gemini"
    model: ClassVar[str] = "gemini-3-pro-preview"

    def asks(self, request: Received) -> bool:
        return request.path == f"/v1beta/models/{self.model}:streamGenerateContent"

    def other(self, request: Received) -> Reply:
        methods = ["generateContent"]
        entry = {"name": f"models/{self.model}", "supportedGenerationMethods": methods}
        entry |= {"inputTokenLimit": self.limit, "outputTokenLimit": 8192}
        return Reply({"models": [entry]} if request.path == "/v1beta/models" else entry)

    def said(self, body: JsonObject) -> list[Said]:
        found: list[Said] = []
        for content in body["contents"]:
            one = Said("assistant" if content["role"] == "model" else "user")
            for part in content["parts"]:
                if "functionCall" in part:
                    named = part["functionCall"]
                    one.calls.append((named.get("id", ""), named["name"]))
                elif "functionResponse" in part:
                    answer = part["functionResponse"]
                    text = answer["response"]["output"]
                    one.results.append((answer.get("id", ""), answer["name"], text))
                elif not part.get("thought"):
                    one.texts.append(part["text"])
            found.append(one)
        return found

    def own(self, body: JsonObject) -> None:
        for content in body["contents"]:
            calls = [part for part in content["parts"] if "functionCall" in part]
            for index, part in enumerate(calls):
                signature = part.get("thoughtSignature", "")
                own = self.sign(str(part["functionCall"]["args"]))
                allowed = {own, SKIP_SIGNATURE} if index == 0 else {""}
                require(signature in allowed, "Function call is missing a thought_signature")
                if str(part["functionCall"]["args"]) in self.made:
                    require(index or signature == own, "a signature of ours is lost")

    def official(self, request: Received) -> None:
        check_body(request.json)

    def overflow(self, body: JsonObject, prompt: int) -> Reply | None:
        if prompt <= self.limit:
            return None
        text = (
            f"The input token count ({prompt}) exceeds the maximum number of tokens allowed "
            f"({self.limit})."
        )
        error = {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}
        return Reply({"error": error}, status=400)

    def stream(self, answer: Answer, prompt: int) -> Reply:
        parts: list[JsonObject] = [{"text": answer.thought, "thought": True}]
        if answer.text:
            parts.append({"text": answer.text})
        for index, arguments in enumerate(answer.calls):
            self.made.add(str(arguments))
            signature = {} if index else {"thoughtSignature": self.sign(str(arguments))}
            part: JsonObject = {"functionCall": {"name": "read_file", "args": arguments}}
            parts.append(part | signature)
        chunks: list[JsonObject] = [
            {"candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}}]}
            for part in parts
        ]
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": 9, "thoughtsTokenCount": 3}
        return Reply.sse([*chunks, {"usageMetadata": usage}], done=False)
