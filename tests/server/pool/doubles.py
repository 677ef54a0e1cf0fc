"""Backends that tell how they are opened, used and closed."""

import asyncio
from collections.abc import Callable

from shepherd.backends.base import Backend, Memory
from shepherd.backends.script import parse_script
from shepherd.backends.scripted import ScriptedBackend
from shepherd.durations import FOREVER
from shepherd.errors import ModelLoadError
from shepherd.server.pool.loaded import OpenableModel


class Closable(ScriptedBackend):
    """A scripted backend that notes when it was closed, and can fail for good."""

    def __init__(self, name: str, on_close: Callable[[], None], may_close: asyncio.Event) -> None:
        super().__init__(parse_script(f"text: I am {name}."), name)
        self.closed = False
        self.dead = False
        self._on_close = on_close
        self._may_close = may_close

    @property
    def alive(self) -> bool:
        return not (self.closed or self.dead)

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        await self._may_close.wait()
        assert not self.closed
        self.closed = True
        self._on_close()


class Machine:
    """Opens models; `taken` is the memory of those that are open or opening, by their names."""

    def __init__(self) -> None:
        self.taken: dict[str, Memory] = {}
        self.opened: list[str] = []
        self.backends: list[Closable] = []
        self.opening = 0
        self.most_taken = self.most_vram = self.most_models = self.most_opening = 0
        self.fails: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.may_close = asyncio.Event()
        self.may_close.set()

    def model(
        self,
        name: str,
        needs: int = 1,
        keep_alive: float = FOREVER,
        *,
        vram: int = 0,
        is_local: bool = True,
        essential: bool = False,
    ) -> OpenableModel:
        memory = Memory(needs, vram) if is_local else Memory()

        async def opening() -> Backend:
            return await self._open(name, memory)

        measure = (lambda: memory) if is_local else None
        return OpenableModel(name, measure, opening, keep_alive, essential)

    async def _open(self, name: str, needs: Memory) -> Backend:
        assert name not in self.taken, "two of one model at once"
        self.opened.append(name)
        self.taken[name] = needs
        self.opening += bool(needs.ram)
        self._note()
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if name in self.fails:
                raise ModelLoadError(f"{name} is damaged")
        except BaseException:
            del self.taken[name]
            raise
        finally:
            self.opening -= bool(needs.ram)
        closable = Closable(name, lambda: self.taken.__delitem__(name), self.may_close)
        self.backends.append(closable)
        return self.backends[-1]

    def _note(self) -> None:
        local = [needs for needs in self.taken.values() if needs.ram]
        self.most_taken = max(self.most_taken, sum(needs.ram for needs in local))
        self.most_vram = max(self.most_vram, sum(needs.vram for needs in local))
        self.most_models = max(self.most_models, len(local))
        self.most_opening = max(self.most_opening, self.opening)


async def settle(turns: int = 50) -> None:
    """Let all work that is ready go on, also in threads that are quick."""
    for _ in range(turns):
        await asyncio.sleep(0)
