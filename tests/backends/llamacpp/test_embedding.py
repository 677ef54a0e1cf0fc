"""Vectors and scores of models that run in this process."""

import asyncio
import math
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path, PosixPath
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import gguf
import httpx
import pytest

from shepherd.backends.embedding import Embedder, EmbeddingInput, Parts
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.embedding_backend import LlamaEmbeddingBackend
from shepherd.backends.llamacpp.embedding_engine import PooledContext, Pooling, pooling_of
from shepherd.backends.llamacpp.native.bindings import bindings
from shepherd.backends.opening import open_local
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.sections import ModelSection
from shepherd.config.settings import Config
from shepherd.errors import (
    BackendError,
    BusyError,
    ContextFullError,
    InvalidRequestError,
    ModelLoadError,
)
from shepherd.models import builtin_model
from tests.backends.llamacpp import tiny
from tests.backends.llamacpp.embedders import CLS, CONTEXT, SEP, WIDTH, write_bert
from tests.backends.llamacpp.support import (
    EXACT,
    Recorder,
    conversation,
    generate,
    loaded,
    settings,
)
from tests.backends.llamacpp.vocabularies import sentencepiece
from tests.patience import PATIENCE
from tests.server.harness import RunningServer

TEXTS = ["the dog sleeps in the house", "cat", "", "on " * 100, "the cat sleeping there", "dogs!"]


def write(path: Path, kind: str) -> Path:
    """A BERT with that pooling, or a llama that reads from left to right."""
    if kind != "causal":
        pooling = None if kind == "NONE" else gguf.PoolingType[kind]
        return write_bert(path / f"bert-{kind.lower()}.gguf", pooling)

    def vocabulary(writer: gguf.GGUFWriter) -> int:
        writer.add_pooling_type(gguf.PoolingType.LAST)
        return sentencepiece(blank=True, bos=True)(writer)

    return tiny.write_llama(path / "causal.gguf", vocabulary=vocabulary)


@asynccontextmanager
async def embedding(path: Path, **values: object) -> AsyncGenerator[LlamaEmbeddingBackend]:
    pooling = pooling_of(path)
    assert pooling is not None
    backend = await LlamaEmbeddingBackend.load(path, settings(**values), pooling)
    try:
        yield backend
    finally:
        await backend.aclose()


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("bert"), "MEAN")


async def vectors(embedder: Embedder, *inputs: Parts) -> list[list[float]]:
    result = await embedder.embed(EmbeddingInput(inputs))
    return [list(vector) for vector in result.vectors]


def close(vector: list[float]) -> Any:
    return pytest.approx(vector, abs=1e-4)


@pytest.mark.parametrize("kind", ["MEAN", "CLS", "LAST", "NONE", "causal"])
async def test_a_text_alone_has_the_vector_that_it_has_among_others(
    kind: str, tmp_path: Path
) -> None:
    async with embedding(write(tmp_path, kind), **EXACT) as backend:
        together = await vectors(backend.embedder, *((text,) for text in TEXTS))
        for text, vector in zip(TEXTS, together, strict=True):
            assert await vectors(backend.embedder, (text,)) == [close(vector)]
            assert len(vector) == WIDTH
            assert math.hypot(*vector) == pytest.approx(1)
    assert together[0] != close(together[1])


async def test_equal_inputs_are_read_once_and_have_equal_vectors(bert: Path) -> None:
    async with embedding(bert, **EXACT) as backend:
        once = await backend.embedder.embed(EmbeddingInput([("the dog",), ("cat",)]))
        parts = backend.status.batch_parts
        inputs = [("the dog",), ("cat",)] * 2
        twice = await backend.embedder.embed(EmbeddingInput(inputs))
        assert backend.status.batch_parts == 2 * parts
    assert [*twice.vectors[2:]] == [*twice.vectors[:2]]
    assert twice.tokens == 2 * once.tokens


async def test_pairs_alone_have_the_scores_that_they_have_together(tmp_path: Path) -> None:
    async with embedding(write(tmp_path, "RANK"), **EXACT) as backend:
        ranking = await backend.embedder.rank("the dog", TEXTS)
        alone = [await backend.embedder.rank("the dog", [text]) for text in TEXTS]
        with pytest.raises(InvalidRequestError, match="no embeddings"):
            await vectors(backend.embedder, ("dog",))
    assert list(ranking.scores) == close([single.scores[0] for single in alone])
    assert ranking.tokens == sum(single.tokens for single in alone)
    assert len(set(ranking.scores)) == len(TEXTS)


async def test_numbers_of_tokens_are_read_as_they_are(bert: Path) -> None:
    async with embedding(bert, **EXACT) as backend:
        reader = backend.engine.reader
        [tokens] = reader.inputs(EmbeddingInput([("the dog",)]))
        assert (tokens[0], tokens[-1]) == (CLS, SEP)
        by_text = await vectors(backend.embedder, ("the dog",))
        assert await vectors(backend.embedder, tokens) == [close(by_text[0])]
        for wrong in (-1, 10_000_000):
            with pytest.raises(InvalidRequestError, match="no token") as refused:
                await vectors(backend.embedder, (wrong,))
            assert refused.value.param == "input"


@pytest.mark.parametrize("words", [CONTEXT - 1, CONTEXT, 5000])
async def test_a_long_text_is_refused_with_its_tokens(bert: Path, words: int) -> None:
    async with embedding(bert) as backend:
        assert backend.info.context_size == CONTEXT
        fits = await vectors(backend.embedder, ("dog " * (CONTEXT - 2),))
        with pytest.raises(ContextFullError) as refused:
            await vectors(backend.embedder, ("cat",), ("dog " * words,))
        assert refused.value.prompt_tokens == words + 2
        assert refused.value.tokens_over == words + 2 - CONTEXT
        cut = EmbeddingInput([("dog " * words,)], truncate=True)
        result = await backend.embedder.embed(cut)
        assert result.tokens == CONTEXT
        assert list(result.vectors[0]) == close(fits[0])


async def test_a_text_of_megabytes_is_refused(bert: Path) -> None:
    async with embedding(bert) as backend:
        with pytest.raises(ContextFullError):
            await vectors(backend.embedder, ("dog " * 1_000_000,))
        result = await backend.embedder.embed(
            EmbeddingInput([("dog " * 1_000_000,)], truncate=True)
        )
        assert result.tokens == CONTEXT


async def test_dimensions_are_at_most_the_models(bert: Path) -> None:
    async with embedding(bert) as backend:
        [whole] = await vectors(backend.embedder, ("dog",))
        short = await backend.embedder.embed(EmbeddingInput([("dog",)], dimensions=8))
        length = math.hypot(*whole[:8])
        assert list(short.vectors[0]) == close([value / length for value in whole[:8]])
        with pytest.raises(InvalidRequestError, match="64 numbers"):
            await backend.embedder.embed(EmbeddingInput([("dog",)], dimensions=65))


@pytest.mark.parametrize("kind", ["MEAN", "causal"])
async def test_many_requests_at_once_get_their_own_vectors(kind: str, tmp_path: Path) -> None:
    async with embedding(write(tmp_path, kind), **EXACT) as backend:
        inputs = [[(f"dog {i} {j}" + " in" * (i % 7),) for j in range(i % 5)] for i in range(12)]
        results = await asyncio.gather(*(vectors(backend.embedder, *some) for some in inputs))
        for some, got in zip(inputs, results, strict=True):
            assert got == [close(v) for v in await vectors(backend.embedder, *some)]
        assert backend.running == 0


@pytest.mark.parametrize("kind", ["MEAN", "causal"])
async def test_a_cancelled_request_leaves_nothing(kind: str, tmp_path: Path) -> None:
    async with embedding(write(tmp_path, kind), **EXACT) as backend:
        long = [("dog cat " * 40 + str(number),) for number in range(300)]
        task = asyncio.create_task(vectors(backend.embedder, *long))
        expected = await vectors(backend.embedder, ("the dog",))
        while not backend.running:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert backend.running == 0
        assert await vectors(backend.embedder, ("the dog",)) == [close(expected[0])]
        assert used_sequences(backend.engine.context) == 0


def used_sequences(context: PooledContext) -> int:
    """The sequences that hold tokens; an encoder has no memory."""
    lib = bindings()
    memory = lib.llama_get_memory(context.handle)
    if not memory:
        return 0
    return sum(lib.llama_memory_seq_pos_max(memory, i) >= 0 for i in range(context.sequences))


class HeldPath(PosixPath):
    """A model file that is not read before `go` is set."""

    reached = Event()
    go = Event()

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        self.reached.set()
        assert self.go.wait(PATIENCE)
        return super().is_dir()


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    return any(os.path.realpath(file) == str(path) for file in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="the list of open files is read from /proc")
async def test_a_loading_that_is_cancelled_twice_frees_the_model(bert: Path) -> None:
    path = HeldPath(bert)
    load = LlamaEmbeddingBackend.load(path, settings(), Pooling.CLS)
    task = asyncio.create_task(load)
    await asyncio.to_thread(path.reached.wait, PATIENCE)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
    path.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(PATIENCE):
        while is_open(path) or any("vectors" in thread.name for thread in enumerate_threads()):
            await asyncio.sleep(0.01)


async def test_too_many_requests_are_refused(bert: Path) -> None:
    async with embedding(bert, max_queue=0) as backend:
        some = [("dog " * (80 + number),) for number in range(20)]
        tasks = [asyncio.create_task(vectors(backend.embedder, *some)) for _ in range(66)]
        while sum(task.done() for task in tasks) < 2:
            await asyncio.sleep(0.001)
        refused = [task for task in tasks if task.done() and task.exception()]
        assert len(refused) == 2
        assert all(isinstance(task.exception(), BusyError) for task in refused)
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_closing_ends_all_requests(bert: Path) -> None:
    async with embedding(bert) as backend:
        texts = [("dog " * 100 + str(number),) for number in range(200)]
        tasks = [asyncio.create_task(vectors(backend.embedder, *texts)) for _ in range(3)]
        while backend.running < 3:
            await asyncio.sleep(0.001)
    async with asyncio.timeout(PATIENCE):
        done = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, BackendError) for result in done)
    assert not backend.alive
    with pytest.raises(BackendError, match="closed"):
        await vectors(backend.embedder, ("dog",))


async def test_it_writes_no_text(bert: Path) -> None:
    async with embedding(bert) as backend:
        with pytest.raises(InvalidRequestError, match="/v1/embeddings"):
            await backend.prefill_session(conversation("hi"), Recorder())
        with pytest.raises(InvalidRequestError, match="can't rerank"):
            await backend.embedder.rank("dog", ["cat"])
    with pytest.raises(ModelLoadError, match="can generate text"):
        await LlamaCppBackend.load(bert, settings())


async def test_it_works_beside_a_chat(bert: Path) -> None:
    async with loaded() as chat, embedding(bert, **EXACT) as backend:
        expected = await vectors(backend.embedder, ("the dog",))
        chatting = asyncio.create_task(generate(chat, conversation("Hello!"), max_tokens=16))
        count = 0
        while not chatting.done():
            assert await vectors(backend.embedder, ("the dog",)) == [close(expected[0])]
            count += 1
        assert count
        assert (await chatting).message.content


async def test_the_settings_open_it_by_its_file(bert: Path, tmp_path: Path) -> None:
    config = Config(model=ModelSection(name=str(bert)), llamacpp=LlamaCppSection(threads=1))
    backend = await open_local(config)
    assert isinstance(backend, LlamaEmbeddingBackend)
    assert backend.info.id == bert.stem
    await backend.aclose()
    assert pooling_of(builtin_model()) is None
    assert pooling_of(write(tmp_path, "causal")) is Pooling.LAST
    assert pooling_of(write(tmp_path, "NONE")) is Pooling.NONE


@pytest.fixture(scope="module")
def server(bert: Path) -> Iterator[RunningServer[LlamaEmbeddingBackend]]:
    loop = asyncio.new_event_loop()
    loading = LlamaEmbeddingBackend.load(bert, settings(**EXACT), Pooling.MEAN)
    with RunningServer(loop.run_until_complete(loading), loop=loop) as running:
        yield running


def test_the_server_tells_the_exact_tokens(server: RunningServer[LlamaEmbeddingBackend]) -> None:
    url, body = f"{server.url}/v1/embeddings", {"input": "dog " * 200}
    error = httpx.post(url, json=body, timeout=PATIENCE).json()["error"]
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (202, CONTEXT)
    assert error["code"] == "context_length_exceeded"


def test_the_server_refuses_to_chat(server: RunningServer[LlamaEmbeddingBackend]) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    url = f"{server.url}/v1/chat/completions"
    response = httpx.post(url, json=body, timeout=PATIENCE)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "model"


def test_hanging_up_stops_the_work(server: RunningServer[LlamaEmbeddingBackend]) -> None:
    body = {"input": ["dog cat " * 60 + str(number) for number in range(2000)]}
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{server.url}/v1/embeddings", json=body, timeout=0.3)
    server.until(lambda: server.backend.running == 0)
