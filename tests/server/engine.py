"""The built-in model behind a server, for one module of tests."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from shepherd.backends.llamacpp import LlamaCppBackend
from shepherd.config.llamacpp import LlamaCppSection
from shepherd.models import BUILTIN_NAME, builtin_model
from shepherd.sampling import Sampling
from shepherd.server.settings import ServerSettings
from tests.server.harness import RunningServer

Engine: TypeAlias = RunningServer[LlamaCppBackend]
GREEDY = Sampling(temperature=0.0)


@contextmanager
def engine(
    settings: ServerSettings | None = None, *, parallel: int = 1, flash: str = "auto"
) -> Generator[Engine]:
    """A server of the built-in model, which answers without chance.

    Without flash attention, the same prompt is computed alike in batches of any size.
    """

    async def load() -> LlamaCppBackend:
        values = {"threads": 1, "context_size": 2048, "flash_attention": flash}
        section = LlamaCppSection.model_validate(values)
        return await LlamaCppBackend.load(
            builtin_model(), section, GREEDY, parallel=parallel, name=BUILTIN_NAME
        )

    loop = asyncio.new_event_loop()
    with RunningServer(loop.run_until_complete(load()), settings, loop=loop) as running:
        yield running
