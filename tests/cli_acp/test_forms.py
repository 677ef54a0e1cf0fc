"""Forms of MCP servers in editors: with forms of their own, without, and in Python."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    DeclineElicitationResponse,
    DeniedOutcome,
    RequestPermissionResponse,
)

from shepherd.cli.acp.approvals import EditorApprover
from shepherd.cli.acp.updates import SessionUpdates
from shepherd.messages import JsonObject, ToolCall
from shepherd.sdk.opening import CallbackApprover
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice

FIELDS = ("Colour (red, blue)", "Loud (yes or no)")
CHOICES = (("red", "blue"), ("yes", "no"))
REQUEST = ApprovalRequest(
    ToolCall("1-question", "web__paint", {}),
    (),
    preview="How?",
    cause="the MCP server web asks you to answer a form",
    fields=FIELDS,
    choices=CHOICES,
)
FREE = ApprovalRequest(REQUEST.call, (), cause="the MCP server web", fields=("Name (string)",))


@dataclass
class FormEditor:
    """Answers forms with `content`, and questions with the options in `chosen`."""

    content: JsonObject | None = None
    chosen: list[str] = field(default_factory=list[str])
    asked: list[Any] = field(default_factory=list[Any])

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> object:
        self.asked.append((message, mode))
        if self.content is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=self.content)

    async def request_permission(self, options: Any, **_: Any) -> RequestPermissionResponse:
        self.asked.append([option.name for option in options])
        if not self.chosen:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=self.chosen.pop(0))
        return RequestPermissionResponse(outcome=outcome)


def approver(editor: FormEditor, *, forms: bool) -> tuple[EditorApprover, list[JsonObject]]:
    posted: list[JsonObject] = []
    updates = SessionUpdates("s1", Path("/"), posted.append)
    return EditorApprover(cast(Client, editor), updates, no_change, has_forms=forms), posted


async def no_change(request: ApprovalRequest) -> None:
    """A call that changes no file."""


async def test_an_editor_with_forms_shows_the_form() -> None:
    editor = FormEditor({"field1": "blue", "field2": "yes"})
    asks, _ = approver(editor, forms=True)
    assert await asks.ask(REQUEST) == Approval(Choice.ONCE, values=("blue", "yes"))
    message, mode = editor.asked[0]
    assert message == "the MCP server web asks you to answer a form\n\nHow?"
    properties = mode.requested_schema.properties
    assert [(p.title, p.enum) for p in properties.values()] == [
        (FIELDS[0], ["red", "blue"]),
        (FIELDS[1], ["yes", "no"]),
    ]
    editor.content = None
    assert (await asks.ask(FREE)).choice is Choice.DENY


async def test_an_editor_without_forms_asks_for_each_choice() -> None:
    editor = FormEditor(chosen=["choice-1", "choice-0"])
    asks, _ = approver(editor, forms=False)
    assert await asks.ask(REQUEST) == Approval(Choice.ONCE, values=("blue", "yes"))
    assert editor.asked == [["red", "blue", "Decline"], ["yes", "no", "Decline"]]
    for wrong in ("reject", "choice-7"):
        editor.chosen = ["choice-1", wrong]
        assert (await asks.ask(REQUEST)).choice is Choice.DENY
    assert (await asks.ask(REQUEST)).choice is Choice.DENY


async def test_a_form_with_texts_is_declined_with_a_note_without_forms() -> None:
    editor = FormEditor(chosen=["choice-0"])
    asks, posted = approver(editor, forms=False)
    assert (await asks.ask(FREE)).choice is Choice.DENY
    assert editor.asked == []
    assert "this editor can't show fields for text" in str(posted)


@pytest.mark.parametrize(
    ("answer", "approval"),
    [
        ({FIELDS[0]: "red", FIELDS[1]: "no"}, Approval(Choice.ONCE, values=("red", "no"))),
        ({FIELDS[1]: "no"}, Approval(Choice.ONCE, values=("", "no"))),
        (Approval(Choice.ONCE, values=("red", "no")), Approval(Choice.ONCE, values=("red", "no"))),
    ],
)
async def test_a_program_fills_the_form(answer: Any, approval: Approval) -> None:
    assert await CallbackApprover(lambda _: answer).ask(REQUEST) == approval


async def test_values_without_a_form_allow_nothing() -> None:
    plain = ApprovalRequest(REQUEST.call, ())
    assert (await CallbackApprover(lambda _: {"x": "y"}).ask(plain)).choice is Choice.DENY
