"""The shared session: answers prompts one after the other and publishes all updates."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import groupby
from operator import itemgetter
from typing import Self

from msgspec import Struct

from shepherd.backends.base import Backend, cannot_see
from shepherd.conversation.additions import Additions
from shepherd.conversation.context_use import ContextUse, measure_context
from shepherd.conversation.conversation import Conversation
from shepherd.conversation.own_commands import ALONE
from shepherd.conversation.shared import approvals, requests, updates
from shepherd.errors import BusyError, SessionError, SessionStorageError, ShepherdError
from shepherd.events import Failure, FinishReason, Notice, Topic
from shepherd.images import Image
from shepherd.messages import JsonObject, Message, message_to_json
from shepherd.session import SessionJournal
from shepherd.tasks import end_tasks
from shepherd.tools.permissions.approval import Approver
from shepherd.transcript import SessionSummary
from shepherd.turn import ToolExecutor, TurnOutcome, run_turn

logger = logging.getLogger(__name__)

RELOADING = "The model has failed for good; it is loaded again."
ENDING = "The server is ending; it takes no more requests."
RESUMED = "Another session is shared now; fetch the state again."
DEFECT = "The server failed to answer this request; its log says why."


class SessionActions(Struct, frozen=True):
    """How a shared session runs tools and commands.

    `tool_runner` makes the runner of calls that an approver allows. `command` returns the output of
    a command, such as `/undo`; it raises ShepherdError.
    """

    tool_runner: Callable[[Approver], ToolExecutor]
    command: Callable[[str], Awaitable[str]]


class SharedSession:
    """A session that many clients prompt and watch; its turns run one after the other.

    Enter it on the loop that serves. It listens to the conversation's session until its end.
    """

    def __init__(
        self,
        conversation: Conversation,
        actions: SessionActions,
        backend: Backend,
        *,
        log: updates.UpdateLog | None = None,
        clock: approvals.Clock | None = None,
    ) -> None:
        self.session = conversation.session
        self.knowledge = conversation.knowledge
        self.backend = backend
        self.log = log or updates.UpdateLog()
        self.presence = approvals.Presence(clock or approvals.Clock())
        self.queue = requests.RequestQueue()
        self.approver = approvals.ClientApprover(self.log, self.presence)
        self.publisher = requests.Publisher(self.log, self.queue)
        existing = self.session.additions  # a program's session may have others, or none
        self._additions = existing if isinstance(existing, Additions) else Additions()
        self._conversation = conversation
        self._actions = actions
        self._tools = actions.tool_runner(self.approver)
        # what saves the session, also while a `SharedJournal` stands before it
        self._journal: SessionJournal | None = None
        # the turn of the running request, and the task that answers all requests
        self._turn: asyncio.Task[TurnOutcome] | None = None
        self._worker: asyncio.Task[None] | None = None
        # held by a turn or by a command: only one of them changes the session
        self._changing = asyncio.Lock()
        self._draining = False

    async def __aenter__(self) -> Self:
        await self._share_session()
        self._worker = asyncio.create_task(self._work())
        return self

    async def _share_session(self) -> None:
        """Publish the changes of the session from now on."""
        self.session.additions = self._additions
        self._journal = self.session.journal
        self.session.journal = updates.SharedJournal(
            self.session, self._journal or updates.NotSaved(), self.publisher.history_changed
        )
        ledger = self.session.ledger
        ledger.context_size = self.backend.info.context_size
        if self.session.messages:
            ledger.context_used = await self.backend.count_session_tokens(self.session)

    async def __aexit__(self, *error: object) -> None:
        self.drain()
        if self._worker is not None:
            await end_tasks(self._worker)
        self.session.journal = self._journal
        self.log.close()

    def submit(
        self, prompt: str, client: str, images: tuple[Image, ...] = ()
    ) -> requests.PromptRequest:
        """Put a prompt at the end of the queue; raises BusyError if it is full.

        Raises ImageError for images that the model can't see.
        """
        if self._draining:
            raise BusyError(ENDING)
        if images and self.backend.info.vision is False:
            raise cannot_see(self.backend.info.id)
        request = requests.PromptRequest(prompt, client, images)
        self.queue.add(request)
        self.publisher.tell_position(request)
        return request

    def steer(
        self, prompt: str, client: str, images: tuple[Image, ...] = ()
    ) -> requests.PromptRequest:
        """Let a message join the running request of the same client; returns that request.

        If none runs, the message waits as a request of its own; raises the errors of `submit`.
        """
        running = self.queue.running
        if running is None or running.client != client or self._turn is None:
            return self.submit(prompt, client, images)
        if images and self.backend.info.vision is False:
            raise cannot_see(self.backend.info.id)
        self._additions.steer(Message.user(prompt, images))
        return running

    def cancel(self, id: str) -> requests.PromptRequest:
        """Withdraw a request, or stop it; raises SharedSessionError if it has ended."""
        request = self.find(id)
        if request.state is requests.State.QUEUED:
            self.queue.waiting.remove(request)
            self.publisher.complete(request, self.session.ledger, FinishReason.CANCELLED)
            self.publisher.tell_positions()
        elif request.state is requests.State.DONE or self._turn is None:
            message = "The request has ended already."
            raise updates.SharedSessionError(updates.RefusalCode.REQUEST_ENDED, message)
        elif not self._turn.cancelling():  # a second cancellation would end its clean-up
            self._turn.cancel()
        return request

    def find(self, id: str) -> requests.PromptRequest:
        """A request that is still kept; raises SharedSessionError."""
        request = self.queue.find(id)
        if request is None:
            message = "There is no such request, or it is not kept any more."
            raise updates.SharedSessionError(updates.RefusalCode.REQUEST_NOT_FOUND, message)
        return request

    async def measure(self) -> ContextUse:
        """The tokens of each part of the next prompt; also while a turn runs."""
        return await measure_context(self.session, self.backend)

    def clear(self) -> None:
        """Remove all messages; raises SharedSessionError while a request runs or waits."""
        self._check_idle()
        self._conversation.clear()

    def saved_sessions(self, limit: int) -> list[SessionSummary]:
        """The newest saved sessions of the directory."""
        return self._conversation.saved_sessions(limit)

    async def command(self, text: str) -> str:
        """The output of a command; prompts that come meanwhile wait.

        All clients get it, unless it is the output of `!!LINE`.

        Raises SharedSessionError while a request runs or waits, and the command's ShepherdError.
        """
        self._check_idle()
        async with self._changing:
            output = await self._actions.command(text)
            if self.session.messages:  # the command may have changed them
                used = await self.backend.count_session_tokens(self.session)
                self.session.ledger.context_used = used
        if not text.lstrip().startswith(ALONE):
            self.publisher.notice(f"{text}\n{output}")
        return output

    async def resume(self, id: str) -> None:
        """Share a saved session in place of this one; all clients get a snapshot.

        Raises SharedSessionError without a change if it can't be opened, or while a request runs
        or waits; SessionStorageError if the database of sessions can't be used.
        """
        self._check_idle()
        async with self._changing:  # prompts that come meanwhile are for the other session
            # the session that is left is not shared any more: it gets its own journal back
            shared_journal, self.session.journal = self.session.journal, self._journal
            try:
                self._conversation.resume(id)
            except SessionError as error:
                self.session.journal = shared_journal
                if isinstance(error, SessionStorageError):
                    raise
                raise updates.SharedSessionError(
                    updates.RefusalCode.SESSION_NOT_FOUND, str(error)
                ) from error
            self.session = self._conversation.session
            await self._share_session()
            own_id = self.log.id_of(self.log.last + 1)
            data = {"update_id": own_id, "message": RESUMED}
            self.log.publish(updates.UpdateKind.SNAPSHOT, data)

    def _check_idle(self) -> None:
        """Raise SharedSessionError while a request or a command uses the session."""
        if self.queue.busy or self._changing.locked():
            message = "A request runs or waits; cancel it, or wait for its end."
            raise updates.SharedSessionError(updates.RefusalCode.CONVERSATION_BUSY, message)

    def drain(self) -> None:
        """Accept no more requests and cancel the waiting ones; the running one continues."""
        self._draining = True
        while self.queue.waiting:
            request = self.queue.waiting.pop()
            self.publisher.complete(request, self.session.ledger, FinishReason.CANCELLED)
        if not self.queue.busy:  # otherwise the running request still publishes; see `_work`
            self.log.close()

    async def _work(self) -> None:
        """Answer one request after another: the task that runs until the session is left."""
        while True:
            await self.queue.arrival()
            try:
                async with self._changing:  # a command can hold it: until then, requests wait
                    request = self.queue.begin()
                    if request is not None:
                        await self._answer(request)
            finally:
                self.queue.running = None
                if self._draining:  # no update can follow: streams end
                    self.log.close()

    async def _answer(self, request: requests.PromptRequest) -> None:
        """Run the turn of a request and tell its clients how it ended; raises none of its errors.

        The turn is a task of its own, so that `cancel` can end it without ending the worker.
        """
        self.approver.request = request
        self.log.publish(updates.UpdateKind.STARTED, {}, request=request.id)
        self.publisher.tell_positions()
        turn = self._turn = asyncio.create_task(self._run(request))
        try:
            await asyncio.wait({turn})  # unlike `await turn`, it raises no error of the turn
        finally:
            await end_tasks(turn)  # if the worker was cancelled, the turn still runs
            self._turn = self.approver.request = None
            self.publisher.partial.clear()
            self._end_turn(request, turn)
            self._submit_unused(request.client)

    async def _run(self, request: requests.PromptRequest) -> TurnOutcome:
        """The turn of a request: a task that ends with the answer, or when it is cancelled."""
        try:
            if not self.backend.alive:
                self.publisher.receive(Notice(RELOADING, Topic.WARNING))
                self.backend = await self._conversation.slot.reload()
            await self._conversation.before_turn()
            message = Message.user(request.prompt, request.images)
            message = await self._conversation.prompt(message)
        except ShepherdError as error:  # clients read those of `run_turn` from itself
            self.publisher.receive(Failure(str(error), type(error).__name__))
            raise
        return await run_turn(
            self.session,
            message,
            self.backend,
            self._tools,
            self.publisher.receive,
            self._conversation.limits,
        )

    def _end_turn(self, request: requests.PromptRequest, turn: asyncio.Task[TurnOutcome]) -> None:
        """Tell the clients of a request how its turn ended."""
        if turn.cancelled():
            self.publisher.complete(request, self.session.ledger, FinishReason.CANCELLED)
            return
        error = turn.exception()
        if error is None:
            self.publisher.complete(request, self.session.ledger, turn.result().finish_reason)
            return
        if not isinstance(error, ShepherdError):  # ShepherdErrors are events already
            logger.error("A request failed", exc_info=error)
            data = {"error": type(error).__name__, "message": DEFECT}
            self.log.publish(updates.UpdateKind.ERROR, data, request=request.id)
        self.publisher.complete(request, self.session.ledger, FinishReason.ERROR, error)

    def _submit_unused(self, client: str) -> None:
        """Let the messages that the turn did not use wait as requests."""
        for steering in self._additions.take_all():
            message = steering.message
            try:
                self.submit(message.content, client, message.images)
            except BusyError as error:
                self.publisher.receive(Notice(str(error), Topic.WARNING))


def snapshot(conversation: SharedSession, client: str) -> JsonObject:
    """Everything up to the update `update_id`, as far as this client may see it.

    A client that applies the updates after that id misses none and repeats none.
    """
    session, log, queue = conversation.session, conversation.log, conversation.queue
    return {
        "id": session.id,
        "update_id": log.id_of(log.last),
        "model": conversation.backend.info.id,
        "context": {
            "used": session.ledger.context_used,
            "size": conversation.backend.info.context_size,
        },
        "thinking": session.thinking,
        "commands": conversation.knowledge.command_list(),
        "skills": [
            {"name": skill.name, "description": skill.description}
            for skill in conversation.knowledge.skills
        ],
        "messages": [message_to_json(message.without_images()) for message in session.messages],
        "running": _running(conversation, client),
        "queue": [
            {
                "request": request.id,
                "position": queue.position(request),
                "prompt": request.prompt,
                "mine": request.client == client,
            }
            for request in queue.waiting
        ],
        "approvals": [
            {"request": pending.request.id, **pending.to_json()}
            for pending in conversation.approver.pending(client)
        ],
        "others_approvals": [
            {"request": pending.request.id, **pending.for_others()}
            for pending in conversation.approver.open_for_others(client)
        ],
    }


def _running(conversation: SharedSession, client: str) -> JsonObject | None:
    """The running request and its answer so far; None if none runs."""
    request = conversation.queue.running
    if request is None:
        return None
    return {
        "request": request.id,
        "prompt": request.prompt,
        "mine": request.client == client,
        "partial": [
            {"kind": kind, "text": "".join(text for _, text in pieces)}
            for kind, pieces in groupby(conversation.publisher.partial, key=itemgetter(0))
        ],
    }
