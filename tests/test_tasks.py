"""How tasks are ended."""

import asyncio

import pytest

from shepherd.tasks import end_tasks


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
