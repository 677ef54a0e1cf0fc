"""The thread that renders and tokenizes, so that neither the event loop nor decoding waits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TextThread:
    """Runs one thing at a time, in order: what runs here needs no locks."""

    def __init__(self) -> None:
        self._idents: set[int] = set()
        self._executor = ThreadPoolExecutor(1, "llama.cpp text", self._note_ident)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `work`, which ran on the thread."""
        return await asyncio.wrap_future(self._executor.submit(work, *args, **kwargs))

    def post(self, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run `work` behind what is waiting, before what comes later."""
        self._executor.submit(work, *args, **kwargs)

    def close(self) -> None:
        """Wait for what runs, unless this is it; drop what waits."""
        elsewhere = threading.get_ident() not in self._idents
        self._executor.shutdown(wait=elsewhere, cancel_futures=True)

    def _note_ident(self) -> None:
        self._idents.add(threading.get_ident())
