"""TensorRT-LLM's part in this process, in front of an engine whose tokens are written for it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import ClassVar

from shepherd.backends.tensorrt.backend import TensorRtBackend
from shepherd.backends.tensorrt.engine import Step, TokenRequest
from tests.backends.conformance.said import Said
from tests.backends.conformance.scenario import Scenario
from tests.backends.conformance.subject import Room, Subject
from tests.backends.llamacpp.support import GREEDY
from tests.backends.tensorrt.pup_engine import PupEngine
from tests.patience import PATIENCE

_NO_STREAM = "the model is in this process: there is no connection and no stream"


class WrittenEngine:
    """A `TokenEngine` with Pup's vocabulary and templates that says what was written for it."""

    def __init__(self, pup: PupEngine, answers: Iterator[Said]) -> None:
        self._pup = pup
        self._answers = answers
        self.model = pup.model
        self.context_size = pup.context_size
        self.unsupported = pup.unsupported
        self.guides = False
        self.alive = True
        self.working = 0

    def submit(self, request: TokenRequest) -> "WrittenStream":
        said = next(self._answers)
        tokens = self.model.vocab.tokenize(_written(said), parse_special=True)
        return WrittenStream(self, tokens, held=said.held)

    def close(self) -> None:
        self.alive = False
        self._pup.close()


class WrittenStream:
    """One answer, two tokens a step; one that is held has no end."""

    def __init__(self, engine: WrittenEngine, tokens: list[int], *, held: bool) -> None:
        self._engine = engine
        self._tokens = tokens
        self._held = held
        self._aborted = asyncio.Event()

    async def steps(self) -> AsyncGenerator[Step]:
        self._engine.working += 1
        try:
            for start in range(0, len(self._tokens), 2):
                await asyncio.sleep(0)
                if self._aborted.is_set():
                    break
                yield Step(tuple(self._tokens[start : start + 2]))
            if self._held:
                await self._aborted.wait()
            cancelled = self._aborted.is_set()
            end = () if cancelled else (self._engine.model.vocab.eos,)
            yield Step(end, "cancelled" if cancelled else "stop")
        finally:
            self._engine.working -= 1

    def abort(self) -> None:
        self._aborted.set()


def _written(said: Said) -> str:
    """The answer as Pup's family writes it."""
    calls = (json.dumps({"name": n, "arguments": a}, ensure_ascii=False) for n, a in said.calls)
    return said.content + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls)


class TensorRTInProcessSubject(Subject):
    """All that stands behind the seam to TensorRT-LLM."""

    name = "tensorrt-inprocess"
    lacks: ClassVar = {
        Scenario.THINKING: "whether it thinks is in its template; see tests/backends/output",
        Scenario.RETRY: _NO_STREAM,
        Scenario.MALFORMED: _NO_STREAM,
        Scenario.CUT: _NO_STREAM,
        Scenario.KEY: "a file asks for no key",
        Scenario.MODEL: "see tests/backends/tensorrt/test_loading.py",
        Scenario.SDK: "the package is its own client; see tests/backends/tensorrt/test_engine.py",
    }

    @asynccontextmanager
    async def opened(self, *answers: Said, limit: int = 0) -> AsyncGenerator[Room]:
        pup = await PupEngine.load(context_size=limit or 2048)
        engine = WrittenEngine(pup, iter(answers))
        backend = await TensorRtBackend.open("pup", lambda: engine, GREEDY)

        async def released() -> None:
            async with asyncio.timeout(PATIENCE):
                while engine.working:
                    await asyncio.sleep(0.01)

        try:
            yield Room(backend, released)
        finally:
            await backend.aclose()
