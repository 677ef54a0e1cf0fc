"""Another provider answers in place of one that is gone, in the terminal."""

import asyncio
import re
import socket
from pathlib import Path

from tests.backends.openai_server import openai_server
from tests.e2e.conftest import Start
from tests.e2e.terminal import Terminal

FALLBACK = '[model]\nprovider = "work"\nfallback = true\n'
STATUS = r"{} · .*approve: ask"


def configure(home: Path, url: str) -> None:
    """Two providers: one at `url`, and a script behind it."""
    (home / "fast.txt").write_text("context: 2000\ntext: It is me.\n")
    config = home / ".config" / "shepherd"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(FALLBACK)
    (config / "providers.toml").write_text(
        f'[work]\ntype = "openai"\nmodel = "small"\nbase_url = "{url}"\npriority = 1\n'
        f'[fast]\ntype = "llamacpp"\nmodel = "script:{home / "fast.txt"}"\npriority = 2\n'
    )


def assert_fast_answers(terminal: Terminal) -> None:
    shown = terminal.wait_for(STATUS.format("fast"))
    assert not re.search(STATUS.format("small"), shown)
    terminal.say("/model")
    terminal.wait_for("fast, 2,000 tokens of context")


async def test_the_status_names_the_model_that_answers(start: Start, home: Path) -> None:
    async with openai_server("Good day.") as server:
        configure(home, server.url)
        terminal = start(None, columns=100, rows=30)
        await asyncio.to_thread(terminal.wait_for, STATUS.format("small"))
        await asyncio.to_thread(terminal.say, "hello")
        await asyncio.to_thread(terminal.wait_for, "Good day")
    await asyncio.to_thread(terminal.say, "and now")
    await asyncio.to_thread(terminal.wait_for, "It is me")
    await asyncio.to_thread(assert_fast_answers, terminal)


def test_what_is_gone_from_the_beginning_is_told(start: Start, home: Path) -> None:
    with socket.socket() as taken:  # nobody listens there, and nobody else can
        taken.bind(("127.0.0.1", 0))
        configure(home, f"http://127.0.0.1:{taken.getsockname()[1]}")
        terminal = start(None, columns=100, rows=30)
        terminal.wait_for(r"work can't\s+be\s+reached[^>]*Going\s+on\s+with\s+fast")
        assert_fast_answers(terminal)
        terminal.say("/provider work")
        terminal.wait_for(r"Now talking to fast of the provider fast in place of work")
        terminal.wait_count(r"Going\s+on\s+with\s+fast", 2)
        terminal.say("hello")
        terminal.wait_for("It is me")
        assert len(re.findall(r"Going\s+on\s+with", terminal.settle())) == 2
