"""Texts of many requests, computed together in batches. Event loop's thread only."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from shepherd.errors import BackendError, BusyError
from shepherd.tasks import end_tasks

Tokens = Sequence[int]
Vector = Sequence[float]
Compute = Callable[[Sequence[Tokens]], Awaitable[Sequence[Vector]]]


@dataclass(slots=True, eq=False)
class _Request:
    """The texts of one request; `next` is the index of the first that waits."""

    texts: Sequence[Tokens]
    done: asyncio.Future[None]
    vectors: list[Vector] = field(default_factory=list[Vector])
    next: int = 0

    @property
    def is_batched(self) -> bool:
        """Whether each text is in a batch or done."""
        return self.next == len(self.texts)

    def add(self, vector: Vector) -> None:
        """Take the vector of the next text that was computed."""
        self.vectors.append(vector)
        if len(self.vectors) == len(self.texts) and not self.done.done():
            self.done.set_result(None)


class EmbeddingQueue:
    """Passes texts to `compute`: at most `max_texts` at once, of about `max_tokens` together.

    All requests get their turn in each batch. `max_requests` may wait or run.
    """

    def __init__(
        self, compute: Compute, max_tokens: int, max_texts: int, max_requests: int
    ) -> None:
        self._compute = compute
        self._max_tokens = max_tokens
        self._max_texts = max_texts
        self._max_requests = max_requests
        self._waiting: deque[_Request] = deque()
        self._running = 0
        self._pump: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        """The number of requests that run or wait."""
        return self._running

    async def vectors(self, texts: Sequence[Tokens]) -> Sequence[Vector]:
        """The vector of each text; raises BackendError, and BusyError if too many wait.

        A cancelled call leaves the queue at once.
        """
        if not texts:
            return []
        if self._running >= self._max_requests:
            raise BusyError(f"{self._running} requests are running or waiting; try again later")
        request = _Request(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._running += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        try:
            await request.done
        finally:
            self._running -= 1
            if request in self._waiting:
                self._waiting.remove(request)
        return request.vectors

    async def aclose(self) -> None:
        """End all requests with an error."""
        if self._pump is not None and not self._pump.done():
            await end_tasks(self._pump)
        _fail(self._waiting, BackendError("The model was closed."))

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                vectors = await self._compute([tokens for _, tokens in batch])
            except BackendError as error:
                _fail((request for request, _ in batch), error)
                self._drop_failed()
                continue
            except BaseException:
                _fail((request for request, _ in batch), BackendError("The model was closed."))
                raise
            for (request, _), vector in zip(batch, vectors, strict=True):
                request.add(vector)

    def _take(self) -> list[tuple[_Request, Tokens]]:
        """The next batch: one text of each request in turn, as many as fit; at least one."""
        batch: list[tuple[_Request, Tokens]] = []
        size = 0
        while self._waiting and len(batch) < self._max_texts:
            request = self._waiting[0]
            tokens = request.texts[request.next]
            size += len(tokens)
            if batch and size > self._max_tokens:
                break
            batch.append((request, tokens))
            request.next += 1
            self._waiting.popleft()
            if not request.is_batched:
                self._waiting.append(request)
        return batch

    def _drop_failed(self) -> None:
        for request in [request for request in self._waiting if request.done.done()]:
            self._waiting.remove(request)


def _fail(requests: Iterable[_Request], error: BackendError) -> None:
    for request in requests:
        if not request.done.done():
            request.done.set_exception(BackendError(str(error)))
