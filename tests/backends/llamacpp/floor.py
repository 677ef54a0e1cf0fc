"""A scheduler that tests step by hand, over a real context that notes its batches."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from shepherd.backends.inprocess.answer import Failed, Finished, Update
from shepherd.backends.llamacpp.cache.sequence import HostCache
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import NO_ROOM, Interrupt, NativeContext, Span
from shepherd.backends.llamacpp.native.devices import CPU_LIMITS, DeviceLimits
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import settings

STUCK = Sampling(temperature=0.0, top_k=0, top_p=1.0, penalty_freq=-10.0, penalty_last_n=-1)
"""What was said before is likelier: such answers go on, and give drafts."""


class WatchedContext(NativeContext):
    """A real context that notes its batches, and has no room beyond `most` tokens in memory.

    With `own_cells` no sequence computes over the tokens of the others.
    """

    most = 10**9

    def __init__(
        self,
        model: NativeModel,
        parallel: int,
        *,
        own_cells: bool = False,
        limits: DeviceLimits = CPU_LIMITS,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.batches: list[list[Span]] = []
        self.refused: list[list[Span]] = []
        exact = settings(flash_attention="off", cache_type_k="f32", cache_type_v="f32")
        params = context_params(exact, parallel, model.traits)
        params.kv_unified = not own_cells
        super().__init__(model, params, clock)
        self.limits = limits

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        used = sum(self.last_position(i) + 1 for i in range(self.sequences))
        if used + sum(len(span.tokens) for span in spans) > self.most:
            self.refused.append(list(spans))
            return NO_ROOM
        self.batches.append(list(spans))
        return super().decode(spans, interrupt)


class Floor:
    """A scheduler that is stepped by hand, and what it told; `options` are those of its context.

    `host` is the size of host memory for idle sequences.
    """

    def __init__(
        self, path: Path, parallel: int, *, ahead: bool = False, host: int = 0, **options: Any
    ) -> None:
        self.model = NativeModel(path, model_params(settings(), {}))
        self.context = WatchedContext(self.model, parallel, **options)
        self.pool = SequencePool(self.context, self.model.window, host=HostCache(host))
        self.context.batches.clear()
        speculator = Speculator(self.context, always=True) if ahead else None
        self.told: list[tuple[Job, Update]] = []
        self.may_fail = False
        self.scheduler = Scheduler(self.context, self.pool, self._note, speculator)

    def start(self, prompt: list[int], max_tokens: int, request: object = None) -> Job:
        job = Job(len(prompt), list(prompt), STUCK, lambda update: None)
        job.request = request or job
        self.scheduler.queue.submit(job)
        self.scheduler.start(job, max_tokens)
        return job

    def run(self) -> None:
        while not self.scheduler.queue.idle:
            self.scheduler.step()

    def answer(self, job: Job) -> tuple[int, ...]:
        (finished,) = [u for j, u in self.told if j is job and isinstance(u, Finished)]
        return finished.tokens

    def close(self) -> None:
        self.context.close()
        self.model.close()

    def _note(self, job: Job, update: Update) -> None:
        assert self.may_fail or not isinstance(update, Failed)
        self.told.append((job, update))


def prompt(length: int, seed: int = 0) -> list[int]:
    return [30 + (seed + i * (seed + 1)) % 60 for i in range(length)]
