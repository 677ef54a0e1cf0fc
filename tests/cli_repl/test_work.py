import asyncio

import pytest

from shepherd.cli.repl.queue import WorkQueue


class Log:
    """Handles texts: `wait` never ends, `fail` raises."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.queue = WorkQueue(self.handle, self.interrupted, self.idle)

    async def handle(self, text: str) -> None:
        self.events.append(text)
        if text == "wait":
            await asyncio.Event().wait()
        if text == "fail":
            raise RuntimeError(text)

    def interrupted(self) -> None:
        self.events.append("interrupted")

    def idle(self) -> None:
        self.events.append("idle")


async def _until(log: Log, event: str) -> None:
    while event not in log.events:
        await asyncio.sleep(0)


async def test_texts_are_done_in_order() -> None:
    log = Log()
    for text in ("a", "b", "c"):
        log.queue.add(text)
    running = asyncio.ensure_future(log.queue.run())
    await _until(log, "idle")
    assert log.events == ["a", "b", "c", "idle"]
    assert not log.queue.busy
    running.cancel()


async def test_stopping_gives_back_what_waited_and_goes_on() -> None:
    log = Log()
    running = asyncio.ensure_future(log.queue.run())
    log.queue.add("wait")
    await _until(log, "wait")
    log.queue.add("next")
    assert log.queue.busy
    assert log.queue.stop() == ["next"]
    await _until(log, "interrupted")
    log.queue.add("later")
    await _until(log, "later")
    assert "next" not in log.events
    running.cancel()


async def test_nothing_to_stop() -> None:
    log = Log()
    assert log.queue.stop() == []


async def test_a_defect_is_not_swallowed() -> None:
    log = Log()
    log.queue.add("fail")
    with pytest.raises(RuntimeError, match="fail"):
        await log.queue.run()


async def test_cancelling_the_queue_ends_its_work() -> None:
    log = Log()
    log.queue.add("wait")
    running = asyncio.ensure_future(log.queue.run())
    await _until(log, "wait")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not log.queue.busy
    assert "interrupted" not in log.events


async def test_held_texts_follow_the_next_one_each_on_its_own() -> None:
    log = Log()
    running = asyncio.ensure_future(log.queue.run())
    log.queue.add("wait")
    await _until(log, "wait")
    log.queue.add("!ls")
    log.queue.add("message")
    log.queue.hold(log.queue.stop())
    await _until(log, "interrupted")
    await _until(log, "idle")
    assert log.queue.waiting == ["!ls", "message"]
    log.queue.add("first")
    await _until(log, "message")
    assert [e for e in log.events if e != "idle"][-3:] == ["first", "!ls", "message"]
    running.cancel()
