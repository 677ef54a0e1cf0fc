"""Around each call: asks the editor's user, shows its change, protects what is not saved."""

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
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
    PermissionOptionKind,
    ToolCallUpdate,
)
from pydantic import ValidationError

from shepherd.cli.acp.updates import (
    CallContent,
    SessionUpdates,
    call_locations,
    call_title,
    diff_content,
    raw_input,
    text_content,
)
from shepherd.cli.approval.question import Answer, Question, approval_question
from shepherd.errors import ToolError
from shepherd.tools.base import AccessKind, Claim, FileChange, ToolResult
from shepherd.tools.consent import PreparedCall, parse_arguments
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.registry import traits_of
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
            kind=traits_of(call.name).kind,
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


ANSWER_SECONDS = 5.0
"""The time in which an editor must say what it has open; afterwards the saved file counts."""
MAX_COMPARED_BYTES = 8 << 20

UNSAVED_WRITE = (
    "{path} has unsaved changes in the editor, which this call would overwrite; ask the user to "
    "save or discard them first"
)
UNSAVED_READ = "\n[the editor has unsaved changes in this file; this is the saved text]"
_READERS = frozenset({"read_file"})


@dataclass(slots=True)
class EditorStep:
    """The step of a session's calls; see `CallStep`. `reads` tells whether the editor has files."""

    client: Client
    updates: SessionUpdates
    reads: bool

    async def before(self, prepared: PreparedCall) -> None:
        """Show the change; refuses a call that would overwrite unsaved changes."""
        change = await _change(prepared)
        if self.reads:
            for path in _targets(prepared, AccessKind.WRITE):
                if await self._is_unsaved(path):
                    raise ToolError(UNSAVED_WRITE.format(path=path))
        if not self.updates.shows(prepared.call):
            return
        diff = diff_content(change) if change is not None else None
        self.updates.call_runs(prepared.call, [] if diff is None else [diff])

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result, with a note if the editor shows other text than the model reads."""
        if not (self.reads and result.ok and prepared.tool.name in _READERS):
            return result
        for path in _targets(prepared, AccessKind.READ):
            if await self._is_unsaved(path):
                return replace(result, content=result.content + UNSAVED_READ)
        return result

    async def _is_unsaved(self, path: Path) -> bool:
        """Whether the editor shows other text than the file has."""
        saved = await asyncio.to_thread(_saved_text, path)
        if saved is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self.client.read_text_file(
                    session_id=self.updates.session_id, path=str(path)
                )
        except (RequestError, ConnectionError, ValidationError, TimeoutError):
            return False  # the editor does not have the file
        return _comparable(answer.content) != _comparable(saved)


async def _change(prepared: PreparedCall) -> FileChange | None:
    try:
        return await asyncio.to_thread(prepared.tool.change, prepared.arguments, prepared.context)
    except (ToolError, OSError):  # the call itself reports it
        return None


def _targets(prepared: PreparedCall, kind: AccessKind) -> list[Path]:
    """The files that the call touches for certain; commands are not among its kinds."""
    if prepared.tool.starts_programs:
        return []
    return [
        Path(access.target)
        for access in prepared.accesses
        if access.kind is kind and access.claim is Claim.EXACT
    ]


def _saved_text(path: Path) -> str | None:
    """The text of a file, None if it is not a text that an editor can have open."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_COMPARED_BYTES:
            return None
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _comparable(text: str) -> str:
    """The text as far as editors keep it: not its line ends, its mark, or its last newline."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n")
