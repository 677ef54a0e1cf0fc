"""Measures what requests do with models: tokens, times, and spans."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from shepherd.backends.base import Backend, Generation, Observer, Prefilled
from shepherd.events import Event, EventCallback, Stats, TextEvent
from shepherd.server.models import Models
from shepherd.server.operation.metrics import Metrics
from shepherd.server.operation.traces import span
from shepherd.server.record import RequestRecord, current_record
from shepherd.session import Session


class Monitor(Struct, frozen=True):
    """Measures and traces what requests do with models."""

    metrics: Metrics

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

    def watch(self) -> Observer:
        """Measures the prompts and answers of the request that is being served."""
        return _RequestWatch(self.metrics)

    def note(self, stats: Stats) -> None:
        """Count tokens and seconds for the request that is being served."""
        record = current_record() or RequestRecord("")  # outside of requests, one that nobody reads
        record.prompt_tokens += stats.prompt_tokens
        record.cached_tokens += stats.cached_tokens
        record.completion_tokens += stats.completion_tokens
        self.metrics.count_work(record.wire, record.model, stats)


class _RequestWatch(Observer):
    """Measures the prompts and answers of one request."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._record = current_record() or RequestRecord("")

    @asynccontextmanager
    async def prefilled(
        self, backend: Backend, session: Session, callback: EventCallback, count: int = 1
    ) -> AsyncGenerator[Sequence[Prefilled]]:
        """As the base; notes the tokens of the prompt, and how long the request has waited."""
        record, started = self._record, time.perf_counter()
        async with AsyncExitStack() as held:
            with span("prefill", gen_ai__response__model=record.model) as prompt:
                prefilling = super().prefilled(backend, session, callback, count)
                prompts = await held.enter_async_context(prefilling)
                stats = prompts[0].stats()
                prompt.note(
                    gen_ai__usage__input_tokens=stats.prompt_tokens,
                    shepherd__cached_tokens=stats.cached_tokens,
                )
            in_queue = time.perf_counter() - started - stats.prefill_seconds
            # the wait for the model counts once, and not again with the prompt of the next round
            for_model, record.waited = record.waited, 0.0
            # the engine's seconds can be a little more than those that passed here
            self._metrics.observe_wait(record.model, max(0.0, for_model + in_queue))
            yield prompts

    async def generate(
        self, backend: Backend, prompt: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        """As the base; notes when texts come, and the tokens of the answer."""
        with span("decode", gen_ai__response__model=self._record.model) as answer:
            listen = self._listener(callback, prompt)
            generation = await backend.generate_from_prefilled(prompt, listen, max_tokens)
            stats = generation.stats
            answer.note(
                gen_ai__usage__output_tokens=stats.completion_tokens,
                shepherd__finish_reason=str(generation.finish_reason),
            )
        # a text that nobody reads as it grows can come at once, so its tokens have a mean only
        if not prompt.wants_pieces and stats.completion_tokens > 1 and stats.decode_seconds:
            mean = stats.decode_seconds / stats.completion_tokens
            self._metrics.observe_next_token(self._record.model, mean)
        return generation

    def _listener(self, callback: EventCallback, prefilled: Prefilled) -> EventCallback:
        """The callback, before which the times of texts are noted.

        The first text counts from the arrival of the request, each further one from the one before.
        """
        metrics, record, model = self._metrics, self._record, self._record.model
        last_text_at: float | None = None

        def listen(event: Event) -> bool:
            nonlocal last_text_at
            if isinstance(event, TextEvent) and event.text:
                now = time.perf_counter()
                if record.first_token is None:
                    record.first_token = now - record.started
                    metrics.observe_first_token(record.wire, model, record.first_token)
                # a text in larger pieces would count the time of many tokens as that of one
                elif last_text_at is not None and prefilled.wants_pieces:
                    metrics.observe_next_token(model, now - last_text_at)
                last_text_at = now
            return callback(event)

        return listen
