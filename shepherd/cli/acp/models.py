"""The models behind an editor's sessions: each is opened once, and shared."""

import asyncio
from dataclasses import dataclass, field

from shepherd.backends.base import Backend, Concurrency
from shepherd.config.provider_book import ProviderBook
from shepherd.config.settings import Config
from shepherd.conversation.build import backend_opener
from shepherd.errors import ShepherdError
from shepherd.tasks import end_tasks

SESSIONS = Concurrency(1, maximum=8)
"""Sessions whose turns run at the same time; more wait."""


@dataclass(slots=True)
class SharedModels:
    """Opens each model on its first use; sessions with the same settings of it share it."""

    providers: ProviderBook
    _opened: dict[str, asyncio.Task[Backend]] = field(
        default_factory=dict[str, asyncio.Task[Backend]]
    )

    async def backend(self, config: Config) -> Backend:
        """The backend for these settings; raises the error that keeps it from loading.

        One that failed is opened again.
        """
        key = repr((config.model, config.llamacpp))
        task = self._opened.get(key)
        if task is None or _has_failed(task):
            if task is not None and not task.cancelled() and task.exception() is None:
                await task.result().aclose()
            open_backend = backend_opener(self.providers, SESSIONS)
            task = self._opened[key] = asyncio.ensure_future(open_backend(config))
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Close all models."""
        tasks = list(self._opened.values())
        self._opened.clear()
        for task in tasks:
            if not task.done():
                await end_tasks(task)
            elif not task.cancelled() and task.exception() is None:
                await task.result().aclose()


def _has_failed(task: asyncio.Task[Backend]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or not task.result().alive


async def can_see(models: SharedModels, config: Config, seconds: float) -> bool:
    """Whether the model sees images; False if it is not loaded after `seconds`, or can't be."""
    try:
        async with asyncio.timeout(seconds):
            backend = await models.backend(config)
    except (ShepherdError, TimeoutError):
        return False
    return backend.info.vision is not False
