"""Around each call: asks the editor's user, shows its change, protects what is not saved."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from acp import RequestError, schema
from acp.interfaces import Client
from msgspec import Struct, structs
from pydantic import ValidationError

from shepherd.cli.acp import updates
from shepherd.cli.acp.updates import CallContent, SessionUpdates
from shepherd.cli.approval.question import Answer, Question, approval_question
from shepherd.errors import ToolError
from shepherd.tools.access import AccessKind, Claim
from shepherd.tools.consent import PreparedCall
from shepherd.tools.permissions.approval import Approval, ApprovalRequest, Choice
from shepherd.tools.registry import traits_of
from shepherd.tools.text import valid_text
from shepherd.tools.tool import FileChange, ToolResult

ALLOWED = "allowed by the user"
NOT_ASKED = "denied: the editor could not ask for approval"
NOT_FILLED = "denied: the editor could not show the form"
NO_FIELDS = "The form of {cause} is declined, because this editor can't show fields for text."
REJECT = "reject"

_FAILURES = (RequestError, ConnectionError, ValidationError)
"""The errors of an editor that can't answer a request of ours."""
_OPTIONS: dict[Answer, tuple[Choice, schema.PermissionOptionKind, str]] = {
    Answer.ONCE: (Choice.ONCE, "allow_once", "Allow once"),
    Answer.SESSION: (Choice.SESSION, "allow_always", "Allow for this session"),
    Answer.ALWAYS: (Choice.ALWAYS, "allow_always", "Always allow"),
    Answer.NO: (Choice.DENY, "reject_once", "Reject"),
}
"""The answers that an editor can show; a text to the model is not one."""

ChangeOf = Callable[[ApprovalRequest], Awaitable[FileChange | None]]
"""The change of a file that a call would make, if it is that alone."""


class EditorApprover(Struct):
    """Sends a request for permission with the change, and every rule that an answer would add.

    Only the choice of an option that was offered allows a call. `has_forms` tells whether the
    editor can show forms.
    """

    client: Client
    updates: SessionUpdates
    change_of: ChangeOf
    has_forms: bool

    async def ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer; what is shown only for the question ends with it."""
        was_visible = self.updates.shows(request.call)  # asking shows it
        approval = await (self._fill(request) if request.fields else self._permit(request))
        if not was_visible:  # a call of a sub-agent, say: its own end is not shown
            is_denied = approval.choice is Choice.DENY
            result = f"Error: {approval.reason}" if is_denied else ALLOWED
            self.updates.call_ended(request.call.id, result)
        return approval

    async def _permit(self, request: ApprovalRequest) -> Approval:
        """The answer to a request without fields; denied if the editor can't ask."""
        question = await asyncio.to_thread(approval_question, request)
        options = _options(question)
        change = await self.change_of(request) if request.preview else None
        call = request.call
        described = schema.ToolCallUpdate(
            tool_call_id=self.updates.call_key(call),
            title=updates.call_title(call),
            kind=traits_of(call.name).kind,
            status="pending",
            content=_contents(question, change),
            locations=updates.call_locations(call, self.updates.cwd) or None,
            raw_input=updates.raw_input(call),
        )
        try:
            chosen = await self._choose(described, options)
        except _FAILURES:
            return Approval(Choice.DENY, reason=NOT_ASKED, unanswered=True)
        return Approval(Choice(chosen) if chosen else Choice.DENY)

    async def _choose(
        self, described: schema.ToolCallUpdate, options: list[schema.PermissionOption]
    ) -> str:
        """The id of the chosen option, "" if the user chose none of these.

        An id that was not offered, which an editor could invent, counts as none.
        """
        answer = await self.client.request_permission(
            session_id=self.updates.session_id, tool_call=described, options=options
        )
        if not isinstance(answer.outcome, schema.AllowedOutcome):
            return ""
        chosen = answer.outcome.option_id
        return chosen if chosen in [option.option_id for option in options] else ""

    async def _fill(self, request: ApprovalRequest) -> Approval:
        """The user's values for the fields of a request, or a denial.

        An editor without forms gets one question for each field, if all fields have choices.
        """
        have_choices = all(request.choices) and len(request.choices) == len(request.fields)
        try:
            if self.has_forms:
                return await self._fill_form(request)
            if have_choices:
                return await self._ask_each_field(request)
        except _FAILURES:
            return Approval(Choice.DENY, reason=NOT_FILLED)
        self.updates.notice(NO_FIELDS.format(cause=request.cause))
        return Approval(Choice.DENY, reason=NOT_FILLED)

    async def _fill_form(self, request: ApprovalRequest) -> Approval:
        """The values of a form with all fields; a field without choices takes any text."""
        properties: dict[str, Any] = {}
        fields = zip_longest(request.fields, request.choices)
        for number, (label, choices) in enumerate(fields, start=1):
            properties[f"field{number}"] = schema.ElicitationStringPropertySchema(
                type="string", title=valid_text(label), enum=list(choices or ()) or None
            )
        answer = await self.client.create_elicitation(
            message=valid_text(f"{request.cause}\n\n{request.preview}"),
            mode=schema.ElicitationFormSessionMode(
                session_id=self.updates.session_id,
                requested_schema=schema.ElicitationSchema(properties=properties),
            ),
        )
        if not isinstance(answer, schema.AcceptElicitationResponse):
            return Approval(Choice.DENY)
        content = answer.content or {}
        return Approval(Choice.ONCE, values=tuple(str(content.get(key, "")) for key in properties))

    async def _ask_each_field(self, request: ApprovalRequest) -> Approval:
        """The values, asked for as one permission after the other; a refused one denies all."""
        values: list[str] = []
        decline = schema.PermissionOption(option_id=REJECT, name="Decline", kind="reject_once")
        for label, choices in zip(request.fields, request.choices, strict=True):
            choice_by_id = {f"choice-{number}": text for number, text in enumerate(choices)}
            options = [
                schema.PermissionOption(option_id=key, name=valid_text(text), kind="allow_once")
                for key, text in choice_by_id.items()
            ]
            text = valid_text(f"{request.cause}\n\n{request.preview}\n\n{label}")
            described = schema.ToolCallUpdate(
                tool_call_id=self.updates.call_key(request.call),
                title=updates.call_title(request.call),
                status="pending",
                content=[updates.text_content(text)],
            )
            chosen = await self._choose(described, [*options, decline])
            if chosen not in choice_by_id:
                return Approval(Choice.DENY)
            values.append(choice_by_id[chosen])
        return Approval(Choice.ONCE, values=tuple(values))


def _options(question: Question) -> list[schema.PermissionOption]:
    """The answers as options of the editor, each with the rules that it would add."""
    options: list[schema.PermissionOption] = []
    for entry in question.entries:
        if entry.answer in _OPTIONS:
            choice, kind, name = _OPTIONS[entry.answer]
            rules = f": {'; '.join(entry.rules)}" if entry.rules else ""
            text = valid_text(name + rules)
            options.append(schema.PermissionOption(option_id=choice.value, name=text, kind=kind))
    return options


def _contents(question: Question, change: FileChange | None) -> list[CallContent]:
    """The change or the preview, then what Shepherd says about the call."""
    diff = updates.diff_content(change) if change is not None else None
    texts = [question.title]
    if question.cause:
        texts.append(f"Cause: {question.cause}")
    # a diff shows what the other lines of the preview say
    lines = [line for line in question.lines if diff is None or line.is_fact]
    texts += ["".join(text for text, _style in line.fragments()) for line in lines]
    contents = [] if diff is None else [diff]
    contents.append(updates.text_content(valid_text("\n".join(texts))))
    details = ["".join(text for text, _style in line.fragments()) for line in question.details]
    return [*contents, updates.text_content("\n".join(details))] if details else contents


ANSWER_SECONDS = 5.0
"""The time in which an editor must say what it has open; afterwards the saved file counts."""
MAX_COMPARED_BYTES = 8 << 20

UNSAVED_WRITE = (
    "{path} has unsaved changes in the editor, which this call would overwrite; ask the user to "
    "save or discard them first"
)
UNSAVED_READ = "\n[the editor has unsaved changes in this file; this is the saved text]"
_READER = "read_file"


class EditorStep(Struct):
    """The step of a session's calls; see `CallStep`. `reads_files`: the editor tells its texts."""

    client: Client
    updates: SessionUpdates
    reads_files: bool

    async def before(self, prepared: PreparedCall) -> None:
        """Show the change; refuses a call that would overwrite unsaved changes."""
        change = await _change_by_call(prepared)
        if self.reads_files:
            for path in _certain_targets(prepared, AccessKind.WRITE):
                if await self._is_unsaved(path):
                    raise ToolError(UNSAVED_WRITE.format(path=path))
        if not self.updates.shows(prepared.call):  # it is a sub-agent's
            return
        diff = updates.diff_content(change) if change is not None else None
        self.updates.call_runs(prepared.call, [] if diff is None else [diff])

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result, with a note if the editor shows other text than the model reads."""
        if not (self.reads_files and result.ok and prepared.tool.name == _READER):
            return result
        for path in _certain_targets(prepared, AccessKind.READ):
            if await self._is_unsaved(path):
                return structs.replace(result, content=result.content + UNSAVED_READ)
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
        except (*_FAILURES, TimeoutError):
            return False  # the editor does not have the file
        return _comparable(answer.content) != _comparable(saved)


async def _change_by_call(prepared: PreparedCall) -> FileChange | None:
    """The change of a file that the call would make, if it is that alone and can succeed."""
    try:
        return await asyncio.to_thread(prepared.tool.change, prepared.arguments, prepared.context)
    except (ToolError, OSError):  # the call itself reports it
        return None


def _certain_targets(prepared: PreparedCall, kind: AccessKind) -> list[Path]:
    """The files that the call touches for certain; what a program touches is never certain."""
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
