"""The models in memory: each loads once for all its requests, and idle ones make room."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

from msgspec import Struct

from shepherd.backends.base import Backend, Memory
from shepherd.backends.tenant import current_tenant
from shepherd.durations import FOREVER
from shepherd.errors import BusyError, ModelLoadError
from shepherd.server.models import ModelState
from shepherd.tasks import end_tasks

logger = logging.getLogger(__name__)

MAX_IDLE_CONNECTIONS = 32
"""The maximum of connected providers that no request uses."""

_GIB = 1024**3

_NOTHING = Memory()


class OpenableModel(Struct, frozen=True):
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
    """A model that is loading or loaded.

    `needs` is the memory. A `retired` one gets no new leases.
    """

    def __init__(self, model: OpenableModel) -> None:
        self.model = model
        self.keep_alive = model.keep_alive
        self.leases = 0  # requests that wait for it or use it
        self.last_use = 0  # a number that grows with each use of any slot
        self.needs = Memory()
        self.backend: Backend | None = None
        self._began = time.time()
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
    def since(self) -> float | None:
        """The Unix time since which the model is loading, None once it is loaded."""
        return self._began if self.backend is None else None

    @property
    def expires(self) -> float | None:
        """The loop's time at which the model is unloaded, None if there is no such time."""
        return None if self._timer is None else self._timer.when()

    def start_timer(self, expire: Callable[["Slot"], None]) -> None:
        """Call `expire` after the model was not used for `keep_alive` seconds."""
        self.stop_timer()
        if self.keep_alive != FOREVER:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.keep_alive, expire, self)

    def stop_timer(self) -> None:
        """Don't unload the model by time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PoolLimits(Struct, frozen=True):
    """The limits of the models in memory; 0 for no limit of a memory and of `models`.

    `memory` is called before the first local model is loaded, and may block. At most `waiting`
    requests wait for models. A model that has no room gets it within `patience` seconds, or its
    requests are refused.
    """

    memory: Callable[[], Memory] = Memory
    models: int = 0
    waiting: int = 64
    patience: float = 60.0


class LoadedModels:
    """Loads local models one after the other, and unloads the least recently used idle ones.

    A model with a lease is never unloaded. Used from one event loop.
    """

    def __init__(self, limits: PoolLimits) -> None:
        self.limits = limits
        self._memory = Memory()  # of the machine for models, measured before each load
        self.failures: dict[str, float] = {}
        """When the last loading of a model has failed, by its key."""
        self._slots: dict[str, Slot] = {}
        self._in_memory: set[Slot] = set()
        """All slots with a backend that is not closed yet, also retired and closing ones."""
        self._one_loads = asyncio.Lock()
        self._room_changed = asyncio.Event()
        """Something has become idle or closed since `_unload_for` last looked."""
        self._uses = count(1)
        self._waiting = Counter[str]()
        """The requests of each tenant that wait for a model."""
        self._is_closed = False

    @asynccontextmanager
    async def lease(
        self, model: OpenableModel, keep_alive: float | None = None
    ) -> AsyncGenerator[Backend]:
        """The model's backend; loads it if needed.

        `keep_alive` replaces that of the model, in seconds. Raises BusyError if too many requests
        wait or no room was made in time, and the errors from loading the model.
        """
        slot = self._slot(model)
        slot.leases += 1
        slot.stop_timer()
        if keep_alive is not None:
            slot.keep_alive = keep_alive
        try:
            yield slot.backend or await self._loaded(slot)
        finally:
            slot.leases -= 1
            self._settle(slot)

    def slot(self, key: str) -> Slot | None:
        """The model's slot; None if it is not in memory."""
        return self._slots.get(key)

    def loaded(self) -> list[tuple[str, Backend, Memory]]:
        """The keys, backends and memory of all loaded models, also of those that will leave."""
        slots = sorted(self._in_memory, key=lambda slot: slot.model.key)
        return [(s.model.key, s.backend, s.needs) for s in slots if s.backend is not None]

    async def unload(self, key: str) -> None:
        """Unload a model if it is loaded; raises BusyError while requests use it."""
        slot = self._slots.get(key)
        if slot is None:
            return
        if not slot.is_idle:
            raise BusyError("The model is in use; it can be unloaded once its requests have ended.")
        await asyncio.shield(self._close(slot))

    async def aclose(self) -> None:
        """Close all models; no model can be leased any more."""
        self._is_closed = True
        loading = [slot.loading for slot in self._slots.values() if slot.loading is not None]
        await end_tasks(*loading)
        await asyncio.gather(*[slot.closing or self._close(slot) for slot in [*self._in_memory]])

    def retire(self, leaves: Callable[[Slot], bool] | None = None) -> None:
        """Give these models, or all, no new leases; each is unloaded when it has none."""
        for slot in [slot for slot in self._slots.values() if leaves is None or leaves(slot)]:
            self._retire(slot)

    def _slot(self, model: OpenableModel) -> Slot:
        """The slot of a model, which begins to load if it is new."""
        if self._is_closed:
            raise BusyError("The server is stopping.")
        slot = self._slots.get(model.key)
        if slot is not None and slot.backend is not None and not slot.backend.alive:
            self._retire(slot)  # its backend can't answer any more, so it is loaded again
            slot = None
        must_wait = slot is None or slot.backend is None
        if must_wait and self._waiting[current_tenant().name] >= self.limits.waiting:
            raise BusyError("Too many requests wait for models that are not loaded yet.")
        if slot is None:
            slot = self._slots[model.key] = Slot(model)
            slot.loading = asyncio.create_task(self._load(slot))
            slot.loading.add_done_callback(_note_failure_retrieved)
        return slot

    async def _loaded(self, slot: Slot) -> Backend:
        """The backend, once it is loaded; a request that leaves does not stop the loading."""
        task = slot.loading
        assert task is not None  # every slot begins with it
        tenant = current_tenant().name
        self._waiting[tenant] += 1
        try:
            await asyncio.wait([task])
        finally:
            self._waiting[tenant] -= 1
            self._waiting += Counter()  # forgets those without any
        if task.cancelled():
            raise BusyError("The server is stopping.")
        return task.result()

    async def _load(self, slot: Slot) -> Backend:
        """The task that opens a model, whose requests wait for it; its failure is theirs."""
        try:
            backend = await self._open(slot)
        except BaseException:  # the next request tries again
            self.failures[slot.model.key] = time.monotonic()
            self._forget(slot)
            raise
        self.failures.pop(slot.model.key, None)
        slot.backend = backend
        self._in_memory.add(slot)
        self._settle(slot)
        return backend

    async def _open(self, slot: Slot) -> Backend:
        """The backend; local models open one after the other, each once it has room."""
        model = slot.model
        if model.measure is None:
            return await model.open()
        async with self._one_loads:
            # writing its conversations to a slow disk may take longer than `patience`
            same = [other for other in self._in_memory if other.model.key == model.key]
            if closing := [other.closing for other in same if other.closing is not None]:
                await asyncio.wait(closing)  # which a cancellation does not end
            self._memory = await asyncio.to_thread(self.limits.memory)
            slot.needs = await asyncio.to_thread(model.measure)
            await self._make_room(slot)
            return await model.open()

    async def _make_room(self, slot: Slot) -> None:
        """Unload idle models until `slot` fits; raises ModelLoadError if it never will."""
        if not slot.model.essential:  # what it needs is an estimate, and without it nothing works
            _check_size(slot.needs, self._memory)
        try:
            async with asyncio.timeout(self.limits.patience):
                while not self._fits(slot, self._in_memory):
                    if not self._unload_for(slot):  # it clears the event before it looks
                        await self._room_changed.wait()
        except TimeoutError:
            raise BusyError(
                "The models in memory are all in use, and there is no room for another one."
            ) from None

    def _unload_for(self, slot: Slot) -> bool:
        """Begin to unload one more model if that is needed and possible.

        Models that are closing need no other to leave. `_room_changed` then tells what happens
        after this look.
        """
        remaining = {other for other in self._in_memory if other.closing is None}
        self._room_changed.clear()
        if self._fits(slot, remaining):
            return False
        shortage = self._shortage(slot, remaining)
        idle = [other for other in remaining if other.is_idle and other.is_local]
        if shortage != _NOTHING:  # else it is the number of models that is too high
            idle = [other for other in idle if _share_memory(other.needs, shortage)]
        if not idle:
            return False
        self._close(min(idle, key=lambda other: other.last_use))
        return True

    def _fits(self, slot: Slot, present: set[Slot]) -> bool:
        """Whether `slot` can be loaded beside those of `present`."""
        others = [other for other in present if other.is_local and other is not slot]
        if any(other.model.key == slot.model.key and other.closing for other in others):
            return False  # two instances of one file at a time would need its memory twice
        if self.limits.models and len(others) >= self.limits.models:
            return False
        return self._shortage(slot, present) == _NOTHING

    def _shortage(self, slot: Slot, present: set[Slot]) -> Memory:
        """What is missing to load `slot` beside those of `present`; nothing if it is alone."""
        others = [other.needs for other in present if other.is_local and other is not slot]
        used, needs, limit = sum(others, _NOTHING), slot.needs, self._memory
        return Memory(
            _missing(used.ram, needs.ram, limit.ram), _missing(used.vram, needs.vram, limit.vram)
        )

    def _settle(self, slot: Slot) -> None:
        """Close or keep a model that may have become idle."""
        self._room_changed.set()
        if not slot.is_idle:
            return
        slot.last_use = next(self._uses)
        if slot.retired or slot.keep_alive <= 0:
            self._close(slot)
            return
        slot.start_timer(self._expire)
        # local models leave when others need their room; connections have only this limit
        idle = [other for other in self._in_memory if other.is_idle and not other.is_local]
        if len(idle) > MAX_IDLE_CONNECTIONS:
            self._close(min(idle, key=lambda other: other.last_use))

    def _expire(self, slot: Slot) -> None:
        """Close a model at the end of its time, unless it is in use again."""
        if slot.is_idle:
            self._close(slot)

    def _retire(self, slot: Slot) -> None:
        """Give the slot no new leases, and close it once it has none."""
        slot.retired = True
        self._forget(slot)
        if slot.is_idle:
            self._close(slot)

    def _close(self, slot: Slot) -> asyncio.Task[None]:
        """Begin to close a model; the next request for it loads it anew."""
        slot.stop_timer()
        self._forget(slot)
        slot.closing = asyncio.create_task(self._close_backend(slot))
        return slot.closing

    def _forget(self, slot: Slot) -> None:
        """Give no new leases of the slot; another one may have its key already."""
        if self._slots.get(slot.model.key) is slot:
            del self._slots[slot.model.key]

    async def _close_backend(self, slot: Slot) -> None:
        """The task that closes a model, after which there is room for others."""
        assert slot.backend is not None  # only loaded ones are closed
        try:
            await slot.backend.aclose()
        except Exception:  # a defect: the other models go on
            logger.exception("A model could not be closed")
        finally:
            self._in_memory.discard(slot)
            self._room_changed.set()


def _check_size(needs: Memory, limit: Memory) -> None:
    """Raise ModelLoadError for a model that is larger than all memory for models."""
    pairs = (
        (needs.ram, limit.ram, "for models (server.memory_mib)"),
        (needs.vram, limit.vram, "on the GPUs; set fewer llamacpp.gpu_layers"),
    )
    for needed, available, place in pairs:
        if 0 < available < needed:  # 0: no limit is known
            raise ModelLoadError(
                f"The model takes about {needed / _GIB:.1f} GiB, and there are "
                f"{available / _GIB:.1f} GiB {place}."
            )


def _missing(used: int, needed: int, limit: int) -> int:
    """The bytes that are missing of a memory; none if only one side uses it, or without a limit."""
    return max(0, used + needed - limit) if limit and used and needed else 0


def _share_memory(one: Memory, other: Memory) -> bool:
    """Whether both take memory of the same device."""
    return bool((one.ram and other.ram) or (one.vram and other.vram))


def _note_failure_retrieved(task: asyncio.Task[Backend]) -> None:
    """Keep asyncio from logging a failure as lost: every request that waits gets it."""
    if not task.cancelled():
        task.exception()
