"""A server whose models have the names that the real one gives them."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from shepherd.backends.base import Backend
from shepherd.config.paths import Paths
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.server.pool.pool import ModelPool, open_pool
from tests.clients.models import Answer, PlayedModel, cached_model
from tests.server.harness import RunningServer

ALIASES = dict.fromkeys(("other", "text-embedding-3-small", "shepherd", "claude-*"), "default")
"""Other names of the model; `llm` asks for vectors of OpenAI's models only."""


class Server(RunningServer[ModelPool]):
    """A server that knows its model."""

    model: PlayedModel


@contextmanager
def serve(answer: Answer, home: Path, *, cached: bool = False) -> Generator[Server]:
    """Serve a model that answers what a function says, `cached` with a real KV cache.

    Requests for other models than `default` get a 404, as with `shepherd --server`.
    """
    loop = asyncio.new_event_loop()
    home.mkdir(parents=True, exist_ok=True)
    start = cached_model(answer, home) if cached else _plain_model(answer)
    model = loop.run_until_complete(start)

    async def opener(_: Config) -> Backend:
        return model

    env = {"HOME": str(home)}
    config = Config.model_validate(
        {"llamacpp": {"models_dir": str(home)}, "server": {"aliases": ALIASES}}
    )
    opening = open_pool(config, ProviderBook(Paths.from_env(env), env), opener)
    pool = loop.run_until_complete(opening)
    loop.run_until_complete(pool.load_default())
    with Server(pool, loop=loop) as server:
        server.model = model
        yield server


async def _plain_model(answer: Answer) -> PlayedModel:
    return PlayedModel(answer)
