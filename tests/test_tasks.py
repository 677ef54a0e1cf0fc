"""How tasks are ended."""

import asyncio
import threading

import pytest

from shepherd.tasks import end_tasks, in_thread_to_end


async def _fail() -> None:
    raise ValueError("failed")


async def test_tasks_that_have_ended_are_not_waited_for() -> None:
    """A wait is where a cancellation could cut off the clean-up that comes after it."""
    done = asyncio.create_task(asyncio.sleep(0))
    failed = asyncio.create_task(_fail())
    await asyncio.wait({done, failed})
    ending = end_tasks(done, failed)
    with pytest.raises(StopIteration):
        ending.send(None)


async def test_running_tasks_are_cancelled_and_waited_for() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    running = asyncio.create_task(work())
    await asyncio.sleep(0)
    await end_tasks(running)
    assert running.cancelled()
    assert cleaned == ["up"]


async def test_work_in_a_thread_ends_before_the_task_that_is_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()
    log: list[str] = []

    def work() -> None:
        begun.set()
        go_on.wait()
        log.append("worked")

    async def wait() -> None:
        try:
            await in_thread_to_end(work)
        finally:
            log.append("ended")

    task = asyncio.create_task(wait())
    await asyncio.to_thread(begun.wait)
    for _again in range(3):
        task.cancel()
        await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({task})
    assert task.cancelled()
    assert log == ["worked", "ended"]
