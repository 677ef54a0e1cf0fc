"""An engine of tokens that runs everywhere: Pup through llama.cpp, several requests at once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType

from shepherd.backends.base import Concurrency
from shepherd.backends.inprocess.answer import Failed, Finished, Text, Update
from shepherd.backends.inprocess.fragments import Tail
from shepherd.backends.inprocess.prompt import Prompt
from shepherd.backends.inprocess.special import TemplateModel
from shepherd.backends.llamacpp.engine import Engine
from shepherd.backends.llamacpp.native.vocab import Vocab
from shepherd.backends.llamacpp.prefilled import LlamaPrefilled
from shepherd.backends.llamacpp.prefilled import Request as LlamaRequest
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.worker import Worker
from shepherd.backends.tensorrt.engine import Step, TokenRequest, TokenStream
from shepherd.events import ignore_events
from shepherd.models import builtin_model
from shepherd.sampling import DEFAULT_SAMPLING, Sampling
from tests.backends.llamacpp.support import settings


class PupEngine:
    """Satisfies `TokenEngine` as TensorRT-LLM does, with real tokens of a real model."""

    def __init__(self, worker: Worker, engine: Engine, unsupported: Mapping[str, str]) -> None:
        self._worker = worker
        self._jobs: set[Job] = set()
        self.model: TemplateModel = engine.model
        self.context_size = engine.context.size
        self.unsupported = unsupported
        self.guides = False
        self.alive = True
        self.requests: list[TokenRequest] = []
        self.aborted = 0

    @classmethod
    async def load(
        cls,
        *,
        parallel: int = 2,
        unsupported: Mapping[str, str] = MappingProxyType({}),
        **values: object,
    ) -> "PupEngine":
        own = settings(speculation="off", **values)
        worker = Worker(
            lambda post, wake: Engine.load(
                builtin_model(), own, Concurrency(parallel), post, None, wake
            )
        )
        return cls(worker, await asyncio.wrap_future(worker.loaded), unsupported)

    def submit(self, request: TokenRequest) -> TokenStream:
        self.requests.append(request)
        return PupStream(self, self._worker, self._jobs, request)

    def close(self) -> None:
        if self.alive:
            self.alive = False
            self._worker.stop()


class PupStream:
    """One request of llama.cpp's as a stream of tokens."""

    def __init__(
        self, engine: PupEngine, worker: Worker, jobs: set[Job], request: TokenRequest
    ) -> None:
        self._engine = engine
        self._limit = int(request.parameters["max_tokens"])
        prompt = Prompt(list(request.tokens), Tail("", ()), "")
        ask = LlamaRequest(prompt, _sampling(request.parameters), [])
        vocab = engine.model.vocab
        assert isinstance(vocab, Vocab)
        self._handle = LlamaPrefilled(worker, jobs, ask, engine.context_size, vocab)

    async def steps(self) -> AsyncGenerator[Step]:
        sent = 0
        try:
            await self._handle.wait(ignore_events)
            self._handle.start(self._limit)
            finish = ""
            while not finish:
                updates = await self._handle.updates()
                finish, logprobs = _seen(updates)
                tokens = self._handle.generated
                new = tokens[sent : sent + len(logprobs)] if logprobs else tokens[sent:]
                sent += len(new)
                cached = self._handle.cached_tokens
                yield Step(new, finish, cached, logprobs or None)
        finally:
            self._handle.release()

    def abort(self) -> None:
        self._engine.aborted += 1
        self._handle.cancel()


def _seen(updates: list[Update]) -> tuple[str, tuple[Mapping[int, float], ...]]:
    finish = ""
    for update in updates:
        match update:
            case Finished(reason=reason):
                finish = reason.value
            case Failed(error=error):
                raise error
            case Text() | _:
                pass
    return finish, ()


def _sampling(parameters: Mapping[str, object]) -> Sampling:
    """TensorRT-LLM's names back into ours."""
    greedy = parameters.get("top_k") == 1
    own = Sampling(
        temperature=0.0 if greedy else float(str(parameters["temperature"])),
        seed=int(str(parameters["seed"])),
        ignore_eos=bool(parameters.get("ignore_eos")),
    )
    return own.over(DEFAULT_SAMPLING)
