"""One model of the pool: how it is opened, and who uses it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shepherd.backends.base import Backend
from shepherd.backends.device_memory import Memory
from shepherd.durations import FOREVER
from shepherd.server.models import ModelState


@dataclass(frozen=True, slots=True)
class OpenableModel:
    """A model that can be opened; models with the same `key` are the same.

    `measure` tells how much memory the model will take, and blocks; None for a model elsewhere.
    `keep_alive` is in seconds. An `essential` model is loaded even if it takes more memory than
    there is for models.
    """

    key: str
    measure: Callable[[], Memory] | None
    open: Callable[[], Awaitable[Backend]]
    keep_alive: float = FOREVER
    essential: bool = False


class Slot:
    """A model that is loading or loaded; `leases` counts the requests that wait for it or use it.

    `used` orders the slots by their last use. `needs` is the memory. `expires` is the
    loop's time at which an idle one is unloaded. A `retired` one gets no new leases.
    """

    def __init__(self, model: OpenableModel) -> None:
        self.model = model
        self.keep_alive = model.keep_alive
        self.leases = 0
        self.used = 0
        self.needs = Memory()
        self.backend: Backend | None = None
        self.loading: asyncio.Task[Backend] | None = None
        self.closing: asyncio.Task[None] | None = None
        self.retired = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_local(self) -> bool:
        """Whether the model takes memory of this process."""
        return self.model.measure is not None

    @property
    def is_idle(self) -> bool:
        """Whether the model is loaded, and no request uses it or waits for it."""
        return self.backend is not None and not self.leases and self.closing is None

    @property
    def state(self) -> ModelState:
        """The state of the model."""
        return ModelState.LOADING if self.backend is None else ModelState.LOADED

    @property
    def expires(self) -> float | None:
        """The loop's time at which the model is unloaded, None if there is no such time."""
        return None if self._timer is None else self._timer.when()

    def start_timer(self, expire: Callable[["Slot"], None]) -> None:
        """Call `expire` after the model was not used for `keep_alive`."""
        self.stop_timer()
        if self.keep_alive != FOREVER:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.keep_alive, expire, self)

    def stop_timer(self) -> None:
        """Don't unload the model by time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
