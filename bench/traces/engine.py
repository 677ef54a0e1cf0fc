"""Plays sessions to Shepherd's engine in this process, and tells it what each session waits for."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from time import perf_counter

from bench.peers import Load
from bench.traces.drive import Result
from bench.traces.sessions import Request, tokens
from shepherd.backends.base import Lease
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.backend import LlamaCppBackend
from shepherd.backends.llamacpp.engine import Concurrency, Engine
from shepherd.backends.llamacpp.tool_times import ToolTimes
from shepherd.backends.llamacpp.worker import Worker
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.events import Event, TextEvent
from shepherd.messages import Message, ToolCall
from shepherd.sampling import Sampling
from shepherd.session import RawPrompt, Session


@dataclass(slots=True)
class Asking:
    """An engine, and whether it is told of leases. A trace does not name its tools: all are one."""

    backend: LlamaCppBackend
    engine: Engine
    size: int
    result: Result
    tells: bool
    times: ToolTimes

    async def ask(self, name: str, request: Request, following: Request | None) -> None:
        """Ask for an answer, then tell for what the session waits until the `following` request."""
        call = ToolCall(f"{name} {id(request)}", "tool", {})
        parts = tuple(tokens(request.blocks, self.size))
        session = Session(raw_prompt=RawPrompt(parts), id=name)
        session.sampling = Sampling(temperature=0.0, ignore_eos=True)
        started, first = perf_counter(), 0.0

        def note(event: Event) -> bool:
            nonlocal first
            if isinstance(event, TextEvent):
                first = first or perf_counter() - started
            return True

        length = max(2, request.answer * self.size // 64)
        generation = await self.backend.generate_from_session(session, note, length)
        self.result.firsts.append(first)
        self.result.computed -= generation.stats.completion_tokens - 1
        if not self.tells:
            return
        if following is None:
            self.backend.note_lease(Lease(name, inf))
        elif not following.person:
            self.backend.note_lease(Lease(name, self.times.expect([call])))
            asyncio.get_running_loop().call_later(following.wait, self._learn, call)

    def _learn(self, call: ToolCall) -> None:
        self.times.learn([Message.tool(call, "")])


@asynccontextmanager
async def opened(load: Load, size: int, result: Result, *, tells: bool) -> AsyncGenerator[Asking]:
    """The engine of a model; at the end the result has all tokens that it decoded of prompts."""
    settings = LlamaCppSection(
        context_size=load.context,
        threads=load.threads,
        cache_ram_mib=load.host,
        cache_disk_mib=0,
        speculation="off",
    )
    streams = Concurrency(load.parallel)
    worker = Worker(lambda post, wake: Engine.load(load.model, settings, streams, post, None, wake))
    engine = await asyncio.wrap_future(worker.loaded)
    text = TextThread()
    backend = await text.run(LlamaCppBackend, "traces", Sampling(), engine, worker, text)
    try:
        yield Asking(backend, engine, size, result, tells, ToolTimes())
        result.computed += engine.context.decoded_tokens
        filled = max(engine.scheduler.pool.sequences, key=lambda one: len(one.tokens))
        result.token_bytes = filled.bytes / max(1, len(filled.tokens))
    finally:
        await backend.aclose()
