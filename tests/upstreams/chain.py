"""Shepherds behind Shepherds, each a real server."""

import asyncio
import os
import re
import subprocess
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

from shepherd.backends.base import Backend, Prefilled
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.events import EventCallback
from shepherd.session import Session
from tests.forked import SHEPHERD, ForkedProgram
from tests.server.harness import RunningServer
from tests.upstreams.asking import provider

Chain: TypeAlias = list[RunningServer[Backend]]


class Innermost(ScriptedBackend):
    """Plays a script; keeps the sessions that came, and the tokens of those that fitted."""

    def __init__(self, script: str) -> None:
        super().__init__(parse_script(script))
        self.sessions: list[Session] = []
        self.counted: list[int] = []

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        self.sessions.append(session)
        prefilled = await super().prefill_session(session, callback)
        self.counted.append(prefilled.prompt_tokens)
        return prefilled


@contextmanager
def chain(innermost: Backend, servers: int) -> Generator[Chain]:
    """So many servers, each behind the next one; the last is to be asked."""
    with ExitStack() as stack:
        running: Chain = [stack.enter_context(RunningServer[Backend](innermost))]
        for _ in range(servers - 1):
            running.append(stack.enter_context(_in_front_of(running[-1].url)))
        yield running


@contextmanager
def programs(directory: Path, count: int, *arguments: str) -> Generator[list[str]]:
    """The addresses of so many processes, each behind the next one; `arguments` are the first's."""
    urls: list[str] = []
    with ExitStack() as stack:
        for number in range(count):
            home = directory / f"home-{number}"
            config = home / ".config" / "shepherd"
            config.mkdir(parents=True)
            if urls:
                up = f'[up]\ntype = "shepherd"\nbase_url = "{urls[-1]}/v1"\n'
                (config / "providers.toml").write_text(up)
                arguments = ("--provider", "up")
            _, url = stack.enter_context(program(home, *arguments))
            urls.append(url)
        yield urls


@contextmanager
def program(home: Path, *arguments: str) -> Generator[tuple[ForkedProgram, str]]:
    """A server in a process of its own, and its address."""
    command = [SHEPHERD, "--server", "--port", "0", *arguments]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    pipe = subprocess.PIPE
    with ForkedProgram(
        command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout)
            yield process, next(found.group() for found in said if found)
        finally:
            process.terminate()


def _in_front_of(url: str) -> RunningServer[Backend]:
    """A server whose backend is the server at `url`; not started."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        backend = thread.submit(loop.run_until_complete, provider("shepherd", url)).result()
    return RunningServer[Backend](backend, loop=loop)
