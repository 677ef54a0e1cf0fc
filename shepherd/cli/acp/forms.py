"""The forms of MCP servers in an editor: its own form, or a question for each field."""

from typing import Any

from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

from shepherd.cli.acp.tool_calls import call_title, text_content
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.text import valid_text

NO_FIELDS = "The form of {cause} is declined, because this editor can't show fields for text."
NOT_FILLED = "denied: the editor could not show the form"
REJECT = "reject"
_FAILURES = (RequestError, ConnectionError, ValidationError)


async def fill_form(
    client: Client, updates: SessionUpdates, request: ApprovalRequest, *, has_forms: bool
) -> Approval:
    """The user's values for the fields of a request, or a denial.

    An editor without forms of its own gets one question for each field, if all fields have choices.
    """
    try:
        if has_forms:
            return await _form(client, updates, request)
        if all(request.choices) and len(request.choices) == len(request.fields):
            return await _questions(client, updates, request)
    except _FAILURES:
        return Approval(Choice.DENY, reason=NOT_FILLED)
    updates.notice(NO_FIELDS.format(cause=request.cause))
    return Approval(Choice.DENY, reason=NOT_FILLED)


async def _form(client: Client, updates: SessionUpdates, request: ApprovalRequest) -> Approval:
    choices = [*request.choices, *[()] * len(request.fields)]
    keys = [f"field{number}" for number in range(1, len(request.fields) + 1)]
    properties: dict[str, Any] = {
        key: ElicitationStringPropertySchema(
            type="string", title=valid_text(label), enum=list(texts) or None
        )
        for key, label, texts in zip(keys, request.fields, choices, strict=False)
    }
    answer = await client.create_elicitation(
        message=valid_text(f"{request.cause}\n\n{request.preview}"),
        mode=ElicitationFormSessionMode(
            session_id=updates.session_id, requested_schema=ElicitationSchema(properties=properties)
        ),
    )
    if not isinstance(answer, AcceptElicitationResponse):
        return Approval(Choice.DENY)
    content = answer.content or {}
    return Approval(Choice.ONCE, values=tuple(str(content.get(key, "")) for key in keys))


async def _questions(client: Client, updates: SessionUpdates, request: ApprovalRequest) -> Approval:
    values: list[str] = []
    for label, choices in zip(request.fields, request.choices, strict=True):
        options = [
            PermissionOption(option_id=f"choice-{number}", name=valid_text(text), kind="allow_once")
            for number, text in enumerate(choices)
        ]
        options.append(PermissionOption(option_id=REJECT, name="Decline", kind="reject_once"))
        answer = await client.request_permission(
            session_id=updates.session_id,
            tool_call=_question(updates, request, label),
            options=options,
        )
        chosen = answer.outcome
        texts = {option.option_id: text for option, text in zip(options, choices, strict=False)}
        if not isinstance(chosen, AllowedOutcome) or chosen.option_id not in texts:
            return Approval(Choice.DENY)
        values.append(texts[chosen.option_id])
    return Approval(Choice.ONCE, values=tuple(values))


def _question(updates: SessionUpdates, request: ApprovalRequest, label: str) -> ToolCallUpdate:
    text = valid_text(f"{request.cause}\n\n{request.preview}\n\n{label}")
    return ToolCallUpdate(
        tool_call_id=updates.call_key(request.call),
        title=call_title(request.call),
        status="pending",
        content=[text_content(text)],
    )
