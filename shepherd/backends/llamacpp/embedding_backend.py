"""The backend of a model that makes vectors, in-process."""

import asyncio
import weakref
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from shepherd.backends import embedding
from shepherd.backends.base import Backend, BackendStatus, Generation, ModelInfo, Prefilled
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.embedding_engine import PooledEngine, Pooling, kind_of
from shepherd.backends.tenant import current_tenant
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import BackendError, BusyError, InvalidRequestError
from shepherd.events import EventCallback
from shepherd.messages import Message
from shepherd.session import Session
from shepherd.tasks import end_tasks

_Tokens = Sequence[int]
Vector = Sequence[float]
Compute = Callable[[Sequence[_Tokens]], Awaitable[Sequence[Vector]]]


class _Waiting(Struct, eq=False):
    """The texts of one request; `next_text` is the index of the first that waits."""

    texts: Sequence[_Tokens]
    done: asyncio.Future[None]
    vectors: list[Vector] = field(default_factory=list[Vector])
    next_text: int = 0

    def add(self, vector: Vector) -> None:
        """Take the vector of the next text that was computed."""
        self.vectors.append(vector)
        if len(self.vectors) == len(self.texts) and not self.done.done():
            self.done.set_result(None)


class EmbeddingQueue(Struct, eq=False):
    """Passes texts to `compute`: at most `max_texts` at once, of about `max_tokens` together.

    All requests get their turn in each batch. `max_requests` of a tenant may wait or run.
    """

    _compute: Compute
    _max_tokens: int
    _max_texts: int
    _max_requests: int
    _waiting: deque[_Waiting] = field(default_factory=deque[_Waiting])
    _running: Counter[str] = field(default_factory=Counter[str])
    """How many requests of each tenant run or wait."""
    _pump: asyncio.Task[None] | None = None

    async def vectors(self, texts: Sequence[_Tokens]) -> Sequence[Vector]:
        """The vector of each text; raises BackendError, and BusyError if too many wait.

        A cancelled call leaves the queue at once.
        """
        if not texts:
            return []
        tenant = current_tenant().name
        own = self._running[tenant]
        if own >= self._max_requests:
            raise BusyError(f"{own} requests are running or waiting; try again later")
        # `done` is set with the last vector, or to an error.
        request = _Waiting(texts, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._running[tenant] += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        try:
            await request.done
        finally:
            self._running[tenant] -= 1
            if request in self._waiting:  # it was cancelled
                self._waiting.remove(request)
        return request.vectors

    @property
    def running(self) -> int:
        """The number of requests that run or wait."""
        return self._running.total()

    async def aclose(self) -> None:
        """End all requests with an error."""
        if self._pump is not None and not self._pump.done():
            await end_tasks(self._pump)
        _fail(self._waiting, BackendError("The model was closed."))

    async def _run(self) -> None:
        """Compute batch after batch, in a task that ends when no request waits."""
        while self._waiting:
            batch = self._next_batch()
            try:
                vectors = await self._compute([tokens for _, tokens in batch])
            except BackendError as error:
                _fail((request for request, _ in batch), error)
                # Their other texts are not computed.
                for request in [waiting for waiting in self._waiting if waiting.done.done()]:
                    self._waiting.remove(request)
                continue
            except BaseException:  # `aclose` has cancelled the task
                _fail((request for request, _ in batch), BackendError("The model was closed."))
                raise
            for (request, _), vector in zip(batch, vectors, strict=True):
                request.add(vector)

    def _next_batch(self) -> list[tuple[_Waiting, _Tokens]]:
        """Take one text of each request in turn, as many as fit; at least one."""
        batch: list[tuple[_Waiting, _Tokens]] = []
        size = 0
        while self._waiting and len(batch) < self._max_texts:
            request = self._waiting[0]
            tokens = request.texts[request.next_text]
            size += len(tokens)
            if batch and size > self._max_tokens:
                break
            batch.append((request, tokens))
            request.next_text += 1
            self._waiting.popleft()
            if request.next_text < len(request.texts):  # it waits behind all others again
                self._waiting.append(request)
        return batch


def _fail(requests: Iterable[_Waiting], error: BackendError) -> None:
    """End requests that have not ended, each with an error of its own."""
    for request in requests:
        if not request.done.done():  # one request may have several texts in a batch
            request.done.set_exception(BackendError(str(error)))


class LlamaEmbedder(embedding.Embedder):
    """Makes vectors, or scores if the model is for reranking."""

    def __init__(
        self, name: str, engine: PooledEngine, queue: EmbeddingQueue, text: TextThread
    ) -> None:
        self._name = name
        self.engine = engine
        self._queue = queue
        self._text = text

    async def embed(self, request: embedding.EmbeddingInput) -> embedding.Embeddings:
        """A vector for each input; raises InvalidRequestError and ContextFullError."""
        self._check(ranks=False)
        embedding.check_dimensions(request.dimensions, self.engine.context.width)
        texts = await self._text.run(self.engine.reader.inputs, request)
        # Beside other texts, the last bits of a number differ: equal inputs are read once.
        distinct = dict.fromkeys(map(tuple, texts))
        by_text = dict(zip(distinct, await self._queue.vectors([*distinct]), strict=True))
        vectors, size = [by_text[tuple(text)] for text in texts], request.dimensions
        # Not on the event loop: there are thousands of numbers in a vector.
        scaled = await self._text.run(
            lambda: [embedding.shortened(vector, size) for vector in vectors]
        )
        return embedding.Embeddings(scaled, sum(map(len, texts)))

    async def rank(self, query: str, documents: Sequence[str]) -> embedding.Ranking:
        """How well each document answers the query: the only number of its pair's vector."""
        self._check(ranks=True)
        pairs = await self._text.run(self.engine.reader.pairs, query, documents)
        vectors = await self._queue.vectors(pairs)
        return embedding.Ranking([vector[0] for vector in vectors], sum(map(len, pairs)))

    async def count(self, request: embedding.EmbeddingInput | embedding.RankingInput) -> int:
        """The tokens that the request would take."""
        reader = self.engine.reader
        if isinstance(request, embedding.RankingInput):
            self._check(ranks=True)
            texts = await self._text.run(reader.pairs, request.query, request.documents)
        else:
            self._check(ranks=False)
            texts = await self._text.run(reader.inputs, request)
        return sum(map(len, texts))

    def _check(self, *, ranks: bool) -> None:
        """Raise an error if a file has changed, or unless the model ranks, or makes vectors."""
        self.engine.model.files.check()
        if ranks == (self.engine.context.pooling is Pooling.RANK):
            return
        can = "makes embeddings and can't rerank" if ranks else "reranks and makes no embeddings"
        raise InvalidRequestError(f"The model {self._name} {can}.", "model")


class LlamaEmbeddingBackend(Backend):
    """One model; texts of all requests share its batches.

    It runs beside other models on threads of its own, one for tokens and one for vectors. Used from
    the event loop that loaded it.
    """

    def __init__(
        self, name: str, engine: PooledEngine, max_queue: int, compute: TextThread
    ) -> None:
        """Takes ownership of the engine and the thread; use `load`."""
        self._name = name
        self.engine = engine
        self._compute = compute
        self._text = text = TextThread()
        context = engine.context
        self._queue = EmbeddingQueue(
            partial(compute.run, context.compute),  # on the thread that owns the context
            context.batch_size,
            context.sequences,
            context.sequences + max_queue,
        )
        self.embedder = LlamaEmbedder(name, engine, self._queue, text)
        # A backend that nobody closes must not keep its threads and memory.
        self._shut_down = weakref.finalize(self, _shut_down, text, compute, engine)

    @classmethod
    async def load(
        cls, path: Path, settings: LlamaCppSection, pooling: Pooling, *, name: str = ""
    ) -> "LlamaEmbeddingBackend":
        """Load a GGUF file off the event loop; `pooling` is its own.

        Raises ModelLoadError, or ConfigError for a bad setting.
        """
        compute = TextThread("llama.cpp vectors")
        loading = compute.post(PooledEngine.load, path, settings, pooling)
        assert loading is not None  # only a closed thread takes no work
        try:
            engine = await asyncio.wrap_future(loading)
        except BaseException:
            # In a thread, which a second cancelling does not end.
            await asyncio.to_thread(_discard, loading, compute)
            raise
        return cls(name or path.stem, engine, settings.max_queue, compute)

    @property
    def info(self) -> ModelInfo:
        context = self.engine.context
        return ModelInfo(
            self._name,
            "llamacpp",
            context.size,
            vision=False,
            kind=kind_of(context.pooling),
            embedder=self.embedder,
        )

    @property
    def status(self) -> BackendStatus:
        context = self.engine.context.native
        return BackendStatus(batches=context.decoded_batches, batch_parts=context.decoded_parts)

    @property
    def running(self) -> int:
        """The number of requests that run or wait."""
        return self._queue.running

    @property
    def alive(self) -> bool:
        return not self._compute.closed

    async def reachable(self) -> bool:
        """Whether both threads make progress."""
        return self.alive and not (self._compute.stalled or self._text.stalled)

    async def prefill_session(self, session: Session, callback: EventCallback) -> Prefilled:
        raise self._refusal()

    async def generate_from_prefilled(
        self, prefilled: Prefilled, callback: EventCallback, max_tokens: int = 0
    ) -> Generation:
        raise self._refusal()

    async def count_message_tokens(self, session: Session, message: Message) -> int:
        raise self._refusal()

    async def aclose(self) -> None:
        await self._queue.aclose()
        await asyncio.to_thread(self._shut_down)

    def _refusal(self) -> InvalidRequestError:
        """The error for each use of a model that writes no text as one that does."""
        ranks = self.engine.context.pooling is Pooling.RANK
        message = (
            f"The model {self._name} {'reranks' if ranks else 'makes embeddings'} and can't write "
            f"text; use it at {'/v1/rerank' if ranks else '/v1/embeddings'} of a server."
        )
        return InvalidRequestError(message, "model")


def _discard(loading: Future[PooledEngine], compute: TextThread) -> None:
    """Wait for the end of a loading that failed or was cancelled, and free its engine."""
    compute.close()
    if not loading.cancelled() and loading.exception() is None:
        loading.result().close()


def _shut_down(text: TextThread, compute: TextThread, engine: PooledEngine) -> None:
    """Stop both threads before the engine is freed."""
    text.close()
    compute.close()
    engine.close()
