"""The agent with the built-in model: the prompt stays in the cache over rounds and requests."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from shepherd.backends.base import Prefilled
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import EventCallback
from shepherd.messages import ToolSpec
from shepherd.models import BUILTIN_NAME, BUILTIN_TOOLS, builtin_model
from shepherd.sampling import Sampling
from shepherd.server.agent.agent import Agent
from shepherd.session import Session
from tests.server.agent.support import agent_of, directory, runner
from tests.server.harness import RunningServer, ask


class RecordingBackend(LlamaCppBackend):
    """Keeps how many tokens of each prompt there were, and how many of them were cached."""

    def __init__(self, *loaded: Any) -> None:
        super().__init__(*loaded)
        self.prompts: list[tuple[int, int]] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        prefilled = await super().prefill_session(session, callback)
        self.prompts.append((prefilled.prompt_tokens, prefilled.cached_tokens))
        return prefilled


Engine = RunningServer[RecordingBackend]


def _agent(work: Path) -> Agent:
    tools = runner(work)
    offered: list[ToolSpec] = [
        tool for tool in tools.registry.specs() if tool.name in BUILTIN_TOOLS
    ]
    agent = agent_of(tools)
    return Agent(agent.tools, lambda _: offered, agent.system_message, agent.limits, agent.show)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Engine]:
    async def load() -> RecordingBackend:
        section, greedy = LlamaCppSection(threads=1), Sampling(temperature=0.0)
        return await RecordingBackend.load(
            builtin_model(), section, greedy, parallel=1, name=BUILTIN_NAME
        )

    work = directory(tmp_path)
    loop = asyncio.new_event_loop()
    backend = loop.run_until_complete(load())
    with RunningServer(backend, loop=loop, agent=_agent(work)) as running:
        yield running


def test_each_prompt_continues_the_last_one_in_the_cache(server: Engine) -> None:
    prompts = server.backend.prompts
    history: list[Any] = [{"role": "user", "content": "Read notes.txt"}]
    with server.client() as client:
        first = ask(client, messages=history)
        message = first.choices[0].message
        rounds = len(prompts)
        history += [
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": "Thanks. And what day is it?"},
        ]
        ask(client, messages=history)
    assert "remember the milk" in (message.content or "")
    assert (rounds, message.tool_calls) == (2, None)
    assert len(prompts) > rounds
    for (tokens, _), (_, cached) in pairwise(prompts):
        assert cached >= tokens - 1
    assert first.usage is not None
    assert first.usage.prompt_tokens_details is not None
    totals = first.usage.prompt_tokens, first.usage.prompt_tokens_details.cached_tokens
    assert totals == tuple(map(sum, zip(*prompts[:rounds], strict=True)))


def test_clients_that_leave_hold_no_sequence(server: Engine) -> None:
    messages: list[Any] = [{"role": "user", "content": "Read notes.txt"}]
    body = {"messages": messages, "stream": True}
    for count in (0, 1, 300, 600, 1200):
        with server.connect_and_post(body) as sock:
            received = 0
            while received < count and (piece := sock.recv(count - received)):
                received += len(piece)
                if piece.endswith(b"0\r\n\r\n"):
                    break
        server.until(lambda: server.tasks == 0 and server.backend.running == 0)
    with server.client() as client:
        answer = ask(client, messages=messages).choices[0].message
    assert "remember the milk" in (answer.content or "")
