"""Prompts that wait, the one that is answered, and the finished ones."""

import asyncio
import secrets
from enum import StrEnum

from msgspec import Struct, field

from shepherd import errors, events, messages
from shepherd.conversation.shared.updates import UpdateKind, UpdateLog, from_event
from shepherd.images import Image
from shepherd.session import TokenLedger

MAX_WAITING = 32
MAX_REMEMBERED = 200
RETRY_SECONDS = 5.0


class State(StrEnum):
    """The state of a request."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class PromptRequest(Struct, eq=False):
    """A prompt of a client and its result.

    `answer` is the text of the model's last message. `cost` is in US dollars, None if no price is
    known. `error` is the error that ended the turn, if it failed.
    """

    prompt: str
    client: str
    images: tuple[Image, ...] = ()
    id: str = field(default_factory=lambda: f"request_{secrets.token_hex(8)}")
    state: State = State.QUEUED
    answer: str = ""
    finish_reason: events.FinishReason | None = None
    error: BaseException | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def finish(self, reason: events.FinishReason, error: BaseException | None = None) -> None:
        """Note the end of the request, and wake the tasks that wait for it."""
        self.state, self.finish_reason, self.error = State.DONE, reason, error
        self.images = ()  # the conversation has them; requests are kept for longer
        self.done.set()

    def to_json(self) -> messages.JsonObject:
        """The request in the form for its client."""
        data: messages.JsonObject = {"request": self.id, "state": self.state.value}
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


class RequestQueue(Struct):
    """Requests in order; keeps the last finished ones."""

    waiting: list[PromptRequest] = field(default_factory=list[PromptRequest])
    running: PromptRequest | None = None
    _kept_by_id: dict[str, PromptRequest] = field(default_factory=dict[str, PromptRequest])
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def busy(self) -> bool:
        """Whether a request runs or waits."""
        return self.running is not None or bool(self.waiting)

    def add(self, request: PromptRequest) -> None:
        """Put a request at the end; raises BusyError if too many wait."""
        if len(self.waiting) >= MAX_WAITING:
            message = f"{MAX_WAITING} requests wait already; try again later."
            raise errors.BusyError(message, RETRY_SECONDS)
        self.waiting.append(request)
        self._kept_by_id[request.id] = request
        if len(self._kept_by_id) > MAX_REMEMBERED:
            del self._kept_by_id[next(iter(self._kept_by_id))]  # the oldest
        self._arrived.set()

    def position(self, request: PromptRequest) -> int:
        """The number of requests before it; 0 for the running or the next one."""
        if request not in self.waiting:
            return 0
        before = self.waiting.index(request)
        return before if self.running is None else before + 1

    def find(self, id: str) -> PromptRequest | None:
        """A request by its id, if it is still kept."""
        return self._kept_by_id.get(id)

    async def arrival(self) -> None:
        """Return as soon as a request waits."""
        while not self.waiting:
            self._arrived.clear()
            await self._arrived.wait()

    def begin(self) -> PromptRequest | None:
        """Make the next request the running one; None if it was withdrawn meanwhile."""
        self.running = self.waiting.pop(0) if self.waiting else None
        if self.running is not None:
            self.running.state = State.RUNNING
        return self.running


CHANGED = "Earlier messages have changed; fetch the state again."


class Publisher(Struct):
    """Writes the updates of one shared session.

    `partial` is the text of the answer that is not a message yet.
    """

    log: UpdateLog
    queue: RequestQueue
    partial: list[tuple[UpdateKind, str]] = field(default_factory=list[tuple[UpdateKind, str]])

    def notice(self, text: str) -> None:
        """Show a sentence to all clients."""
        self.log.publish(UpdateKind.NOTICE, {"topic": events.Topic.NOTICE, "text": text})

    def complete(
        self,
        request: PromptRequest,
        ledger: TokenLedger,
        reason: events.FinishReason,
        error: BaseException | None = None,
    ) -> None:
        """End a request and tell its clients."""
        request.finish(reason, error)
        data: messages.JsonObject = {
            **request.to_json(),
            "context": {"used": ledger.context_used, "size": ledger.context_size},
        }
        self.log.publish(UpdateKind.RESPONSE_COMPLETE, data, request=request.id)

    def receive(self, event: events.Event) -> bool:
        """Publish an event of the running turn, and add its tokens to those of the request."""
        update = from_event(event)
        if update is None:  # clients need no such event; False would stop the turn
            return True
        kind, data = update
        if isinstance(event, events.TextEvent):
            self.partial.append((kind, event.text))
        request = self.queue.running
        if isinstance(event, events.Stats) and request is not None:
            request.prompt_tokens += event.prompt_tokens
            request.completion_tokens += event.completion_tokens
            if event.cost is not None:
                request.cost = (request.cost or 0.0) + event.cost
        self.log.publish(kind, data, request=request.id if request else "")
        return True

    def history_changed(
        self, kind: UpdateKind, data: messages.JsonObject, message: messages.Message | None = None
    ) -> None:
        """Publish a change of the messages."""
        request = self.queue.running
        if kind is UpdateKind.SNAPSHOT:  # clients can't follow it: they fetch the state again
            own_id = self.log.id_of(self.log.last + 1)
            data = {"update_id": own_id, "message": CHANGED}
        author = ""
        if message is not None and request is not None:
            if message.role is messages.Role.ASSISTANT:
                self.partial.clear()  # its text is a message now
                request.answer = message.content
            elif message.role is messages.Role.USER and not message.is_hint:
                author = request.client  # it has displayed its message already
        self.log.publish(kind, data, request=request.id if request else "", author=author)

    def tell_positions(self) -> None:
        """Tell all waiting requests their places in the queue."""
        for request in self.queue.waiting:
            self.tell_position(request)

    def tell_position(self, request: PromptRequest) -> None:
        """Tell a request its place in the queue."""
        data = {"position": self.queue.position(request), "prompt": request.prompt}
        self.log.publish(UpdateKind.QUEUED, data, request=request.id)
