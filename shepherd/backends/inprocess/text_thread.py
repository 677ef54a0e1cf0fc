"""The thread that renders and tokenizes, so that neither the event loop nor decoding waits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from shepherd.backends.inprocess.heartbeat import Heartbeat
from shepherd.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")


class TextThread:
    """Runs one thing at a time, in order: what runs here needs no locks."""

    def __init__(self) -> None:
        self._idents: set[int] = set()
        self._executor = ThreadPoolExecutor(1, "llama.cpp text", self._note_ident)
        self._gate = threading.Lock()
        self._heart = Heartbeat()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing more runs here."""
        return self._closed

    @property
    def stalled(self) -> bool:
        """Whether one thing runs here for longer than anything should."""
        return self._heart.stalled

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, which ran on the thread; raises BackendError once closed."""
        future = self.post(work, *args, **kwargs)
        if future is None:
            raise BackendError("The model was closed.")
        return await asyncio.wrap_future(future)

    def post(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T] | None:
        """Run `work` behind what is waiting, before what comes later; None once closed."""
        with self._gate:
            if self._closed:
                return None
            return self._executor.submit(self._do, work, *args, **kwargs)

    def close(self) -> None:
        """Finish what was given, unless this is the thread itself; safe to call twice."""
        with self._gate:
            self._closed = True
        self._executor.shutdown(wait=threading.get_ident() not in self._idents)

    def _do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._heart.working():
            return work(*args, **kwargs)

    def _note_ident(self) -> None:
        self._idents.add(threading.get_ident())
