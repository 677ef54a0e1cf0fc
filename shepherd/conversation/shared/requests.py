"""Prompts that wait, the one that is answered, and the finished ones."""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

from shepherd.errors import BusyError
from shepherd.events import FinishReason
from shepherd.images import Image
from shepherd.messages import JsonObject

MAX_WAITING = 32
MAX_REMEMBERED = 200
RETRY_SECONDS = 5.0


class State(StrEnum):
    """The state of a request."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class PromptRequest:
    """A prompt of a client and its result.

    `answer` is the text of the model's last message. `cost` is in US dollars, None if no price is
    known. `error` is the error that ended the turn, if
    it failed.
    """

    prompt: str
    client: str
    images: tuple[Image, ...] = ()
    id: str = field(default_factory=lambda: f"request_{secrets.token_hex(8)}")
    state: State = State.QUEUED
    answer: str = ""
    finish_reason: FinishReason | None = None
    error: BaseException | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def finish(self, reason: FinishReason, error: BaseException | None = None) -> None:
        """Note the end of the request, and wake the tasks that wait for it."""
        self.state, self.finish_reason, self.error = State.DONE, reason, error
        self.images = ()  # the conversation has them; requests are kept for longer
        self.done.set()

    def to_json(self) -> JsonObject:
        """The request in the form for its client."""
        data: JsonObject = {"request": self.id, "state": self.state.value}
        if self.state is State.DONE:
            data["finish_reason"] = self.finish_reason
            data["content"] = self.answer
            cost = {} if self.cost is None else {"cost": self.cost}
            data["usage"] = {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": self.completion_tokens,
                **cost,
            }
        return data


class RequestQueue:
    """Requests in order; keeps the last finished ones."""

    def __init__(self) -> None:
        self.waiting: list[PromptRequest] = []
        self.running: PromptRequest | None = None
        self._known: OrderedDict[str, PromptRequest] = OrderedDict()
        self._arrived = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether a request runs or waits."""
        return self.running is not None or bool(self.waiting)

    def add(self, request: PromptRequest) -> int:
        """Put a request at the end; returns its position. Raises BusyError if too many wait."""
        if len(self.waiting) >= MAX_WAITING:
            message = f"{MAX_WAITING} requests wait already; try again later."
            raise BusyError(message, RETRY_SECONDS)
        self.waiting.append(request)
        self._known[request.id] = request
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        self._arrived.set()
        return self.position(request)

    def position(self, request: PromptRequest) -> int:
        """The number of requests before it; 0 for the running or the next one."""
        if request not in self.waiting:
            return 0
        return self.waiting.index(request) + (self.running is not None)

    def find(self, id: str) -> PromptRequest | None:
        """A request by its id, if it is still kept."""
        return self._known.get(id)

    async def next(self) -> PromptRequest:
        """Wait for a request and make it the running one."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()
        self.running = self.waiting.pop(0)
        self.running.state = State.RUNNING
        return self.running
