"""A dialogue in OpenAI's shape, rendered by the chat template that goes into the GGUF."""

import json
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from training.dialogue import Message
from training.toolbox import Tool


def as_tools(tools: list[Tool]) -> list[dict[str, Any]]:
    """The tools as a request offers them."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def _function(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {arg.rstrip("?"): {"type": "string"} for arg in tool.args},
            "required": [arg for arg in tool.args if not arg.endswith("?")],
        },
    }


def as_messages(system: str, messages: list[Message]) -> list[dict[str, Any]]:
    """The messages as a request holds them."""
    shaped: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        shape: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.thought is not None:
            shape["reasoning_content"] = message.thought
        if message.call:
            call = {"name": message.call.name, "arguments": message.call.args}
            shape["tool_calls"] = [{"type": "function", "function": call}]
        shaped.append(shape)
    return shaped


class Template:
    """A chat template, in the sandbox and with the settings that engines use."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _tojson
        self._template = environment.from_string(source)

    def render(
        self, system: str, tools: list[Tool], messages: list[Message], *, think: bool = False
    ) -> str:
        """The prompt for the next reply; `think` asks for a thought."""
        return self._template.render(
            messages=as_messages(system, messages),
            tools=as_tools(tools) or None,
            add_generation_prompt=True,
            enable_thinking=think,
        )


def _tojson(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
