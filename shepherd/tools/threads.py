"""Blocking work in a thread that ends soon after its task was cancelled."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Stopped: TypeAlias = Callable[[], bool]


async def in_thread(work: Callable[[Stopped], T]) -> T:
    """Run `work` in a thread; what it is given turns true once nobody waits for it any more."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop.is_set)
    finally:
        stop.set()
