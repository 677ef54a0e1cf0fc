"""The model of a conversation: loaded in the background, switched, loaded again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct, field

from shepherd.backends.base import Backend, ModelInfo, ModelKind
from shepherd.config import provider_book, settings
from shepherd.config.provider import LOCAL
from shepherd.conversation.model_choice import model_from_user, with_model, with_provider
from shepherd.errors import ConfigError, ModelLoadError, ShepherdError
from shepherd.tasks import end_tasks

BackendOpener: TypeAlias = Callable[[settings.Config], Awaitable[Backend]]


class SlotListener(Protocol):
    """Receives changes of a conversation's model."""

    async def before_opening(self, provider: str) -> None:
        """A provider, "" for the local model, is about to be opened."""

    async def loading(self) -> None:
        """The model is being loaded; it answers once this has ended, too."""

    def backend_ready(self, backend: Backend) -> None:
        """From now on this backend answers, or it answers with another model."""

    def model_changed(self, backend: Backend, *, chosen: bool) -> None:
        """The model has changed; `chosen` by the user, else after a failure."""


class ModelSlot(Struct, eq=False):
    """Holds one backend, which loads on its first use or at `start`.

    `config` are the settings with the model that answers or loads. With a `lender`, the backend
    comes from it, and belongs to others too. `open_backend` opens all others.
    """

    config: settings.Config
    open_backend: BackendOpener
    providers: provider_book.ProviderBook
    listener: SlotListener
    lender: BackendOpener | None = None
    _stop_listening: Callable[[], None] = lambda: None
    _loading: asyncio.Task[Backend] | None = None
    _switching: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a choice of a model: another one begins with what this one has left."""

    @property
    def model_name(self) -> str:
        """The model's name from its backend, or from the settings until it is loaded."""
        backend = self.loaded_backend
        return self.config.model.label if backend is None else backend.info.id

    @property
    def loaded_backend(self) -> Backend | None:
        """The backend if it is ready, else None."""
        task = self._loading
        if task is None or not task.done():
            return None
        failed = task.cancelled() or task.exception() is not None
        return None if failed else task.result()

    @property
    def context_size(self) -> int:
        """The model's context in tokens, 0 until it is loaded or if it is unknown."""
        backend = self.loaded_backend
        return 0 if backend is None else backend.info.context_size

    @property
    def provider(self) -> str:
        """The provider that answers, "" for the local model; a fallback may have changed it."""
        return self.provider_of(self.loaded_backend)

    @property
    def fell_back(self) -> bool:
        """Whether another provider answers than the chosen one."""
        return self.provider != self.provider_of(None)

    @property
    def label(self) -> str:
        """The user's name for the model that answers; a fallback may have changed it."""
        backend = self.loaded_backend
        selector = "" if backend is None else backend.info.selector  # "" also for a local model
        return selector or self.config.model.label

    def provider_of(self, backend: Backend | None) -> str:
        """The provider behind a backend, or the one of the settings."""
        selector = "" if backend is None else backend.info.selector
        return (selector or self.config.model.provider).partition("/")[0]  # `provider/model`

    def start(self) -> asyncio.Task[Backend]:
        """Start to load the backend, unless it is loading or ready; again after a failure."""
        if self._loading is None or (self._loading.done() and self.loaded_backend is None):
            self._loading = asyncio.ensure_future(self._open())
            # asyncio would log a failure that nobody awaits; who awaits the backend gets it too
            self._loading.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._loading

    async def backend(self) -> Backend:
        """The backend, once it is loaded; raises the error that kept it from loading."""
        return await asyncio.shield(self.start())

    async def live_backend(self) -> Backend:
        """As `backend`; one that failed for good is opened again, a borrowed one by its lender."""
        backend = await self.backend()
        if backend.alive:
            return backend
        if self.lender is None:
            return await self.reload()
        self._loading = None  # the lender opens it again, for all who borrowed it
        return await self.backend()

    async def switch_model(self, name: str, cwd: Path) -> Backend:
        """Continue with another model: of the provider that answers now, or a local one.

        `name` as on the command line: see `model_from_user`. Otherwise like `switch_provider`.
        """
        async with self._switching:
            current = with_provider(self.config, self.provider)
            return await self._switch(with_model(current, model_from_user(name, cwd)))

    async def switch_provider(self, selector: str) -> Backend:
        """Continue the same conversation at another provider, or locally for LOCAL.

        If both models are local, the old one is closed first: two may not fit into memory. If the
        new one can't be opened, the old one continues and the error is raised.
        """
        name = "" if selector == LOCAL else selector
        if name:
            self.providers.pick(name)
        async with self._switching:
            return await self._switch(with_provider(self.config, name))

    async def reload(self) -> Backend:
        """Open the same model again after a permanent failure."""
        async with self._switching:
            return await self._switch(self.config)

    async def aclose(self) -> None:
        """Close the backend unless it is borrowed, or stop loading it."""
        self._stop_listening()
        task, self._loading = self._loading, None
        await self._release(task)

    async def _open(self) -> Backend:
        """Open the backend while the listener prepares: a task that ends when both are ready."""
        async with AsyncExitStack() as stack:
            preparing = asyncio.create_task(self.listener.loading())
            stack.push_async_callback(end_tasks, preparing)
            opener = self.lender or self.open_backend
            backend = await opener(self.config)
            if self.lender is None:
                stack.push_async_callback(backend.aclose)
            _check_writes(backend.info)
            await preparing
            stack.pop_all()  # nothing has failed: the backend stays open
        self._stop_listening()
        self._stop_listening = backend.when_moved(partial(self._moved, backend))
        self.listener.backend_ready(backend)
        return backend

    def _moved(self, backend: Backend) -> None:
        """Note that another provider answers from now on, with another model."""
        self.listener.backend_ready(backend)
        self.listener.model_changed(backend, chosen=False)

    async def _switch(self, config: settings.Config) -> Backend:
        """Continue with the model of these settings, or after a failure with the one before."""
        before, loading = self.config, self._loading
        are_local = self._is_local(before) and self._is_local(config)
        if are_local and self.lender is None:  # two may not fit into memory
            await _end(loading)
            loading = None
        self.config, self._loading = config, None
        try:
            await self.listener.before_opening(config.model.provider.partition("/")[0])
            backend = await self.backend()
        except (ShepherdError, asyncio.CancelledError):
            failed, self.config, self._loading = self._loading, before, loading
            await self._release(failed)
            if loading is None:  # the local model was closed to make room: load it again
                self.start()
            elif (previous := self.loaded_backend) is not None:
                self.listener.backend_ready(previous)
            raise
        await self._release(loading)
        self.listener.model_changed(backend, chosen=True)
        return backend

    async def _release(self, task: asyncio.Task[Backend] | None) -> None:
        """Stop loading a backend, and close it unless it is borrowed."""
        if self.lender is None:
            await _end(task)
        elif task is not None:
            task.cancel()

    def _is_local(self, config: settings.Config) -> bool:
        """Whether the model of these settings runs on this machine, and takes its memory."""
        try:
            return self.providers.is_local(config.model.provider)
        except ConfigError:  # the provider was removed in the meantime
            return False


def _check_writes(info: ModelInfo) -> None:
    """Raise ModelLoadError for a model that makes no text."""
    if info.kind is ModelKind.TEXT:
        return
    makes = "reranks" if info.kind is ModelKind.RERANKING else "makes embeddings"
    raise ModelLoadError(
        f"The model {info.id} {makes} and can't write text. Choose another one with --model, or "
        "serve it with `shepherd --server`."
    )


async def _end(task: asyncio.Task[Backend] | None) -> None:
    """Stop loading a backend, or close it if it is ready."""
    if task is None:
        return
    task.cancel()  # nothing happens to one that is done
    await asyncio.wait([task])
    if not task.cancelled() and task.exception() is None:
        await task.result().aclose()
