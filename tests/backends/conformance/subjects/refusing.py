"""Servers that refuse a part of what we ask first, and are asked again without it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from shepherd.backends.api.adapter import Adapter
from shepherd.backends.connect import adapter_for
from shepherd.messages import JsonObject
from tests.backends.api.upstream import Received, Reply
from tests.backends.conformance.language import compact
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subjects.ollama import OllamaSubject
from tests.backends.conformance.subjects.openai_chat import ChatSubject, error

_KNOWN = "its language is another subject's, where this is tried"
_TRIED: Mapping[Scenario, str] = dict.fromkeys(
    (
        *(Scenario.RETRY, Scenario.MALFORMED, Scenario.CUT),
        *(Scenario.KEY, Scenario.MODEL, Scenario.SDK),
    ),
    _KNOWN,
)


class ToollessSubject(OllamaSubject):
    """An Ollama whose model has no tools: it prints its calls, as it was told to."""

    name = "toolless"
    lacks: ClassVar[Mapping[Scenario, str]] = _TRIED

    def refusal(self, request: Received) -> Reply | None:
        if "tools" not in request.json:
            return None
        said = f"registry.ollama.ai/library/{self.model} does not support tools"
        return Reply({"error": said}, 400)

    def frames(self, said: Said) -> Sequence[bytes]:
        printed = (_printed(name, arguments) for name, arguments in said.calls)
        return super().frames(replace(said, text=(*said.text, *printed), calls=()))


class StrictSubject(ChatSubject):
    """A proxy on this machine that takes what OpenAI's API has, and nothing else."""

    name = "strict"
    lacks: ClassVar[Mapping[Scenario, str]] = _TRIED

    def adapter(self, url: str) -> Adapter:
        return adapter_for(self.type, url, model=self.model)

    def refusal(self, request: Received) -> Reply | None:
        if "chat_template_kwargs" not in request.json:
            return None
        said = "Unrecognized request argument supplied: chat_template_kwargs"
        return Reply(error(said), 400)

    def check(self, request: Received) -> None:
        if self.refusal(request) is None:
            super().check(request)


def _printed(name: str, arguments: JsonObject) -> str:
    return f"\n<tool_call>\n{compact({'name': name, 'arguments': arguments})}\n</tool_call>"
