"""Asks the editor's user before a tool runs."""

import asyncio
from dataclasses import replace
from functools import partial

from acp import RequestError
from acp.interfaces import Client
from acp.schema import AllowedOutcome, PermissionOption, PermissionOptionKind, ToolCallUpdate
from pydantic import ValidationError

from shepherd.cli.acp.forms import fill_form
from shepherd.cli.acp.tool_calls import (
    CallContent,
    call_kind,
    call_locations,
    call_title,
    diff_content,
    raw_input,
    text_content,
)
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.cli.approval.question import Answer, Question, approval_question
from shepherd.errors import ToolError
from shepherd.tools.base import FileChange
from shepherd.tools.call import parse_arguments
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.runner import ToolRunner
from shepherd.tools.text import valid_text

ALLOWED = "allowed by the user"
NOT_ASKED = "denied: the editor could not ask for approval"

_OPTIONS: dict[Answer, tuple[Choice, PermissionOptionKind, str]] = {
    Answer.ONCE: (Choice.ONCE, "allow_once", "Allow once"),
    Answer.SESSION: (Choice.SESSION, "allow_always", "Allow for this session"),
    Answer.ALWAYS: (Choice.ALWAYS, "allow_always", "Always allow"),
    Answer.NO: (Choice.DENY, "reject_once", "Reject"),
}


class EditorApprover:
    """Sends a request for permission with the change, and every rule that an answer would add.

    Only the choice of an option that was offered allows a call. `runner` is set once it exists,
    because it needs the approver. `has_forms` tells whether the editor can show forms.
    """

    def __init__(self, client: Client, updates: SessionUpdates, *, has_forms: bool = False) -> None:
        self._has_forms = has_forms
        self._client = client
        self._updates = updates
        self.runner: ToolRunner | None = None

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer; what is shown only for the question ends with it."""
        is_visible = self._updates.shows(request.call)
        approval = await self._ask(request)
        if not is_visible:
            denied = approval.choice is Choice.DENY
            self._updates.call_ended(
                request.call.id, f"Error: {approval.reason}" if denied else ALLOWED
            )
        return approval

    async def _ask(self, request: ApprovalRequest) -> Approval:
        if request.fields:
            return await fill_form(self._client, self._updates, request, has_forms=self._has_forms)
        question = await asyncio.to_thread(approval_question, request)
        options = _options(question)
        try:
            answer = await self._client.request_permission(
                session_id=self._updates.session_id,
                tool_call=await self._described(request, question),
                options=list(options.values()),
            )
        except (RequestError, ConnectionError, ValidationError):
            return Approval(Choice.DENY, reason=NOT_ASKED)
        if not isinstance(answer.outcome, AllowedOutcome):
            return Approval(Choice.DENY)
        chosen = next((c for c in options if c.value == answer.outcome.option_id), Choice.DENY)
        return Approval(chosen)

    async def _described(self, request: ApprovalRequest, question: Question) -> ToolCallUpdate:
        call = request.call
        change = await self._change(request)
        return ToolCallUpdate(
            tool_call_id=self._updates.call_key(call),
            title=call_title(call),
            kind=call_kind(call.name),
            status="pending",
            content=_contents(question, change),
            locations=call_locations(call, self._updates.cwd) or None,
            raw_input=raw_input(call),
        )

    async def _change(self, request: ApprovalRequest) -> FileChange | None:
        """The change of a file that the call would make, if it is that alone."""
        if self.runner is None or not request.preview:
            return None
        return await change_of(self.runner, request)


async def change_of(runner: ToolRunner, request: ApprovalRequest) -> FileChange | None:
    """The change that a call of Shepherd's own tools would make; None if it can't succeed."""
    tool = runner.registry.get(request.call.name)
    if tool is None:
        return None
    context = replace(runner.context, grants=frozenset(request.accesses))
    context = replace(context, denies=partial(runner.policy.denies, tool.name))
    try:
        arguments = parse_arguments(tool, request.call)
        return await asyncio.to_thread(tool.change, arguments, context)
    except (ToolError, OSError):
        return None


def _options(question: Question) -> dict[Choice, PermissionOption]:
    """The answers of the question that an editor can show; a text to the model is not one."""
    options: dict[Choice, PermissionOption] = {}
    for entry in question.entries:
        if entry.answer in _OPTIONS:
            choice, kind, name = _OPTIONS[entry.answer]
            rules = f": {'; '.join(entry.rules)}" if entry.rules else ""
            text = valid_text(name + rules)
            options[choice] = PermissionOption(option_id=choice.value, name=text, kind=kind)
    return options


def _contents(question: Question, change: FileChange | None) -> list[CallContent]:
    """The change or the preview, then what Shepherd says about the call."""
    diff = diff_content(change) if change is not None else None
    lines = [
        "".join(text for text, _ in line.fragments())
        for line in question.lines
        if diff is None or line.is_fact
    ]
    head = [question.title, *([f"Cause: {question.cause}"] if question.cause else [])]
    text = text_content(valid_text("\n".join([*head, *lines])))
    return [diff, text] if diff is not None else [text]
