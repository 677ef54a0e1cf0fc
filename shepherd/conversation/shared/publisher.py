"""Publishes what happens in a shared session to its log."""

from shepherd.conversation.shared.log import UpdateLog
from shepherd.conversation.shared.protocol import UpdateKind, from_event
from shepherd.conversation.shared.requests import PromptRequest, RequestQueue
from shepherd.events import Event, FinishReason, Stats, TextEvent, Topic
from shepherd.messages import JsonObject, Message, Role
from shepherd.session import TokenLedger

CHANGED = "Earlier messages have changed; fetch the state again."


class Publisher:
    """Writes the updates of one shared session.

    `partial` is the text of the answer that is not a message yet.
    """

    def __init__(self, log: UpdateLog, queue: RequestQueue) -> None:
        self.partial: list[tuple[UpdateKind, str]] = []
        self._log = log
        self._queue = queue

    def notice(self, text: str) -> None:
        """Show a sentence to all clients."""
        self._log.publish(UpdateKind.NOTICE, {"topic": Topic.NOTICE, "text": text})

    def complete(
        self,
        request: PromptRequest,
        ledger: TokenLedger,
        reason: FinishReason,
        error: BaseException | None = None,
    ) -> None:
        """End a request and tell its clients."""
        request.finish(reason, error)
        data: JsonObject = {
            **request.to_json(),
            "context": {"used": ledger.context_used, "size": ledger.context_size},
        }
        self._log.publish(UpdateKind.RESPONSE_COMPLETE, data, request=request.id)

    def receive(self, event: Event) -> bool:
        """Publish an event of the running turn."""
        update = from_event(event)
        if update is None:
            return True
        kind, data = update
        if isinstance(event, TextEvent):
            self.partial.append((kind, event.text))
        request = self._queue.running
        if isinstance(event, Stats) and request is not None:
            request.prompt_tokens += event.prompt_tokens
            request.completion_tokens += event.completion_tokens
            if event.cost is not None:
                request.cost = (request.cost or 0.0) + event.cost
        self._log.publish(kind, data, request=request.id if request else "")
        return True

    def history_changed(
        self, kind: UpdateKind, data: JsonObject, message: Message | None = None
    ) -> None:
        """Publish a change of the messages."""
        request = self._queue.running
        if kind is UpdateKind.SNAPSHOT:
            data = {"update_id": self._log.id_of(self._log.last + 1), "message": CHANGED}
        author = ""
        if message is not None and request is not None:
            if message.role is Role.ASSISTANT:
                self.partial.clear()
                request.answer = message.content
            elif message.role is Role.USER and not message.is_hint:
                author = request.client
        self._log.publish(kind, data, request=request.id if request else "", author=author)

    def tell_positions(self) -> None:
        """Tell all waiting requests their places in the queue."""
        for request in self._queue.waiting:
            self.tell_position(request)

    def tell_position(self, request: PromptRequest) -> None:
        """Tell a request its place in the queue."""
        data = {"position": self._queue.position(request), "prompt": request.prompt}
        self._log.publish(UpdateKind.QUEUED, data, request=request.id)
