"""A shared session for a frontend: it sends prompts and receives events and questions."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import Struct, convert, field

from shepherd import errors, events, messages
from shepherd.cli.connect.client import RemoteUpdate, SharedSessionClient
from shepherd.conversation.shared.updates import UpdateKind, to_event
from shepherd.images import Image
from shepherd.tasks import end_tasks
from shepherd.tools.access import Access
from shepherd.tools.permissions.approval import (
    DENIED_BY_USER,
    ApprovalRequest,
    Approver,
    Choice,
    Part,
)
from shepherd.tools.permissions.rules import Rule

MAX_REMEMBERED = 100
WITHDRAWAL_SECONDS = 10.0
"""How long leaving waits for the server to withdraw an interrupted prompt."""

DECISIONS = {
    Choice.ONCE: "allowed once",
    Choice.SESSION: "allowed for this session",
    Choice.ALWAYS: "always allowed",
    Choice.DENY: "denied",
}

MISSED = "some of what happened meanwhile was missed"
LOST = "The server does not know this request any more; it was probably started again."


class Viewer(Protocol):
    """Shows updates; `mine` tells whether they belong to a request of this client.

    What it does not override is not shown.
    """

    def event(self, event: events.Event, *, mine: bool) -> None:
        """Show an event of a turn."""

    def prompt(self, text: str) -> None:
        """Show a prompt of another client."""

    def queued(self, position: int) -> None:
        """Show the number of requests before this client's."""

    def ended(self, *, mine: bool) -> None:
        """Show the end of a turn."""

    def notice(self, text: str) -> None:
        """Show a sentence about the connection."""


class RemoteSession:
    """A connection while it is entered; `ask` then works like a turn."""

    def __init__(self, client: SharedSessionClient, viewer: Viewer, approver: Approver) -> None:
        self.client = client
        self._viewer = viewer
        self._own_requests: OrderedDict[str, asyncio.Future[events.FinishReason]] = OrderedDict()
        """The last requests of this client, with what `ask` waits for."""
        self._sending = asyncio.Lock()
        """Held while a prompt is sent: updates wait until its request is known."""
        self._questions = RemoteQuestions(client, approver, viewer.notice)
        self._following: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends if the connection is lost; a task that receives updates, once it is entered."""
        self._withdrawals: set[asyncio.Task[None]] = set()
        """Cancel prompts that were interrupted while they were sent."""

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[messages.JsonObject]:
        """Send updates to the viewer in this context; returns the session at its start."""
        session = await self.client.session()
        task = self._following = asyncio.create_task(self._follow(str(session["update_id"])))
        try:
            yield session
        finally:
            if self._withdrawals:
                await asyncio.wait(self._withdrawals, timeout=WITHDRAWAL_SECONDS)
            await end_tasks(task, *self._questions.tasks, *self._withdrawals)

    async def lost(self) -> None:
        """Wait until the connection is lost for good; raises the reason."""
        await asyncio.shield(self._following)

    async def ask(self, prompt: str, images: Sequence[Image] = ()) -> events.FinishReason:
        """Send a prompt and wait for the end of its turn; cancelling stops it.

        A prompt that is cancelled while it is sent is withdrawn once the server has it: only then
        is its state known. Raises ShepherdError if the prompt can't be sent, or if its state can't
        be determined.
        """
        await self._sending.acquire()  # `_send` releases it
        sending = asyncio.create_task(self._send(prompt, images))
        try:
            request, ended = await asyncio.shield(sending)
        except asyncio.CancelledError:
            task = asyncio.create_task(self._withdraw(sending))
            self._withdrawals.add(task)
            task.add_done_callback(self._withdrawals.discard)
            raise
        pending: list[asyncio.Future[Any]] = [ended, self._following]
        try:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.client.cancel(request)
            raise
        if ended.done():
            return ended.result()
        await self.lost()  # raises why the updates have ended
        raise errors.BackendError(LOST)

    async def steer(self, prompt: str, images: Sequence[Image] = ()) -> None:
        """Let a prompt join the running turn; raises ShepherdError if it can't be sent."""
        await self._sending.acquire()  # `_send` releases it
        await self._send(prompt, images, steer=True)

    async def _send(
        self, prompt: str, images: Sequence[Image], *, steer: bool = False
    ) -> tuple[str, asyncio.Future[events.FinishReason]]:
        """Send a prompt; returns its request, and what becomes its reason to end."""
        try:
            request = await self.client.send(prompt, images, steer=steer)
            if request in self._own_requests:  # the prompt has joined a request that runs
                return request, self._own_requests[request]
            ended: asyncio.Future[events.FinishReason] = asyncio.get_running_loop().create_future()
            self._own_requests[request] = ended
            if len(self._own_requests) > MAX_REMEMBERED:
                self._own_requests.popitem(last=False)
            return request, ended
        finally:
            self._sending.release()

    async def _withdraw(
        self, sending: asyncio.Task[tuple[str, asyncio.Future[events.FinishReason]]]
    ) -> None:
        """Cancel a request as soon as it is known."""
        try:
            request, _ = await sending
            await self.client.cancel(request)
        except errors.ShepherdError as error:
            self._viewer.notice(f"interrupted while it was sent: {error}")

    async def _follow(self, after: str) -> None:
        """Show the updates after `after` until the connection is lost for good, which raises."""
        async for update in self.client.updates(after):
            async with self._sending:  # an update may belong to the request that is being sent
                await self._take(update)

    async def _take(self, update: RemoteUpdate) -> None:
        """Show an update, or do what it asks for."""
        mine = update.request in self._own_requests
        match update.kind:
            case UpdateKind.SNAPSHOT:
                await self._resume(str(update.data.get("message", "")))
            case UpdateKind.QUEUED if mine and update.data.get("position"):
                self._viewer.queued(int(update.data["position"]))
            case UpdateKind.MESSAGE_ADDED if not mine:
                message = messages.message_from_json(update.data["message"])
                if message.role is messages.Role.USER and not message.is_hint:
                    self._viewer.prompt(message.content)
            case UpdateKind.CLEARED:
                self._viewer.notice("the conversation was cleared")
            case UpdateKind.RESPONSE_COMPLETE:
                self._complete(update.request, str(update.data["finish_reason"]))
                self._viewer.ended(mine=mine)
            case UpdateKind.APPROVAL_NEEDED:
                self._questions.ask(update.data)
            case UpdateKind.APPROVAL_OPEN | UpdateKind.APPROVAL_DECIDED:
                self._follow_question(update, mine=mine)
            case _:
                event = to_event(update.kind, update.data)
                if event is not None:
                    self._viewer.event(event, mine=mine)

    def _follow_question(self, update: RemoteUpdate, *, mine: bool) -> None:
        """Tell how a question of another client begins and ends; withdraw a decided one."""
        data = update.data
        if update.kind is UpdateKind.APPROVAL_OPEN:
            self._viewer.notice(open_elsewhere(data))
            return
        self._questions.withdraw(str(data["id"]))
        if not mine:
            self._viewer.notice(f"{data['tool']}: {DECISIONS.get(data['decision'], 'withdrawn')}")

    def _complete(self, request: str, reason: str) -> None:
        """End the wait of `ask` for a request, if it is one of this client."""
        ended = self._own_requests.get(request)
        if ended is not None and not ended.done():
            ended.set_result(events.FinishReason(reason))

    async def _resume(self, reason: str) -> None:
        """Query the state of the requests whose updates were lost."""
        cause, _, _advice = reason.partition(";")  # the advice is for other programs
        self._viewer.notice(cause or MISSED)
        session = await self.client.session()
        for request, ended in self._own_requests.items():
            if ended.done():
                continue
            try:
                state = await self.client.request(request)
            except errors.BackendError as error:
                ended.set_exception(errors.BackendError(f"{LOST} ({error})"))
                continue
            if state["state"] == "done":
                self._complete(request, str(state["finish_reason"]))
        for data in session["approvals"]:
            self._questions.ask(data)
        for data in session.get("others_approvals", []):
            self._viewer.notice(open_elsewhere(data))


def open_elsewhere(data: messages.JsonObject) -> str:
    """The sentence about a question that another client is asked."""
    return f"{data['tool']}: waits for the approval of another client"


class RemoteQuestions(Struct):
    """Asks `approver` and sends the answers; `notice` gets a sentence if one does not arrive."""

    client: SharedSessionClient
    approver: Approver
    notice: Callable[[str], None]
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Those that wait for answers."""
        return list(self._tasks.values())

    def ask(self, data: messages.JsonObject) -> None:
        """Ask a question, unless it waits for its answer already."""
        question_id = str(data["id"])
        if question_id not in self._tasks:
            task = asyncio.create_task(self._answer(question_id, data))
            self._tasks[question_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(question_id, None))

    def withdraw(self, question_id: str) -> bool:
        """Stop asking, because the question is decided; whether it waited for an answer."""
        task = self._tasks.get(question_id)
        return task is not None and task.cancel()

    def keep_only(self, question_ids: set[str]) -> None:
        """Withdraw all other questions."""
        for question_id in self._tasks.keys() - question_ids:
            self.withdraw(question_id)

    async def _answer(self, question_id: str, data: messages.JsonObject) -> None:
        """Wait for the user's answer, and send it."""
        approval = await self.approver.ask(approval_request(data))
        reason = approval.feedback
        if not reason and approval.reason != DENIED_BY_USER:  # that is what the server says itself
            reason = approval.reason
        try:
            await self.client.decide(
                question_id, approval.choice.value, reason, approval.values, approval.parts
            )
        except errors.ShepherdError as error:
            self.notice(f"the answer did not reach the server: {error}")


def approval_request(data: messages.JsonObject) -> ApprovalRequest:
    """The question of an `approval_needed`."""
    key = str(data.get("key", ""))
    call = messages.ToolCall(str(data["call_id"]), str(data["tool"]), dict(data["arguments"]))
    return ApprovalRequest(
        call=call,
        accesses=convert(data.get("accesses", []), tuple[Access, ...]),
        preview=str(data["preview"]),
        session=convert(data["session"], tuple[Rule, ...]),
        always=convert(data["always"], tuple[Rule, ...]),
        cause=str(data["cause"]),
        # the model behind a tool, or the key of the client behind the agent
        caller=str(data.get("asker", "")) or (f"the key {key}" if key else ""),
        sandbox=str(data.get("sandbox", "")),
        fields=tuple(map(str, data.get("fields", []))),
        detail=str(data.get("detail", "")),
        parts=convert(data.get("parts", []), tuple[Part, ...]),
    )
