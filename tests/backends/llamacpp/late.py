"""A device that computes later, as a GPU does: calls return at once, and reading results waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shepherd.backends.inprocess.answer import Failed, Finished, Update
from shepherd.backends.llamacpp.cache.sequence import HostCache
from shepherd.backends.llamacpp.cache.sequences import SequencePool
from shepherd.backends.llamacpp.native.context import (
    DECODED,
    Interrupt,
    NativeContext,
    Span,
    Stopwatch,
)
from shepherd.backends.llamacpp.native.model import NativeModel
from shepherd.backends.llamacpp.native.params import context_params, model_params
from shepherd.backends.llamacpp.scheduling.job import Job
from shepherd.backends.llamacpp.scheduling.scheduler import Scheduler
from shepherd.backends.llamacpp.scheduling.speculator import Speculator
from shepherd.sampling import Sampling
from tests.backends.llamacpp.support import settings

CALL_SECONDS = 1e-4
"""What a call takes before it returns."""


@dataclass
class Device:
    """The device's clock moves only with the work that is done; times are in seconds.

    `waits` counts how often somebody waited while there was work.
    """

    batch: float = 0.01
    token: float = 1e-4
    copied_bytes: float = 1e8
    now: float = 0.0
    busy_until: float = 0.0
    waits: int = 0
    most_queued: float = 0.0

    def clock(self) -> float:
        return self.now

    def seconds(self, tokens: int) -> float:
        """What a batch really takes."""
        return self.batch + self.token * tokens

    def queue(self, tokens: int) -> None:
        self.now += CALL_SECONDS
        self.busy_until = max(self.now, self.busy_until) + self.seconds(tokens)
        self.most_queued = max(self.most_queued, self.busy_until - self.now)

    def wait(self) -> None:
        self.waits += self.busy_until > self.now
        self.now = max(self.now, self.busy_until)

    def copy(self, size: int) -> None:
        self.wait()
        self.now += size / self.copied_bytes


class LateContext(NativeContext):
    """A real context on such a device. `is_known` is false where nobody expects early returns."""

    def __init__(
        self, model: NativeModel, params: Any, device: Device, *, is_known: bool = True
    ) -> None:
        super().__init__(model, params)
        self.device = device
        self.returns_early = is_known
        self.stopwatch = Stopwatch(self, device.clock)
        self.can_interrupt = False

    @property
    def handle(self) -> Any:
        """Samplers read the results through it."""
        self.device.wait()
        return super().handle

    def decode(self, spans: Sequence[Span], interrupt: Interrupt | None = None) -> int:
        code = super().decode(spans, interrupt)
        if code == DECODED:
            self.device.queue(sum(len(span.tokens) for span in spans))
        return code

    def synchronize(self) -> None:
        super().synchronize()
        self.device.wait()

    def save(self, sequence: int, *, partial: bool) -> bytearray:
        state = super().save(sequence, partial=partial)
        self.device.copy(len(state))
        return state

    def restore(self, sequence: int, state: bytearray, *, partial: bool) -> bool:
        self.device.copy(len(state))
        return super().restore(sequence, state, partial=partial)


class Costs(Speculator):
    """A speculator that keeps what it learns from."""

    batches: list[tuple[int, float]]

    def note_batch(self, tokens: int, seconds: float, prompt: tuple[int, float]) -> None:
        self.batches.append((tokens, seconds))
        super().note_batch(tokens, seconds, prompt)


class LateEngine:
    """A scheduler on such a device, stepped by hand."""

    def __init__(
        self, path: Path, device: Device, *, parallel: int = 2, is_known: bool = True
    ) -> None:
        own = settings(n_batch=512)
        self.device = device
        self.model = NativeModel(path, model_params(own, {}))
        params = context_params(own, parallel, self.model.traits)
        self.context = LateContext(self.model, params, device, is_known=is_known)
        self.pool = SequencePool(
            self.context, self.model.window, self.model.vocab.controls, HostCache(1 << 26)
        )
        device.wait()
        self.costs = Costs(self.context, always=True)
        self.costs.batches = []
        self.ended: dict[Job, Finished] = {}
        self.scheduler = Scheduler(self.context, self.pool, self._note, self.costs)

    def submit(self, prompt: Sequence[int], max_tokens: int) -> Job:
        sampling = Sampling(temperature=0.0, ignore_eos=True)
        job = Job(len(prompt), list(prompt), sampling, lambda update: None)
        self.scheduler.queue.submit(job)
        self.scheduler.start(job, max_tokens)
        return job

    def run(self) -> None:
        while not self.scheduler.queue.idle:
            self.scheduler.step()

    def answer(self, prompt: Sequence[int], max_tokens: int) -> Finished:
        job = self.submit(prompt, max_tokens)
        self.run()
        return self.ended[job]

    def close(self) -> None:
        self.context.close()
        self.model.close()

    def _note(self, job: Job, update: Update) -> None:
        assert not isinstance(update, Failed)
        if isinstance(update, Finished):
            self.ended[job] = update
