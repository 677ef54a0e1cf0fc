"""Clients of all APIs at once, many of whom leave: each answer is its own, and nothing is left."""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from shepherd.backends.base import Backend
from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.backends.llamacpp.embedding_backend import LlamaEmbeddingBackend
from shepherd.backends.llamacpp.embedding_engine import Pooling
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.config.settings import Config
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from shepherd.server.pool.pool import ModelPool
from shepherd.server.settings import ServerSettings
from tests.backends.llamacpp.embedders import write_bert
from tests.integration.echo import EchoBackend
from tests.integration.test_many_clients import SECONDS, SEED, assert_flat
from tests.integration.wire_clients import ECHO, PUP, VECTORS, WireCrowd
from tests.integration.wires import WIRES
from tests.patience import PATIENCE, POLL
from tests.server.harness import RunningServer
from tests.server.pool.places import Home

logger = logging.getLogger("soak")

IS_SOAK = "SOAK_SECONDS" in os.environ
CLIENTS = 200 if IS_SOAK else 16
REQUESTS = 120
"""Those of the ordinary run; the soak goes by the clock."""


async def open_model(config: Config) -> Backend:
    """The models of the test: one that echoes, the built-in one, and one for vectors."""
    name = Path(config.model.name).stem
    settings = LlamaCppSection(threads=1, context_size=2048, cache_ram_mib=16)
    if name == ECHO:
        return EchoBackend(ECHO, Random(SEED))
    if name == VECTORS:
        path = Path(config.llamacpp.models_dir) / f"{VECTORS}.gguf"
        return await LlamaEmbeddingBackend.load(path, settings, Pooling.MEAN)
    greedy = Sampling(temperature=0.0)
    return await LlamaCppBackend.load(
        builtin_model(), settings, greedy, parallel=4, name=BUILTIN_NAME
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(900 + 20 * SECONDS)
def test_each_answer_is_its_own_and_nothing_is_left(tmp_path: Path) -> None:
    """A client of httpx that gives up while it connects may leave its socket to the collector."""
    loop = asyncio.new_event_loop()
    home = Home(tmp_path / "home")
    home.add_model(ECHO)
    write_bert(home.models / f"{VECTORS}.gguf")
    pool = loop.run_until_complete(home.open(home.config(), open_model))
    responses = tmp_path / "responses.db"
    settings = ServerSettings(port=0, responses_file=responses)
    with RunningServer(pool, settings, loop=loop) as server:
        tasks = server.do(count_tasks())
        crowd = WireCrowd(server.url, Random(SEED), CLIENTS)
        asyncio.run(crowd.run(until()))
        logger.info("seed %d: %s", SEED, sorted(crowd.ends.items()))
        server.until(lambda: server.tasks == server.connections == 0)
        server.until(lambda: unfinished(responses) == 0)
        assert stored(responses) == crowd.stored
        asyncio.run(crowd.delete_stored())
        assert stored(responses) == set()
        server.do(assert_idle(pool, tasks))
    assert_complete(crowd)
    assert_flat(crowd.memory)


def until() -> Callable[[int], bool]:
    """Whether clients go on, by the clock or by the number of requests."""
    if not IS_SOAK:
        return lambda requests: requests < REQUESTS
    end = time.monotonic() + SECONDS
    return lambda requests: time.monotonic() < end


async def assert_idle(pool: ModelPool, tasks: int) -> None:
    """No request holds a prompt, a sequence or a model, and there are no more tasks than before."""
    async with asyncio.timeout(PATIENCE - 1):
        async with pool.lease(PUP) as pup, pool.lease(ECHO) as echo:
            assert isinstance(pup, LlamaCppBackend)
            assert isinstance(echo, EchoBackend)
            while pup.running or echo.active:
                await asyncio.sleep(POLL)
        for name in (PUP, ECHO, VECTORS):
            await pool.unload(name)
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(POLL)


async def count_tasks() -> int:
    """The tasks on the server's loop."""
    return len(asyncio.all_tasks())


def unfinished(path: Path) -> int:
    """Stored responses that are not over."""
    return sum(status in ("queued", "in_progress") for status in rows(path).values())


def stored(path: Path) -> set[str]:
    """The ids of stored responses."""
    return set(rows(path))


def rows(path: Path) -> dict[str, str]:
    """The stored responses and their states."""
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT id, body ->> 'status' FROM responses"))


def assert_complete(crowd: WireCrowd) -> None:
    """Every API answered whole and in streams, and clients of each left."""
    ends = set(crowd.ends)
    expected = {f"{wire.name}: {end}" for wire in WIRES for end in ("answered", "streamed")}
    expected |= {"responses: stored", "responses: followed", "embeddings: answered"}
    assert expected <= ends, expected - ends
    left = [end for end in ends if "hung up" in end]
    assert left
    if IS_SOAK:
        assert len(left) == 2 * len(WIRES)
