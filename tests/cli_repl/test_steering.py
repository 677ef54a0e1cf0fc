"""Messages that wait while the model works."""

import asyncio
from collections.abc import Sequence

from shepherd.cli.repl.queue import WaitingMessages, WorkQueue
from shepherd.cli.terminal.paint import Painter
from shepherd.errors import ShepherdError
from tests.patience import PATIENCE


class Sent:
    """A `Steering` that refuses the text `bad`."""

    can_steer = True

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def waiting(self) -> Sequence[str]:
        return self.texts

    async def send(self, text: str) -> None:
        if text == "bad":
            raise ShepherdError("no such file")
        self.texts.append(text)

    def take_back(self) -> str | None:
        return self.texts.pop() if self.texts else None


class Desk:
    """A queue whose first entry never ends; one that is stopped ends as soon as it `may_end`."""

    def __init__(self) -> None:
        self.prompt: list[str] = []
        self.errors: list[str] = []
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.queue = WorkQueue(self._handle, lambda: None, self._idle)
        self.sent = Sent()
        self.waiting = WaitingMessages(
            self.queue, self.sent, self.prompt.append, self.errors.append
        )

    async def _handle(self, _text: str) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.waiting.collect()

    def _idle(self) -> None:
        self.waiting.collect()

    async def work(self) -> asyncio.Task[None]:
        self.queue.add("first")
        running = asyncio.create_task(self.queue.run())
        await self.started.wait()
        return running

    def shown(self, typed: str = "", *, beside: bool = False) -> str:
        return Painter(styled=False).paint_all(self.waiting.pieces(typed, beside=beside), 80)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_message_steers_or_waits_and_comes_back_once() -> None:
    desk = Desk()
    running = await desk.work()
    desk.queue.add("later")
    desk.waiting.steer("now")
    await settle()
    assert desk.sent.texts == ["now"]
    assert desk.shown().splitlines()[:2] == ["  next step: now", "  waiting: later"]
    assert "Tab" in desk.shown("a message")
    desk.waiting.take_back()
    desk.waiting.take_back()
    desk.waiting.take_back()
    assert desk.prompt == ["later", "now"]
    assert desk.waiting.is_empty
    running.cancel()


async def test_an_empty_prompt_sends_the_first_waiting_message() -> None:
    desk = Desk()
    running = await desk.work()
    desk.queue.add("a")
    desk.queue.add("b")
    desk.waiting.steer("")
    await settle()
    assert (desk.sent.texts, desk.queue.waiting) == (["a"], ["b"])
    desk.queue.waiting.clear()
    desk.waiting.steer(" ")
    await settle()
    assert desk.sent.texts == ["a"]
    running.cancel()


async def test_commands_wait_and_a_refused_message_comes_back() -> None:
    desk = Desk()
    running = await desk.work()
    for text in ("/help", "!ls", "bad"):
        desk.waiting.steer(text)
    await settle()
    assert desk.queue.waiting == ["/help", "!ls"]
    assert (desk.prompt, desk.errors) == (["bad"], ["no such file"])
    running.cancel()


async def test_a_waiting_command_keeps_its_turn() -> None:
    desk = Desk()
    running = await desk.work()
    for text in ("/help", "later"):
        desk.queue.add(text)
    desk.waiting.steer("")
    await settle()
    assert desk.queue.waiting == ["/help", "later"]
    running.cancel()


async def test_the_hints_say_only_what_is_true() -> None:
    desk = Desk()
    running = await desk.work()
    assert "Tab: now" in desk.shown("a message")
    assert "Tab" not in desk.shown("/clear")
    assert "Enter: now" in desk.shown("/jobs", beside=True)
    desk.queue.add("/clear")
    assert "Tab" not in desk.shown()
    desk.queue.waiting.insert(0, "a message")
    assert "Tab sends the first one now" in desk.shown()
    running.cancel()


async def test_what_is_kept_after_a_stop_says_when_it_goes_on() -> None:
    desk = Desk()
    running = await desk.work()
    desk.queue.add("later")
    desk.queue.hold(desk.queue.stop())
    await settle()
    assert "follow what you send next" in desk.shown()
    desk.started.clear()
    desk.queue.add("next")
    await desk.started.wait()
    assert "follow what you send next" not in desk.shown()
    assert desk.queue.waiting == ["later"]
    running.cancel()


async def test_a_message_for_a_turn_that_is_being_stopped_is_next_and_what_waited_follows() -> None:
    desk = Desk()
    desk.may_end.clear()
    running = await desk.work()
    desk.queue.add("later")
    desk.queue.hold(desk.queue.stop())
    await settle()
    desk.waiting.steer("now")
    await settle()
    desk.started.clear()
    desk.may_end.set()
    async with asyncio.timeout(PATIENCE):
        await desk.started.wait()
    assert desk.queue.waiting == ["later"]
    desk.queue.stop()
    await settle()
    running.cancel()


async def test_an_unused_message_is_next_and_nothing_steers_an_idle_prompt() -> None:
    desk = Desk()
    desk.waiting.steer("hello")
    assert desk.queue.waiting == ["hello"]
    desk.sent.texts = ["a", "b"]
    desk.waiting.collect()
    assert desk.queue.waiting == ["a", "b", "hello"]
    assert desk.sent.texts == []


async def test_a_message_that_arrives_after_the_turn_is_the_next_prompt() -> None:
    desk = Desk()
    running = await desk.work()
    desk.waiting.steer("late")
    desk.queue.stop()
    await settle()
    assert desk.sent.texts == []
    assert desk.queue.busy  # it has begun
    running.cancel()
