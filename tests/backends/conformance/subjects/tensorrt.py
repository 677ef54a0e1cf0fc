"""TensorRT-LLM's server, which copies OpenAI's chat completions."""

from typing import ClassVar

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.connect import adapter_for
from shepherd.messages import JsonObject
from tests.backends.api.upstream import Reply
from tests.backends.conformance.language import sse
from tests.backends.conformance.said import SHORT
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.openai_chat import ChatSubject


class TensorRTSubject(ChatSubject):
    """`trtllm-serve`; its errors are objects of their own, its thoughts `reasoning_content`."""

    name = "tensorrt"
    type = "tensorrt"
    model = "nvidia/Llama-3.1"
    recorded = SHORT.silent
    lacks: ClassVar = {
        Scenario.KEY: "trtllm-serve asks for no key",
        Scenario.MODEL: "trtllm-serve answers with the model it has, whatever name it is asked for",
    }

    def adapter(self, url: str) -> Adapter:
        return adapter_for(self.type, url, model=self.model)

    def overflow(self, prompt: int, limit: int) -> Reply:
        text = (
            f"The sum of prompt length ({prompt}.0), query length (0) should not exceed "
            f"max_num_tokens ({limit})"
        )
        return Reply(_error(text, "BadRequestError", 400), 400)

    def busy(self) -> Reply:
        body = _error("Too many requests", "TooManyRequestsError", 429)
        return Reply(body, 429, {"retry-after": f"{self.busy_seconds:.0f}"})

    def down(self) -> Reply:
        return Reply(_error("The engine is not ready", "InternalServerError", 503), 503)

    def failing(self) -> bytes:
        return sse(_error("Request failed: out of KV cache blocks", "InternalServerError", 500))


def _error(text: str, kind: str, code: int) -> JsonObject:
    return {"object": "error", "message": text, "type": kind, "param": None, "code": code}
