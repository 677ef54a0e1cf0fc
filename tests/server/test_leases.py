"""What a client waits for is inferred from its traffic, and decides what stays in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from tests.patience import PATIENCE
from tests.server.harness import CHAT, RunningServer

CELLS = 512
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
    }
]


@pytest.fixture
def server() -> Iterator[RunningServer[LlamaCppBackend]]:
    async def load() -> LlamaCppBackend:
        section = LlamaCppSection(threads=1, context_size=CELLS, cache_ram_mib=0)
        greedy = Sampling(temperature=0.0)
        return await LlamaCppBackend.load(
            builtin_model(), section, greedy, parallel=3, name=BUILTIN_NAME
        )

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), loop=loop) as running:
        yield running


def asked(word: str) -> list[Any]:
    return [{"role": "user", "content": f"{word} " * 55}]


def test_a_client_that_runs_a_tool_keeps_its_prompt_and_one_that_reads_does_not(
    server: RunningServer[LlamaCppBackend],
) -> None:
    def answer(messages: list[Any], **options: Any) -> tuple[Any, int, int]:
        body = {"messages": messages, "max_tokens": 40, **options}
        whole = httpx.post(f"{server.url}{CHAT}", json=body, timeout=PATIENCE).json()
        usage = whole["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return whole["choices"][0]["message"], usage["prompt_tokens"], cached

    working, reading = asked("list"), asked("tell")
    call, tokens, _ = answer(working, tools=TOOLS, tool_choice="required")
    text, read_tokens, _ = answer(reading, max_tokens=2)
    _, others, _ = answer(asked("other") * 2, max_tokens=2)
    assert tokens + read_tokens + others > CELLS, "there is room for all"
    result = {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": "noon"}
    _, _, kept = answer([*working, call, result], tools=TOOLS, max_tokens=2)
    _, _, lost = answer([*reading, text, *asked("on")], max_tokens=2)
    assert kept >= tokens - 8
    assert lost < read_tokens - 8
