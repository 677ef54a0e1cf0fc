"""Providers as tools of the model that answers: which are offered, and in which frontends."""

import asyncio
import json
import selectors
import socket
import tomllib
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.failover import Candidate, FallbackBackend
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider import make_provider
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import build_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.delegates import answering
from shepherd.conversation.session_start import SessionStart
from shepherd.errors import ModelLoadError, UnreachableError
from shepherd.events import EventCallback, ignore_events
from shepherd.models import BUILTIN_TOOLS
from shepherd.session import Session
from shepherd.turn import run_turn
from tests.backends.openai_server import openai_server
from tests.cli.cliserver import cliserver
from tests.cli.program import Program
from tests.patience import PATIENCE, POLL

LOOK = """call: read_file {"path": "todo.txt"}
---
text: It says milk.
"""
WRITE = """call: write_file {"path": "new.txt", "content": "x"}
---
text: Written.
"""
ASK = """text: I ask.
call: ask_fast {"question": "What is to do?"}
---
text: Milk it is.
"""


class Opened(ScriptedBackend):
    """Knows what it was opened for, what it was offered, and whether it is closed."""

    def __init__(self, config: Config, script: str = "text: hi") -> None:
        super().__init__(parse_script(script), config.model.label)
        self.config = config
        self.offered: list[str] = []
        self.closed = False

    @property
    def info(self) -> ModelInfo:
        name = self.config.model.label
        tools = BUILTIN_TOOLS if name == "pup" else None
        return ModelInfo(name, "scripted", 32_768, trained_tools=tools)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.offered = asking(session)
        return await super().prefill_session(session, callback)

    async def aclose(self) -> None:
        self.closed = True


class Cut(Opened):
    """Can't be reached any more once it is asked."""

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        raise UnreachableError("work can't be reached.")


class Opener:
    """Opens backends, and remembers them."""

    def __init__(self) -> None:
        self.backends: list[Opened] = []

    async def __call__(self, config: Config) -> Backend:
        if config.model.label == "fast/missing":
            raise ModelLoadError("no such model")
        script = ASK if config.model.provider == "work" else "text: hi"
        self.backends.append(Opened(config, script))
        return self.backends[-1]


@cache
def listening_port() -> int:
    """The port of a server that takes connections, and says nothing; open until the tests end."""
    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            server.accept()[0].close()

    Thread(target=accept, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def book(tmp_path: Path, names: Sequence[str] = ("work", "fast", "my-box")) -> ProviderBook:
    env = {"HOME": str(tmp_path / "home")}
    providers = ProviderBook(Paths.from_env(env), env)
    for name in names:
        values = {
            "type": "openai",
            "model": "m",
            "base_url": f"http://127.0.0.1:{listening_port()}",
        }
        providers.store.save(make_provider(name, values))
    return providers


def build(tmp_path: Path, opener: Opener | None = None, **flags: object) -> Conversation:
    env = {"HOME": str(tmp_path / "home")}
    overrides = {key.replace("__", "."): value for key, value in flags.items()}
    config = load_config(tmp_path, env, overrides)
    start = SessionStart()
    return build_conversation(config, env, tmp_path, start, opener or Opener(), book(tmp_path))


def asking(session: Session) -> list[str]:
    return [tool.name for tool in session.tools if tool.name.startswith("ask_")]


async def test_the_others_are_offered_and_a_switch_changes_them(tmp_path: Path) -> None:
    conversation = build(tmp_path, model__provider="work")
    assert asking(conversation.session) == [], "nobody knows yet who answers"
    await conversation.backend()
    assert asking(conversation.session) == ["ask_fast", "ask_my_box"]
    await conversation.slot.switch_provider("fast")
    assert asking(conversation.session) == ["ask_my_box", "ask_work"]
    with pytest.raises(ModelLoadError):
        await conversation.slot.switch_model("missing", conversation.cwd)
    assert asking(conversation.session) == ["ask_my_box", "ask_work"]
    await conversation.slot.switch_provider("local")
    assert asking(conversation.session) == [], "the built-in model was trained on other tools"
    await conversation.slot.switch_model("other.gguf", conversation.cwd)
    assert asking(conversation.session) == ["ask_fast", "ask_my_box", "ask_work"]
    [spec] = [tool for tool in conversation.session.tools if tool.name == "ask_my_box"]
    assert spec.description.startswith("Ask the model of my-box (m)")
    assert list(spec.parameters["properties"]) == ["question", "fresh"]
    assert spec.parameters["required"] == ["question"]
    await conversation.aclose()


async def test_only_providers_that_can_answer_are_offered(tmp_path: Path) -> None:
    providers = book(tmp_path, ["work", "fast"])
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for name, values in {
        "nobody": {"type": "openai", "model": "m", "base_url": f"http://127.0.0.1:{port}"},
        "keyless": {"type": "openai", "model": "m"},
        "lost-key": {"type": "openai", "model": "m", "api_key": "file"},
        "lost-file": {"type": "llamacpp", "model": str(tmp_path / "none.gguf")},
        "no-address": {"type": "shepherd", "model": "m"},
        "cloud": {"type": "anthropic", "model": "m", "headers": {"x-api-key": "k"}},
    }.items():
        providers.store.save(make_provider(name, values))
    env = {"HOME": str(tmp_path / "home")}
    config = load_config(tmp_path, env, {"model.provider": "work"})
    conversation = build_conversation(config, env, tmp_path, SessionStart(), Opener(), providers)
    await conversation.backend()
    assert asking(conversation.session) == ["ask_cloud", "ask_fast"]
    await conversation.aclose()


async def test_a_handful_of_providers_is_offered(tmp_path: Path) -> None:
    providers = book(tmp_path, ["work", *(f"p{n}" for n in range(9))])
    values = {"type": "openai", "model": "m", "base_url": f"http://127.0.0.1:{listening_port()}"}
    providers.store.save(make_provider("p8", {**values, "priority": 1}))
    env = {"HOME": str(tmp_path / "home")}
    config = load_config(tmp_path, env, {"model.provider": "work"})
    conversation = build_conversation(config, env, tmp_path, SessionStart(), Opener(), providers)
    await conversation.backend()
    assert sorted(asking(conversation.session)) == [f"ask_p{n}" for n in (0, 1, 2, 3, 8)]
    await conversation.aclose()


@pytest.fixture
def deaf_port() -> Generator[int]:
    """A port where connections are neither taken nor refused: its queue is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        address = server.getsockname()
        waiting = selectors.DefaultSelector()
        while True:
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(address)
            waiting.register(client, selectors.EVENT_WRITE)
            if len(waiting.select(timeout=POLL)) < len(waiting.get_map()):
                break
        yield address[1]


def openai_at(port: int) -> dict[str, object]:
    return {"type": "openai", "model": "m", "base_url": f"http://127.0.0.1:{port}"}


async def test_a_check_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, deaf_port: int
) -> None:
    providers = [make_provider(name, openai_at(deaf_port)) for name in ("one", "two")]
    async with asyncio.timeout(PATIENCE):
        able = await answering(
            providers, book(tmp_path, []), max_seconds=0.1, connect_seconds=2 * PATIENCE
        )
    assert able == set()


async def test_servers_that_say_nothing_hold_up_nobody(tmp_path: Path, deaf_port: int) -> None:
    conversation = build(tmp_path, model__provider="work")
    for n in range(3):
        conversation.providers.store.save(make_provider(f"deaf{n}", openai_at(deaf_port)))
    async with asyncio.timeout(PATIENCE):
        backend = await conversation.backend()
        assert asking(conversation.session) == ["ask_fast", "ask_my_box"]
        with socket.create_server(("127.0.0.1", 0)) as server:
            late = make_provider("late", openai_at(server.getsockname()[1]))
            conversation.providers.store.save(late)
            conversation.model_changed(backend, chosen=False)
            while "ask_late" not in asking(conversation.session):
                await asyncio.sleep(POLL)
        conversation.model_changed(backend, chosen=False)
        await conversation.aclose()


async def test_nothing_is_left_open_when_a_model_is_not_waited_for(
    tmp_path: Path, deaf_port: int
) -> None:
    opener = Opener()
    conversation = build(tmp_path, opener, model__provider="work")
    conversation.providers.store.save(make_provider("deaf", openai_at(deaf_port)))
    conversation.slot.start()
    async with asyncio.timeout(PATIENCE):
        while not opener.backends:
            await asyncio.sleep(POLL)
        await conversation.aclose()
    assert opener.backends[0].closed


async def test_they_can_be_switched_off(tmp_path: Path) -> None:
    providers = book(tmp_path)
    providers.store.save(make_provider("fast", {"type": "openai", "ask": False}))
    for flags, offered in (
        ({}, ["ask_my_box"]),
        ({"tools__disabled": ["ask_my_box"]}, []),
        ({"tools__ask_providers": False}, []),
        ({"model__tools": False}, []),
    ):
        env = {"HOME": str(tmp_path / "home")}
        overrides = {key.replace("__", "."): value for key, value in flags.items()}
        config = load_config(tmp_path, env, {"model.provider": "work", **overrides})
        conversation = build_conversation(
            config, env, tmp_path, SessionStart(), Opener(), providers
        )
        await conversation.backend()
        assert asking(conversation.session) == offered
        await conversation.aclose()


async def test_a_backend_opens_at_the_first_question_and_closes_at_the_end(tmp_path: Path) -> None:
    opener = Opener()
    conversation = build(tmp_path, opener, model__provider="work", model__fallback=True)
    backend = await conversation.backend()
    for _ in range(2):
        await run_turn(
            conversation.session, "go", backend, conversation.tool_runner(), ignore_events
        )
    work, fast = opener.backends
    assert (work.config.model.label, fast.config.model.label) == ("work", "fast")
    assert not fast.config.model.fallback, "nobody else may answer in its place"
    assert (work.offered, fast.offered) == (["ask_fast", "ask_my_box"], [])
    assert [m.content for m in conversation.delegates.sessions["fast"].messages][1::2] == [
        "hi",
        "hi",
    ]
    conversation.clear()
    assert conversation.delegates.sessions == {}
    assert not fast.closed
    await conversation.slot.switch_provider("fast")
    assert fast.closed, "two of it may not fit into memory"
    await conversation.slot.switch_provider("work")
    await run_turn(
        conversation.session,
        "go",
        await conversation.backend(),
        conversation.tool_runner(),
        ignore_events,
    )
    await conversation.aclose()
    assert len(opener.backends) == 5
    assert all(backend.closed for backend in opener.backends)


async def test_a_resumed_session_asks_anew(tmp_path: Path) -> None:
    conversation = build(tmp_path, model__provider="work")
    first = conversation.session.id
    backend = await conversation.backend()
    await run_turn(conversation.session, "go", backend, conversation.tool_runner(), ignore_events)
    await conversation.aclose()
    again = build(tmp_path, model__provider="work")
    again.resume(first)
    assert again.delegates.sessions == {}
    await again.aclose()


def with_provider(config: Config, name: str) -> Config:
    model = config.model.model_copy(update={"provider": name})
    return config.model_copy(update={"model": model})


async def test_a_fallback_changes_them_too(tmp_path: Path) -> None:
    config = load_config(tmp_path, {"HOME": str(tmp_path / "home")}, {"model.provider": "work"})
    others = with_provider(config, "fast")
    first, second = Cut(config), Opened(others)

    async def opened(backend: Backend) -> Backend:
        await asyncio.sleep(0)
        return backend

    async def opener(_config: Config) -> Backend:
        return await FallbackBackend.open(
            [
                Candidate("work/m", lambda: opened(first)),
                Candidate("fast/m", lambda: opened(second)),
            ]
        )

    env = {"HOME": str(tmp_path / "home")}
    conversation = build_conversation(config, env, tmp_path, SessionStart(), opener, book(tmp_path))
    backend = await conversation.backend()
    assert (conversation.slot.provider, asking(conversation.session)) == (
        "work",
        ["ask_fast", "ask_my_box"],
    )
    await run_turn(conversation.session, "go", backend, conversation.tool_runner(), ignore_events)
    assert first.offered == ["ask_fast", "ask_my_box"]
    assert second.offered == ["ask_my_box", "ask_work"], "before it was asked anything"
    assert (conversation.slot.provider, conversation.slot.model_name) == ("fast", "fast")
    await conversation.aclose()


async def test_a_fallback_to_a_model_of_few_tools(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home")}
    config = load_config(tmp_path, env, {"model.provider": "work"})
    local = with_provider(config, "")
    few = Opened(local)

    async def open_first() -> Backend:
        raise UnreachableError("work can't be reached.")

    async def open_second() -> Backend:
        return few

    async def opener(_config: Config) -> Backend:
        order = [Candidate("work/m", open_first), Candidate("my-box", open_second)]
        return await FallbackBackend.open(order)

    conversation = build_conversation(config, env, tmp_path, SessionStart(), opener, book(tmp_path))
    await conversation.backend()
    names = [tool.name for tool in conversation.session.tools]
    assert conversation.slot.provider == "my-box"
    assert asking(conversation.session) == []
    assert "read_file" in names
    assert "search_memory" not in names
    await conversation.aclose()


@pytest.fixture
def asked(program: Program) -> Program:
    """With a provider `fast` that plays a script."""
    give(program, LOOK)
    return program


def give(program: Program, script: str) -> None:
    program.config.mkdir(parents=True, exist_ok=True)
    (program.home / "fast.txt").write_text(script)
    model = f"script:{program.home / 'fast.txt'}"
    table = f'[fast]\ntype = "llamacpp"\nmodel = "{model}"\n'
    (program.config / "providers.toml").write_text(table)


def test_one_question(asked: Program) -> None:
    done = asked.run_scripted(ASK, "-e", "go")
    assert (done.returncode, done.stdout) == (0, "Milk it is.\n")
    shown = done.stderr.splitlines()
    assert shown == [
        "I ask.",
        '→ ask_fast {"question": "What is to do?"}',
        'fast: read_file {"path": "todo.txt"}',
        "  It says milk.",
    ]


def test_its_tools_are_denied_where_nobody_can_be_asked(asked: Program) -> None:
    give(asked, WRITE)
    done = asked.run_scripted(ASK, "-e", "go")
    assert "fast: write_file: Error: denied: approval needed" in done.stderr
    assert not (asked.work / "new.txt").exists()


def test_json_lines(asked: Program) -> None:
    done = asked.run_scripted(ASK, "--json", "-e", "go")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("provider") for line in lines if line["type"] == "stats"] == [
        None, "fast", "fast", None,
    ]  # fmt: skip
    assert [line["content"] for line in lines if line.get("topic") == "progress"] == [
        'fast: read_file {"path": "todo.txt"}'
    ]
    assert [line["content"] for line in lines if line["type"] == "tool_result"] == ["It says milk."]


def test_a_shared_session_asks_the_right_client(asked: Program) -> None:
    give(asked, WRITE)
    me = {"X-Client-ID": "me"}
    with cliserver(asked, ASK) as url, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        prompt = {"prompt": "go", "stream": True}
        kind, seen = "", dict[str, dict[str, Any]]()
        with http.stream("POST", "/request", json=prompt, headers=me) as response:
            for line in response.iter_lines():
                name, _, data = line.partition(": ")
                if name == "event":
                    kind = data
                elif name == "data":
                    seen[kind] = json.loads(data)
                    if kind == "approval_needed":
                        path = f"{url}/approvals/{seen[kind]['id']}"
                        httpx.post(path, json={"decision": "once"}, headers=me, timeout=PATIENCE)
        needed, done = seen["approval_needed"], seen["response_complete"]
        assert needed["asker"] == "fast (fast)"
        assert needed["tool"] == "write_file"
        assert (asked.work / "new.txt").read_text() == "x"
        assert seen["notice"]["topic"] == "progress"
        assert done["content"] == "Milk it is."
        session = http.get("/session").json()
        assert [m["role"] for m in session["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert done["usage"]["prompt_tokens"] > session["context"]["used"]


def test_a_provider_is_told_not_to_be_asked(asked: Program) -> None:
    assert asked.run("provider", "set", "fast", "ask", "no").returncode == 0
    stored = tomllib.loads((asked.config / "providers.toml").read_text())
    assert stored["fast"]["ask"] is False
    assert "by no other model" in asked.run("provider", "show", "fast").stdout
    done = asked.run_scripted(ASK, "-e", "go")
    assert "Error: unknown tool: ask_fast" in done.stderr
    assert asked.run("provider", "set", "fast", "ask", "maybe").returncode == 2


async def test_a_model_behind_an_api_is_offered_them(asked: Program) -> None:
    async with openai_server("Fine.") as server:
        given = ("--backend", "openai", "--api-base", server.url, "--model", "small")
        done = await asyncio.to_thread(asked.run, *given, "--api-key", "k", "-e", "hi")
        assert done.stdout == "Fine.\n"
        [body] = [json.loads(r.body) for r in server.requests if r.method == "POST"]
        names = [tool["function"]["name"] for tool in body["tools"]]
        assert [name for name in names if name.startswith("ask_")] == ["ask_fast"]
