"""Measures what requests do with models: tokens, times, and spans."""

import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager

from shepherd.backends.base import Backend, Generation, Prefilled
from shepherd.backends.forwarding import ForwardingBackend
from shepherd.events import Event, EventCallback, Stats, TextEvent
from shepherd.server.models import Models
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.traces import span
from shepherd.server.record import RequestRecord, current_record
from shepherd.session import Session


class Monitor:
    """Measures and traces what requests do with models."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    @asynccontextmanager
    async def leased(
        self, models: Models, name: str | None, keep_alive: float | None = None
    ) -> AsyncGenerator[Backend]:
        """`Models.lease`; the time until the model is there counts as a wait."""
        started = time.perf_counter()
        record = current_record()
        if record is not None:
            record.model = await models.identify(name)
        async with models.lease(name, keep_alive) as backend:
            if record is not None:
                record.waited += time.perf_counter() - started
            yield backend

    def watched(self, backend: Backend) -> Backend:
        """The backend for one request, whose work is measured."""
        return _WatchedBackend(backend, self.metrics)

    def note_usage(self, stats: Sequence[Stats], answers: int) -> None:
        """Count the tokens of generations; the first `answers` share one prompt."""
        prompts = (*stats[:1], *stats[answers:])
        prompt = sum(part.prompt_tokens for part in prompts)
        cached = sum(part.cached_tokens for part in prompts)
        self.note_tokens(prompt, cached, sum(part.completion_tokens for part in stats))

    def note_tokens(self, prompt: int, cached: int = 0, generated: int = 0) -> None:
        """Count tokens for the request that is being served."""
        record = current_record() or RequestRecord("")
        record.prompt_tokens += prompt
        record.cached_tokens += cached
        record.completion_tokens += generated
        for kind, tokens in (("prompt", prompt), ("cached", cached), ("generated", generated)):
            self.metrics.count_tokens(record.wire, record.model, kind, tokens)


class _WatchedBackend(ForwardingBackend):
    """A backend whose prompts and answers are measured for one request."""

    def __init__(self, backend: Backend, metrics: Metrics) -> None:
        super().__init__(backend)
        self._metrics = metrics
        self._record = current_record() or RequestRecord("")

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        with self._prefilling() as choices:
            choices.append(await self._backend.prefill_session(session, callback))
        return choices[0]

    async def prefill_choices(
        self, session: Session, callback: EventCallback, count: int
    ) -> list[Prefilled]:
        with self._prefilling() as choices:
            choices.extend(await self._backend.prefill_choices(session, callback, count))
        return choices

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        with span("decode", gen_ai__response__model=self._record.model) as answer:
            generation = await self._backend.generate_from_prefilled(
                prefilled, self._listener(callback, prefilled), max_tokens
            )
            answer.note_answer(generation)
        stats = generation.stats
        if not prefilled.wants_pieces and stats.completion_tokens > 1 and stats.decode_seconds:
            mean = stats.decode_seconds / stats.completion_tokens
            self._metrics.observe_next_token(self._record.model, mean)
        return generation

    @contextmanager
    def _prefilling(self) -> Generator[list[Prefilled]]:
        """Measure a prefill, whose choices the block adds to the list."""
        choices: list[Prefilled] = []
        started = time.perf_counter()
        with span("prefill", gen_ai__response__model=self._record.model) as prompt:
            yield choices
            prompt.note_prompt(choices[0].stats())
        elapsed = time.perf_counter() - started - choices[0].stats().prefill_seconds
        waited, self._record.waited = self._record.waited, 0.0
        self._metrics.observe_wait(self._record.model, max(0.0, waited + elapsed))

    def _listener(self, callback: EventCallback, prefilled: Prefilled) -> EventCallback:
        """The callback, before which the times of texts are noted."""
        metrics, record, model = self._metrics, self._record, self._record.model
        last: float | None = None

        def listen(event: Event) -> bool:
            nonlocal last
            if isinstance(event, TextEvent) and event.text:
                now = time.perf_counter()
                if record.first_token is None:
                    record.first_token = now - record.started
                    metrics.observe_first_token(record.wire, model, record.first_token)
                elif last is not None and prefilled.wants_pieces:
                    metrics.observe_next_token(model, now - last)
                last = now
            return callback(event)

        return listen
