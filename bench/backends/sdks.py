"""The official SDKs, each with its documented call for a streamed answer.

The results equal ours: the text piece by piece, and the calls to run.
"""

import json
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from bench.backends.asked import KEY, MODEL, SYSTEM, messages, tools
from bench.backends.client import Client, Seen

Pieces = dict[int, tuple[str, list[str]]]
"""The calls of an answer by their index: the name, and the pieces of the arguments."""


class OpenAIChat(Client):
    """`openai`'s chat completions."""

    def __init__(self, url: str) -> None:
        from openai import AsyncOpenAI

        self._client: Any = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)
        self._request: Any = {
            "model": MODEL,
            "messages": [{"role": "system", "content": SYSTEM}, *messages()],
            "tools": _functions(),
            "stream_options": {"include_usage": True},
        }

    async def ask(self, seen: Seen) -> None:
        stream = await self._client.chat.completions.create(stream=True, **self._request)
        calls: Pieces = {}
        async for chunk in stream:
            for choice in chunk.choices:
                if text := choice.delta.content:
                    seen.texts.append((monotonic_ns(), text))
                for call in choice.delta.tool_calls or ():
                    _, pieces = calls.setdefault(call.index, (call.function.name, []))
                    pieces.append(call.function.arguments)
        seen.calls.extend(_whole(calls))

    async def aclose(self) -> None:
        await self._client.close()


class OpenAIResponses(Client):
    """`openai`'s responses."""

    def __init__(self, url: str) -> None:
        from openai import AsyncOpenAI

        self._client: Any = AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY)
        self._request: Any = {
            "model": MODEL,
            "instructions": SYSTEM,
            "input": messages(),
            "tools": [{"type": "function", **tool} for tool in tools("parameters")],
            "store": False,
        }

    async def ask(self, seen: Seen) -> None:
        stream = await self._client.responses.create(stream=True, **self._request)
        async for event in stream:
            if event.type == "response.output_text.delta":
                seen.texts.append((monotonic_ns(), event.delta))
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                seen.calls.append((event.item.name, json.loads(event.item.arguments)))

    async def aclose(self) -> None:
        await self._client.close()


class Anthropic(Client):
    """`anthropic`'s messages."""

    def __init__(self, url: str) -> None:
        from anthropic import AsyncAnthropic

        self._client: Any = AsyncAnthropic(base_url=url, api_key=KEY)
        self._request: Any = {
            "model": MODEL,
            "system": SYSTEM,
            "messages": messages(),
            "tools": tools("input_schema"),
            "max_tokens": 4096,
        }

    async def ask(self, seen: Seen) -> None:
        stream = await self._client.messages.create(stream=True, **self._request)
        calls: Pieces = {}
        async for event in stream:
            if event.type == "content_block_start" and event.content_block.type == "tool_use":
                calls[event.index] = (event.content_block.name, [])
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                seen.texts.append((monotonic_ns(), event.delta.text))
            elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                calls[event.index][1].append(event.delta.partial_json)
        seen.calls.extend(_whole(calls))

    async def aclose(self) -> None:
        await self._client.close()


class Gemini(Client):
    """`google-genai`'s generate_content_stream."""

    def __init__(self, url: str) -> None:
        from google import genai
        from google.genai import types

        options = types.HttpOptions(base_url=url)
        self._client: Any = genai.Client(api_key=KEY, http_options=options)
        roles = {"user": "user", "assistant": "model"}
        self._contents: Any = [
            {"role": roles[m["role"]], "parts": [{"text": m["content"]}]} for m in messages()
        ]
        declared: Any = tools("parameters_json_schema")
        self._config = types.GenerateContentConfig(
            system_instruction=SYSTEM, tools=[types.Tool(function_declarations=declared)]
        )

    async def ask(self, seen: Seen) -> None:
        stream = await self._client.aio.models.generate_content_stream(
            model=MODEL, contents=self._contents, config=self._config
        )
        async for chunk in stream:
            for part in chunk.candidates[0].content.parts:
                if text := part.text:
                    seen.texts.append((monotonic_ns(), text))
                if call := part.function_call:
                    seen.calls.append((call.name, call.args))

    async def aclose(self) -> None:
        await self._client.aio.aclose()


class Ollama(Client):
    """`ollama`'s chat."""

    def __init__(self, url: str) -> None:
        from ollama import AsyncClient

        self._client: Any = AsyncClient(host=url)
        self._request: Any = {
            "model": MODEL,
            "messages": [{"role": "system", "content": SYSTEM}, *messages()],
            "tools": _functions(),
            "options": {"num_ctx": 32768},
        }

    async def ask(self, seen: Seen) -> None:
        async for part in await self._client.chat(stream=True, **self._request):
            if text := part.message.content:
                seen.texts.append((monotonic_ns(), text))
            for call in part.message.tool_calls or ():
                seen.calls.append((call.function.name, call.function.arguments))

    async def aclose(self) -> None:
        await self._client.close()


SDKS: dict[str, Callable[[str], Client]] = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic": Anthropic,
    "gemini": Gemini,
    "ollama": Ollama,
}


def _functions() -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in tools("parameters")]


def _whole(calls: Pieces) -> list[tuple[str, Any]]:
    return [(name, json.loads("".join(pieces))) for name, pieces in calls.values()]
