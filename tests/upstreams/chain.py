"""Shepherds behind Shepherds, each a real server."""

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from shepherd.backends.base import Backend, Prefilled
from shepherd.backends.scripted import ScriptedBackend, parse_script
from shepherd.events import EventCallback
from shepherd.session import Session
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


def _in_front_of(url: str) -> RunningServer[Backend]:
    """A server whose backend is the server at `url`; not started."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        backend = thread.submit(loop.run_until_complete, provider("shepherd", url)).result()
    return RunningServer[Backend](backend, loop=loop)
