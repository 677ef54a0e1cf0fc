"""Helpers for asyncio tasks and threads."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")
Stopped: TypeAlias = Callable[[], bool]


def first_error(error: BaseException) -> BaseException:
    """The error itself, or the first one in a group that is not a group again."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return error


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel the running tasks, and wait until all have ended; their results are ignored."""
    for task in tasks:
        task.cancel()
    if all(task.done() for task in tasks):
        # A wait, even for nothing, is where a cancellation could cut off the caller's clean-up.
        for task in tasks:
            _ = task.cancelled() or task.exception()  # else asyncio reports it as never read
        return
    await asyncio.gather(*tasks, return_exceptions=True)


async def in_thread(work: Callable[[Stopped], T]) -> T:
    """Run `work` in a thread; its argument returns True once the caller no longer waits."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(work, stop.is_set)
    finally:
        stop.set()


async def in_thread_to_end(work: Callable[[], T]) -> T:
    """The result of `work` in a thread; also a cancelled task waits for its end."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    finally:
        while not task.done():
            with suppress(asyncio.CancelledError):  # it is raised after all
                await asyncio.wait([task])


def in_daemon_thread(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a daemon thread, for which the end of the program does not wait."""
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the caller that waits gets it
            result.set_exception(error)

    threading.Thread(target=run, name="shepherd-work", daemon=True).start()
    return result
