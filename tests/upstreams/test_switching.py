"""Going on with one conversation at four vendors: nobody is sent what it would refuse."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest

from shepherd.backends.opening import open_backend
from shepherd.config.load import load_config
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.conversation.build import build_conversation
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.session_start import SessionStart
from shepherd.events import CallbackEvent, Event, FinishReason
from shepherd.turn import run_turn
from tests.backends.api.upstream import Upstream
from tests.e2e.terminal import Terminal
from tests.flat_events import flat
from tests.forked import SHEPHERD, run_forked
from tests.upstreams.vendor import Vendor
from tests.upstreams.vendor_anthropic import AnthropicVendor
from tests.upstreams.vendor_gemini import GeminiVendor
from tests.upstreams.vendor_ollama import OllamaVendor
from tests.upstreams.vendor_openai import ChatVendor

ROOMY = 30_000
EVERY_ORDER = "123412314231243121342132413214321"
"""All orders of four follow each other somewhere in it."""


@dataclass
class Four:
    """The vendors by the names of their providers, in the order of `/provider next`."""

    vendors: dict[str, Vendor]
    home: Path
    work: Path
    told: list[str] = field(default_factory=list[str])

    @property
    def names(self) -> list[str]:
        return list(self.vendors)

    @property
    def env(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "TERM": "dumb"}

    @property
    def refused(self) -> Mapping[str, list[str]]:
        return {name: v.refused for name, v in self.vendors.items() if v.refused}

    def conversation(self, *, latest: bool = False) -> Conversation:
        """A conversation as the program puts it together, at the first provider."""
        flags = {"model.provider": self.names[0], "model.thinking": True}
        config = load_config(self.work, self.env, flags)
        book = ProviderBook(Paths.from_env(self.env), self.env)
        opener = partial(open_backend, providers=book)
        start = SessionStart(latest=latest)
        return build_conversation(config, self.env, self.work, start, opener, book)

    def expect(self, number: int) -> None:
        """What is told in the turn with this question, if all its calls are run."""
        results = [] if number % 7 == 3 else [f"R{number}-{n}" for n in range(1 + number % 2)]
        self.told += [f"Q{number}", *results, f"A{number}"]


@pytest.fixture
async def four(tmp_path: Path) -> AsyncGenerator[Four]:
    vendors: list[Vendor] = [
        ChatVendor(ROOMY),
        AnthropicVendor(ROOMY),
        GeminiVendor(ROOMY),
        OllamaVendor(ROOMY),
    ]
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    for number in range(200):
        for part in range(2):
            (work / f"file-{number}-{part}").write_text(f"R{number}-{part}\n")
    async with AsyncExitStack() as stack:
        lines: list[str] = []
        for place, vendor in enumerate(vendors):
            upstream = await stack.enter_async_context(Upstream(vendor))
            lines += [f"[{vendor.kind}]", f'type = "{vendor.kind}"', f'model = "{vendor.model}"']
            lines += [f'base_url = "{upstream.url}"', 'api_key = "none"', f"priority = {place}"]
        lines.insert(1, 'dialect = "strict"')
        config = home / ".config" / "shepherd"
        config.mkdir(parents=True)
        (config / "providers.toml").write_text("\n".join(lines))
        yield Four({vendor.kind: vendor for vendor in vendors}, home, work)


@asynccontextmanager
async def talking(four: Four, *, latest: bool = False) -> AsyncGenerator[Conversation]:
    """A conversation that is closed at the end."""
    conversation = four.conversation(latest=latest)
    try:
        yield conversation
    finally:
        await conversation.aclose()


async def ask(conversation: Conversation, number: int, stop_at: CallbackEvent | None = None) -> str:
    """Ask question `number`; the turn is cancelled at the first `stop_at`."""

    def listen(event: Event) -> bool:
        kind, content, _, _ = flat(event)
        assert kind is not CallbackEvent.ERROR, content
        return kind is not stop_at

    backend = await conversation.backend()
    tools = conversation.tool_runner()
    prompt = f"Q{number} what is there?"
    outcome = await run_turn(conversation.session, prompt, backend, tools, listen)
    wanted = FinishReason.STOP if stop_at is None else FinishReason.CANCELLED
    assert outcome.finish_reason is wanted
    return conversation.session.messages[-1].content


async def ask_at(four: Four, conversation: Conversation, name: str, number: int) -> None:
    """Go on at a provider, which then was told all that was said so far."""
    await conversation.slot.switch_provider(name)
    four.expect(number)
    answer = await ask(conversation, number)
    assert four.refused == {}
    assert answer.startswith(f"A{number} ")
    assert four.vendors[name].marks == four.told[:-1]


def test_every_order_is_in_it() -> None:
    orders = ("".join(order) for order in permutations("1234"))
    assert all(order in EVERY_ORDER for order in orders)


async def test_every_order_of_four(four: Four) -> None:
    """Also after the session was read from its file again."""
    number = 0
    async with talking(four) as conversation:
        for number, place in enumerate(EVERY_ORDER):
            await ask_at(four, conversation, four.names[int(place) - 1], number)
    async with talking(four, latest=True) as conversation:
        for name in four.names:
            number += 1
            await ask_at(four, conversation, name, number)
    assert all(vendor.requests > len(EVERY_ORDER) // 4 for vendor in four.vendors.values())


@pytest.mark.parametrize("stop_at", [CallbackEvent.TOOL_CALL, CallbackEvent.TOOL_RESULT])
async def test_a_switch_in_the_midst_of_calls(four: Four, stop_at: CallbackEvent) -> None:
    """From each to each, after a turn that was interrupted before all its calls had run."""
    pairs = list(permutations(four.names, 2))
    async with talking(four) as conversation:
        for number, (one, other) in enumerate(pairs):
            await conversation.slot.switch_provider(one)
            await ask(conversation, 14 * number + 1, stop_at)
            assert conversation.session.messages[-1].content.startswith("Error: interrupted")
            await conversation.slot.switch_provider(other)
            assert (await ask(conversation, 14 * number + 7)).startswith(f"A{14 * number + 7} ")
            assert four.refused == {}


async def test_the_program_goes_on_with_another_provider(four: Four) -> None:
    """Each time a process of its own, which reads the session from its file."""
    for number, name in enumerate([*four.names, four.names[1]], 1):
        going_on = ["--continue"] if number > 1 else []
        four.expect(number)
        out = await shepherd(four, "--provider", name, *going_on, "-e", f"Q{number} what is there?")
        assert out.startswith(f"A{number} ")
        assert four.refused == {}
        assert four.vendors[name].marks == four.told[:-1]


async def test_provider_next_in_the_terminal(four: Four) -> None:
    """Once around: the local model is the last, and has not to be loaded."""
    await asyncio.to_thread(go_around, four)
    assert four.refused == {}
    assert four.vendors[four.names[-1]].marks == four.told[:-1]


def go_around(four: Four) -> None:
    argv = [SHEPHERD, "--provider", four.names[0]]
    with Terminal(argv, four.work, four.env) as terminal:
        terminal.wait_for(r"(?m)^>$")
        for number, name in enumerate(four.names, 1):
            if number > 1:
                terminal.send("/provider next\r")
                terminal.wait_for(f"Now talking to {four.vendors[name].model}")
            four.expect(number)
            terminal.send(f"Q{number} what is there?\r")
            terminal.wait_for(rf"A{number} is that all is well")


async def shepherd(four: Four, *arguments: str) -> str:
    """What the program prints while the vendors of this process answer."""
    argv = [SHEPHERD, *arguments]
    done = await asyncio.to_thread(run_forked, argv, four.env, cwd=four.work)
    assert done.returncode == 0, done.stderr
    return done.stdout
