"""Sub-agents behind the server: their tokens, limits, rules and end count for the key."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from msgspec import structs
from msgspec.structs import replace

from shepherd.backends.base import Generation, Prefilled
from shepherd.config.section import ShowToolCalls
from shepherd.events import EventCallback, FinishReason, Text
from shepherd.messages import Role
from shepherd.server.access.key import KeyLimits
from shepherd.server.access.keys import KeyStore
from shepherd.server.agent.tasks import turn_task
from shepherd.server.settings import ServerSettings
from shepherd.tools.permissions.rules import Rule
from tests.patience import PATIENCE
from tests.server.agent.support import (
    READ,
    WEATHER,
    RecordingBackend,
    agent_of,
    directory,
    runner,
)
from tests.server.harness import CHAT, HI, RunningServer, chat_request

B = TypeVar("B", bound=RecordingBackend)
TASK = 'call: task {"prompt": "look"}'
ONE = f"{TASK}\n---\ntext: I look.\n{READ}\n---\ntext: Milk.\n---\ntext: It says milk."
TWO = f"{TASK}\n{TASK.replace('look', 'see')}\n---\ntext: Milk.\n---\ntext: Milk.\n---\ntext: Both."


class Exact(RecordingBackend):
    """A script that writes no more than it may, and counts all that it reads and writes."""

    def __init__(self, script: str) -> None:
        super().__init__(script)
        self.tokens = 0

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        generation = await super().generate_from_prefilled(prefilled, callback, max_tokens)
        if max_tokens and generation.stats.completion_tokens > max_tokens:
            message = replace(generation.message, content="cut", tool_calls=())
            stats = replace(generation.stats, completion_tokens=max_tokens)
            generation = Generation(message, FinishReason.LENGTH, stats)
        self.tokens += generation.stats.prompt_tokens + generation.stats.completion_tokens
        return generation


class Waiting(RecordingBackend):
    """A script whose sub-agents write, and wait until they are stopped."""

    waiting = read = 0

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        self.read += prefilled.prompt_tokens
        if "sub-agent" in self.prompts[-1].messages[0].content:
            callback(Text("text " * 8))
            self.waiting += 1
            await asyncio.Event().wait()
        return await super().generate_from_prefilled(prefilled, callback, max_tokens)


class Keys:
    """A store, a file of usage, and a server whose agent offers `task`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.store = KeyStore(base / "keys.json")
        self.settings = ServerSettings(
            port=0, audit_file=base / "audit.jsonl", usage_file=base / "usage.db"
        )

    def add(self, name: str, **limits: int) -> str:
        return self.store.add(name, lambda key: structs.replace(key, limits=KeyLimits(**limits)))

    def serve(self, backend: B, rules: Sequence[Rule] = ()) -> RunningServer[B]:
        tools = runner(directory(self.base), rules)
        tools.registry.add(turn_task())
        agent = replace(agent_of(tools, ShowToolCalls.CONTENT), max_tasks=4)
        return RunningServer(backend, self.settings, self.store, tools, agent=agent)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def post(server: RunningServer[Any], key: str, path: str = CHAT, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    sent = {"messages": HI, **body} if path == CHAT else body
    return httpx.post(server.url + path, json=sent, headers=headers, timeout=PATIENCE)


def results(server: RunningServer[Any]) -> list[str]:
    """The results of calls that the answering model has read last."""
    return [m.content for m in server.backend.prompts[-1].messages if m.role is Role.TOOL]


def usage(server: RunningServer[Any], key: str) -> tuple[int, int]:
    """The requests and the tokens of the key so far."""
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.get(f"{server.url}/v1/usage", headers=headers, timeout=PATIENCE)
    [row] = answer.json()["data"]
    return row["requests"], row["prompt_tokens"] + row["completion_tokens"]


def test_the_key_pays_for_all_that_its_sub_agents_do(keys: Keys) -> None:
    backend = Exact(TWO)
    with keys.serve(backend) as server:
        key = keys.add("laptop")
        answer = post(server, key)
        assert results(server) == ["Milk.", "Milk."]
        assert usage(server, key) == (3, backend.tokens)
        assert answer.json()["usage"]["total_tokens"] < backend.tokens
    content = answer.json()["choices"][0]["message"]["content"]
    assert content.split("\n\n") == [
        '> **task** `{"prompt": "look"}` → 1 line',
        '> **task** `{"prompt": "see"}` → 1 line',
        "Both.",
    ]


WIRES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": HI, "stream": True}),
    ("/v1/messages", {"model": "default", "messages": HI, "max_tokens": 100}),
    ("/v1/responses", {"input": "hi", "store": False}),
]


def test_rounds_are_no_requests_on_any_wire(keys: Keys) -> None:
    backend = Exact(ONE)
    with keys.serve(backend) as server:
        for number, (path, body) in enumerate(WIRES):
            backend.tokens, key = 0, keys.add(f"k{number}", tokens_per_day=100_000)
            assert "It says milk." in post(server, key, path, **body).text
            assert usage(server, key) == (2, backend.tokens)


def test_exactly_enough_tokens_are_enough_for_several_at_once(keys: Keys) -> None:
    backend = Exact(TWO)
    with keys.serve(backend) as server:
        assert post(server, keys.add("free")).is_success
        whole, backend.tokens = backend.tokens, 0
        answer = post(server, keys.add("exact", tokens_per_minute=whole))
        assert results(server) == ["Milk.", "Milk."]
        assert answer.json()["choices"][0]["finish_reason"] == "stop"
        assert answer.headers["x-ratelimit-limit-tokens"] == str(whole)
        assert backend.tokens == whole


GREEDY = f"text: one two three four\n{TASK}\n{TASK}\n---\ntext: five six\n{READ}\n{TASK}"


def test_no_limit_is_passed_through_sub_agents(keys: Keys) -> None:
    backend, texts = Exact(GREEDY), list[str]()
    with keys.serve(backend) as server:
        for limit in (1, 20, 60, 90, 150, 300, 1000):
            backend.tokens = 0
            key = keys.add(f"k{limit}", tokens_per_day=limit)
            answers = [post(server, key), post(server, key, max_tokens=8)]
            assert {answer.status_code for answer in answers} <= {200, 429}
            assert backend.tokens <= limit
            assert backend.active == 0
            texts += [answer.text for answer in answers]
        assert "Error: task 1 (look) failed: Rate limit" in "".join(texts)


def test_a_limit_ends_the_sub_agent_and_not_the_request(keys: Keys) -> None:
    with keys.serve(RecordingBackend(TWO)) as server:
        answer = post(server, keys.add("few", requests_per_minute=2))
        assert answer.status_code == 200
        done, refused = results(server)
        assert done == "Milk."
        assert refused.startswith("Error: task 2 (see) failed: Rate limit of the API key few")


def test_hanging_up_stops_all_sub_agents(keys: Keys) -> None:
    backend = Waiting(TWO)
    with keys.serve(backend) as server:
        key = keys.add("laptop", tokens_per_day=100_000)
        sent = chat_request({"messages": HI})
        with server.connect() as sock:
            sock.sendall(sent.replace(b"\r\n", f"\r\nAuthorization: Bearer {key}\r\n".encode(), 1))
            server.until(lambda: backend.waiting == 2)
        server.until(lambda: backend.active == 0 and server.tasks == 0)
        requests, tokens = usage(server, key)
        assert requests == 3
        written = 20  # and the line about the first call, which counts as text
        assert backend.read + written <= tokens <= backend.read + written + 10


def test_the_rules_and_the_audit_hold(keys: Keys) -> None:
    write = 'call: write_file {"path": "new.txt", "content": "x"}'
    script = f"{TASK}\n---\n{READ}\n{write}\n{TASK}\n---\ntext: No.\n---\ntext: No."
    with keys.serve(RecordingBackend(script)) as server:
        assert post(server, keys.add("laptop")).is_success
        told = [m.content for m in server.backend.prompts[2].messages if m.role is Role.TOOL]
    assert "milk" in told[0]
    assert "denied" in told[1]
    assert told[2] == "Error: a sub-agent has no tool task"
    assert not (keys.base / "work" / "new.txt").exists()
    lines = [json.loads(line) for line in (keys.base / "audit.jsonl").read_text().splitlines()]
    assert [(line["model"], line["tool"], line["outcome"]) for line in lines] == [
        ("task 1", "read_file", "ok"),
        ("task 1", "write_file", "denied"),
        ("script", "task", "ok"),
    ]
    assert {line["key"] for line in lines} == {"laptop"}


def test_a_sub_agent_uses_no_tool_of_the_client_and_no_other_model(keys: Keys) -> None:
    other = 'call: task {"prompt": "look", "model": "other"}'
    calls = "call: read_file {}\ncall: weather {}"
    script = f"{TASK}\n{other}\n---\n{calls}\n---\ntext: No.\n---\ntext: Done."
    own = {"type": "function", "function": {**WEATHER["function"], "name": "read_file"}}
    with keys.serve(RecordingBackend(script)) as server:
        key = keys.store.add("one", lambda key: structs.replace(key, models=("script",)))
        assert post(server, key, tools=[WEATHER, own], stop=["No"]).is_success
        first, second = results(server)
        told = [m.content for m in server.backend.prompts[2].messages if m.role is Role.TOOL]
    assert told == [f"Error: a sub-agent has no tool {name}" for name in ("read_file", "weather")]
    assert first == "No."
    assert second.startswith("Error: ")
    assert "model" in second


def test_a_limited_key_has_its_first_prompt_shortened(keys: Keys) -> None:
    """The prompt fits, but leaves so little room for the answer that it is read again."""
    with keys.serve(RecordingBackend("context: 2048\ntext: one\n---\ntext: two")) as server:
        key = keys.add("laptop", tokens_per_day=100_000)
        used = post(server, key).json()["usage"]["prompt_tokens"]
        old = {"role": "user", "content": "word " * (1900 - used)}
        answer = httpx.post(
            server.url + CHAT,
            json={"messages": [old, {"role": "assistant", "content": "x"}, *HI]},
            headers={"Authorization": f"Bearer {key}", "x-shepherd-truncation": "auto"},
            timeout=PATIENCE,
        )
        assert answer.json()["choices"][0]["message"]["content"] == "two"
        assert [prompt.roles for prompt in server.backend.prompts] == ["u", "uau", "u"]


def test_clients_can_not_call_it_themselves(keys: Keys) -> None:
    with keys.serve(RecordingBackend("text: hi")) as server:
        key = keys.add("laptop")
        headers = {"Authorization": f"Bearer {key}"}
        for path in ("/v1/tools", "/v1/tools/openapi.json"):
            listed = httpx.get(server.url + path, headers=headers, timeout=PATIENCE).text
            assert "read_file" in listed
            assert "task" not in listed
        assert post(server, key, "/v1/tools/task", prompt="x").status_code == 404
        refused = post(server, key, "/v1/tools/execute", name="task", arguments={"prompt": "x"})
        assert refused.status_code == 400
        assert "task" in refused.json()["error"]["message"]
        assert not server.backend.prompts
