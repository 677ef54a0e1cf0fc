"""The backend of a model that makes vectors, in-process."""

import asyncio
import weakref
from collections.abc import Sequence
from pathlib import Path

from shepherd.backends.base import Backend, Generation, ModelInfo, Prefilled
from shepherd.backends.embedding import (
    Embedder,
    EmbeddingInput,
    Embeddings,
    Ranking,
    RankingInput,
    check_dimensions,
    shortened,
)
from shepherd.backends.inprocess.threads import TextThread
from shepherd.backends.llamacpp.embedding.engine import PooledEngine
from shepherd.backends.llamacpp.embedding.pooling import Pooling, kind_of
from shepherd.backends.llamacpp.embedding.queue import EmbeddingQueue, Vector
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.errors import InvalidRequestError
from shepherd.events import EventCallback
from shepherd.messages import Message
from shepherd.session import Session


class LlamaEmbedder(Embedder):
    """Makes vectors, or scores if the model is for reranking."""

    def __init__(
        self, name: str, engine: PooledEngine, queue: EmbeddingQueue, text: TextThread
    ) -> None:
        self._name = name
        self.engine = engine
        self._queue = queue
        self._text = text

    async def embed(self, request: EmbeddingInput) -> Embeddings:
        self._check(ranks=False)
        check_dimensions(request.dimensions, self.engine.context.width)
        texts = await self._text.run(self.engine.reader.inputs, request)
        vectors = await self._queue.vectors(texts)
        scaled = await self._text.run(_scaled, vectors, request.dimensions)
        return Embeddings(scaled, sum(map(len, texts)))

    async def rank(self, query: str, documents: Sequence[str]) -> Ranking:
        self._check(ranks=True)
        pairs = await self._text.run(self.engine.reader.pairs, query, documents)
        vectors = await self._queue.vectors(pairs)
        return Ranking([vector[0] for vector in vectors], sum(map(len, pairs)))

    async def count(self, request: EmbeddingInput | RankingInput) -> int:
        ranks = isinstance(request, RankingInput)
        self._check(ranks=ranks)
        reader = self.engine.reader
        if isinstance(request, RankingInput):
            texts = await self._text.run(reader.pairs, request.query, request.documents)
        else:
            texts = await self._text.run(reader.inputs, request)
        return sum(map(len, texts))

    def _check(self, *, ranks: bool) -> None:
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
            self._vectors, context.batch_size, context.sequences, context.sequences + max_queue
        )
        self._embedder = LlamaEmbedder(name, engine, self._queue, text)
        self._shut_down = weakref.finalize(self, _shut_down, text, compute, engine)

    @classmethod
    async def load(
        cls, path: Path, settings: LlamaCppSection, pooling: Pooling, *, name: str = ""
    ) -> "LlamaEmbeddingBackend":
        """Load a GGUF file off the event loop; `pooling` is its own.

        Raises ModelLoadError, or ConfigError for a bad setting.
        """
        compute = TextThread("llama.cpp vectors")
        loading = asyncio.ensure_future(compute.run(PooledEngine.load, path, settings, pooling))
        try:
            engine = await asyncio.shield(loading)
        except BaseException:
            await asyncio.wait({loading})
            if not loading.exception():
                loading.result().close()
            compute.close()
            raise
        return cls(name or path.stem, engine, settings.max_queue, compute)

    @property
    def info(self) -> ModelInfo:
        kind = kind_of(self.engine.context.pooling)
        return ModelInfo(self._name, "llamacpp", self.engine.context.size, vision=False, kind=kind)

    @property
    def embedder(self) -> Embedder:
        return self._embedder

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

    async def used_sequences(self) -> int:
        """The sequences that hold tokens between two batches: none."""
        return await self._compute.run(lambda: self.engine.context.used_sequences)

    async def aclose(self) -> None:
        await self._queue.aclose()
        await asyncio.to_thread(self._shut_down)

    async def _vectors(self, texts: Sequence[Sequence[int]]) -> Sequence[Vector]:
        return await self._compute.run(self.engine.context.compute, texts)

    def _refusal(self) -> InvalidRequestError:
        ranks = self.engine.context.pooling is Pooling.RANK
        message = (
            f"The model {self._name} {'reranks' if ranks else 'makes embeddings'} and can't write "
            f"text; use it at {'/v1/rerank' if ranks else '/v1/embeddings'} of a server."
        )
        return InvalidRequestError(message, "model")


def _scaled(vectors: Sequence[Vector], dimensions: int) -> list[Vector]:
    return [shortened(vector, dimensions) for vector in vectors]


def _shut_down(text: TextThread, compute: TextThread, engine: PooledEngine) -> None:
    """Stop both threads before the engine is freed."""
    text.close()
    compute.close()
    engine.close()
