"""Calls that run while questions go to the client and answers come back."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import MCPError, types
from mcp.server import ServerRequestContext
from msgspec import Struct, field

from shepherd.cli.approval.question import approval_question
from shepherd.events import Event, Notice, Topic
from shepherd.tasks import end_tasks
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.tool import ToolResult

MAX_CHARACTERS = 32_768
"""Maximum length of a question; a longer one is denied, because it must be read in full."""

NO_ELICITATION = (
    "denied: approval needed, and this client can't ask its user; add a rule, or start "
    "`shepherd --approve MODE mcp serve`"
)
TOO_LONG = "denied: the question is too long for the client's form"
NO_ANSWER = "denied: the client gave no answer"
_MEANINGS = {
    Choice.ONCE: "yes, this call",
    Choice.SESSION: "yes, for this session",
    Choice.DENY: "no",
}
_FIELD = "decision"

Asker = Callable[[types.ElicitRequestFormParams], Awaitable[types.ElicitResult | None]]
"""Shows a form; None if the client can't."""


class ElicitingApprover(Struct, frozen=True):
    """Asks the client's user; everything but a clear yes denies the call."""

    show_form: Asker

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer. A rule for good is not offered."""
        message = question_text(request)
        if len(message) > MAX_CHARACTERS:
            return Approval(Choice.DENY, reason=TOO_LONG, unanswered=True)
        choices = [Choice.ONCE, *([Choice.SESSION] if request.session else []), Choice.DENY]
        result = await self.show_form(
            types.ElicitRequestFormParams(message=message, requested_schema=_form(choices))
        )
        if result is None:
            return Approval(Choice.DENY, reason=NO_ELICITATION, unanswered=True)
        return _approval(result, choices)


def can_elicit(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client shows forms; one that names no mode shows forms."""
    if capabilities is None or capabilities.elicitation is None:
        return False
    elicitation = capabilities.elicitation
    # clients of the older protocol name no mode, and show forms
    return elicitation.form is not None or elicitation.url is None


def question_text(request: ApprovalRequest) -> str:
    """The whole question as text, with invisible characters made visible."""
    question = approval_question(request)
    lines = [question.title]
    if question.cause:
        lines.append(f"because of {question.cause}")
    all_lines = (*question.lines, *question.details)
    lines += ["".join(text for text, _style in line.fragments()) for line in all_lines]
    for entry in question.entries:
        if entry.answer == "session":  # the user reads which further calls that allows
            lines += [f"session: {rule}" for rule in entry.rules]
    return "\n".join(lines)


def _form(choices: list[Choice]) -> dict[str, Any]:
    """The schema of a form with one field, the decision."""
    meanings = "; ".join(f"{choice.value}: {_MEANINGS[choice]}" for choice in choices)
    field = {"type": "string", "title": "Allow it?", "description": meanings}
    return {
        "type": "object",
        "properties": {_FIELD: {**field, "enum": [choice.value for choice in choices]}},
        "required": [_FIELD],
    }


def _approval(result: types.ElicitResult, choices: list[Choice]) -> Approval:
    """The user's decision; a form that was closed, or has another value, denies."""
    if result.action == "decline":
        return Approval(Choice.DENY)
    decision = (result.content or {}).get(_FIELD)
    if result.action != "accept" or decision not in [choice.value for choice in choices]:
        return Approval(Choice.DENY, reason=NO_ANSWER, unanswered=True)
    return Approval(Choice(decision), by="MCP client")


MAX_WAITING = 32
"""Maximum calls that wait for answers; further questions are denied."""

OVERLOADED = ToolResult(f"Error: denied: {MAX_WAITING} calls wait for answers already", ok=False)

MAX_NOTICES = 1000
"""Notices of one call that wait to be sent; further ones are dropped."""

ANSWER_SECONDS = 3600.0
"""The longest wait for the answer to a question of a call that the client must send again."""

_SHOWN = frozenset({Topic.NOTICE, Topic.WARNING, Topic.PROGRESS, Topic.TASK})

Context = ServerRequestContext[dict[str, Any]]
Body = Callable[["RunningCall"], Awaitable[ToolResult]]


class _Question(Struct, eq=False):
    """A form for the client, and what becomes its answer; None if the client can't show it."""

    form: types.ElicitRequestFormParams
    answer: asyncio.Future[types.ElicitResult | None]


class RunningCall(Struct, eq=False):
    """One call; `context` is that of the client's last request for it.

    Clients of the older protocol get questions as requests of their own. For newer ones, the
    answer to the call is the question, and they repeat the call with the answer.
    """

    context: Context
    params: types.CallToolRequestParams
    questions: asyncio.Queue[_Question] = field(default_factory=asyncio.Queue[_Question])
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _sent_notices: int = 0
    _notices: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])
    logs: bool = False

    async def ask(self, form: types.ElicitRequestFormParams) -> types.ElicitResult | None:
        """The client's answer to a form; None if it can't show one."""
        async with self._asking:  # one question after the other
            session = self.context.session
            if not can_elicit(session.client_capabilities):
                return None
            if session.can_send_request:  # the older protocol
                return await self._request(form)
            answer: asyncio.Future[types.ElicitResult | None]
            answer = asyncio.get_running_loop().create_future()
            self.questions.put_nowait(_Question(form, answer))
            return await answer  # `_resumed` sets it when the client repeats the call

    async def _request(self, form: types.ElicitRequestFormParams) -> types.ElicitResult | None:
        """The answer to a question that is sent as a request, None if the client fails at it."""
        try:
            return await self.context.session.elicit_form(
                form.message, form.requested_schema, self.context.request_id
            )
        except (MCPError, ValueError):  # a client that can't after all, or a malformed answer
            return None

    def on_event(self, event: Event) -> bool:
        """Keep a notice for `report`; the callback of tools."""
        has_room = self._notices.qsize() < MAX_NOTICES  # else the client reads too slowly
        if isinstance(event, Notice) and event.topic in _SHOWN and has_room:
            self._notices.put_nowait(event.text)
        return True

    async def report(self) -> None:
        """Send notices as progress, until it is cancelled."""
        while True:
            await self._send(await self._notices.get())

    async def report_rest(self) -> None:
        """Send the notices that wait."""
        while not self._notices.empty():
            await self._send(self._notices.get_nowait())

    async def _send(self, text: str) -> None:
        """Send a notice as progress, whose number must grow each time, and to the client's log."""
        self._sent_notices += 1
        await self.context.session.report_progress(self._sent_notices, None, text)
        if self.logs:
            entry = types.LoggingMessageNotificationParams(level="info", data=text)
            notification = types.LoggingMessageNotification(params=entry)
            await self.context.session.send_notification(notification, self.context.request_id)


def session_id(context: Context) -> str:
    """The session of a client over HTTP, "" on stdin and stdout, where there is one only."""
    return "" if context.request is None else context.request.headers.get("mcp-session-id", "")


class _WaitingWork(Struct, eq=False):
    """A call whose question the client has, until it repeats the call or time has run out."""

    call: RunningCall
    task: asyncio.Task[ToolResult]
    question: _Question
    expiry: asyncio.TimerHandle


class Calls(Struct, eq=False):
    """Runs calls, and keeps those that wait for an answer in a repeated request.

    A call whose question has no answer after `answer_seconds` is stopped.
    """

    answer_seconds: float = ANSWER_SECONDS
    _logged: set[str] = field(default_factory=set[str])
    """The sessions whose clients asked for a log of such a low level that notices are in it."""
    _waiting_work: dict[str, _WaitingWork] = field(default_factory=dict[str, _WaitingWork])

    async def run(
        self, context: Context, params: types.CallToolRequestParams, body: Body
    ) -> ToolResult | types.InputRequiredResult:
        """The result of a new or a repeated call, or the question that comes before it.

        Raises MCPError for a state that waits for no answer.
        """
        if params.request_state is not None:
            call, task = self._resumed(context, params)
        else:
            call = RunningCall(context, params, logs=session_id(context) in self._logged)
            task = asyncio.ensure_future(body(call))
        report = asyncio.ensure_future(call.report())
        question = asyncio.ensure_future(call.questions.get())
        waits = False  # if so, the call goes on with the client's next request
        try:
            await asyncio.wait([task, question], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await call.report_rest()
                return task.result()
            waits = len(self._waiting_work) < MAX_WAITING
            return self._wait(call, task, question.result()) if waits else OVERLOADED
        finally:
            await end_tasks(report, question, *([] if waits else [task]))

    async def set_level(
        self, context: Context, params: types.SetLevelRequestParams
    ) -> types.EmptyResult:
        """Answer `logging/setLevel`, which only the older protocol has."""
        change = self._logged.add if params.level in ("debug", "info") else self._logged.discard
        change(session_id(context))
        return types.EmptyResult()

    async def aclose(self) -> None:
        """Stop the calls that wait."""
        for state in list(self._waiting_work):
            await end_tasks(self._take(state).task)

    def _wait(
        self, call: RunningCall, task: asyncio.Task[ToolResult], question: _Question
    ) -> types.InputRequiredResult:
        """The question as the answer to a call, which waits under a random name, its state."""
        state = secrets.token_urlsafe(32)
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self.answer_seconds, self._expire, state)
        self._waiting_work[state] = _WaitingWork(call, task, question, expiry)
        request = types.ElicitRequest(params=question.form)
        return types.InputRequiredResult(input_requests={"approval": request}, request_state=state)

    def _resumed(
        self, context: Context, params: types.CallToolRequestParams
    ) -> tuple[RunningCall, asyncio.Task[ToolResult]]:
        """The waiting call that the client repeats, which goes on with the answer in the request.

        Raises MCPError if there is none. That it was the same call is the SDK's promise.
        """
        state = params.request_state or ""
        waiting = self._waiting_work.get(state)
        if waiting is None:
            raise MCPError(types.INVALID_PARAMS, "This call does not wait for an answer.")
        work = self._take(state)
        work.call.context = context
        answer = (params.input_responses or {}).get("approval")
        result = answer if isinstance(answer, types.ElicitResult) else None
        if not work.question.answer.done():  # the call may have been stopped meanwhile
            work.question.answer.set_result(result)
        return work.call, work.task

    def _take(self, state: str) -> _WaitingWork:
        """The work that waits under a state, which does not wait any more."""
        work = self._waiting_work.pop(state)
        work.expiry.cancel()
        return work

    def _expire(self, state: str) -> None:
        """Stop a call whose answer has not come in time."""
        self._take(state).task.cancel()
