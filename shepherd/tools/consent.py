"""Decides on a call: by the rules, and by the user where the rules leave it open."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from msgspec import Struct, field, structs
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shepherd.config.section import ApproveMode
from shepherd.errors import PlaceError, ShepherdError, ToolError
from shepherd.json_text import is_finite
from shepherd.messages import ToolCall
from shepherd.tools import confinement, deferred
from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.layer.layer import Layer
from shepherd.tools.permissions import content, rules
from shepherd.tools.permissions.approval import (
    HELD_BACK,
    Approval,
    ApprovalRequest,
    Approver,
    CallObserver,
    Choice,
    Part,
    propose,
    propose_for_effect,
)
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.text import one_line, valid_json, valid_text
from shepherd.tools.tool import AnyTool, FieldChoices, ToolContext, ToolResult
from shepherd.validation import describe_problem

_MAX_PROBLEMS = 3
_MAX_LABEL = 60
_MAX_CHANGES = 100
"""Changes that clients of a session get as data; the text of the question has all."""


class PreparedCall(Struct, frozen=True):
    """A call with checked arguments and its accesses.

    It starts programs in the directory `place`. `layer` is the one that it works in with others.
    """

    call: ToolCall
    tool: AnyTool
    arguments: Any
    context: ToolContext
    accesses: tuple[Access, ...]
    place: Path
    layer: Layer | None = None

    @property
    def label(self) -> str:
        """The call in a few words, such as `edit_file notes.txt`."""
        arguments = self.call.arguments
        subject = next((arguments[key] for key in ("command", "path") if key in arguments), "")
        text = one_line(" ".join(valid_text(str(subject)).split()))
        short = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"
        return f"{self.call.name} {short}".strip()

    @property
    def command(self) -> confinement.Command:
        """The call as one that starts programs."""
        return confinement.Command(
            self.tool.name,
            self.accesses,
            self.place,
            self.context.on_event,
            self.tool.is_live(self.arguments),
        )


class Described(Struct, frozen=True):
    """An effect for the user: in words, as a diff, and in parts."""

    text: str
    diff: str
    parts: tuple[Part, ...] = ()


class CallStep(Protocol):
    """Work around each call of a conversation, such as keeping the files that it changes."""

    async def before(self, prepared: PreparedCall) -> None:
        """Act on an allowed call before it runs; ToolError refuses the call."""

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result to use, also after a failure; a cancelled call has none."""
        ...


class UndoStep(CallStep, Protocol):
    """The step that keeps what calls change, so that the user can undo it."""

    async def unkept(self, paths: Collection[str]) -> list[str]:
        """Sentences about what can't be brought back after a change of these absolute paths."""
        ...


def parse_arguments(tool: AnyTool, call: ToolCall) -> Any:
    """The arguments of a call, checked; raises ToolError with text for the model."""
    infinite = [name for name, value in call.arguments.items() if not is_finite(value)]
    if infinite:
        problem = f"{infinite[0]} has a number that is infinite, or too large"
        raise ToolError(f"bad arguments for {call.name}: {problem}")
    kind: type[BaseModel] = tool.arguments
    try:
        return kind.model_validate(valid_json(call.arguments))
    except ValidationError as error:
        problems = _sentence(error.errors(include_url=False), kind.model_fields)
        # the prompt may not list the tool
        usage = f"; it is {deferred.call_signature(tool.spec())}" if tool.is_extension else ""
        raise ToolError(f"bad arguments for {call.name}: {problems}{usage}") from error


def _sentence(details: list[ErrorDetails], names: Iterable[str]) -> str:
    """The first different problems in one line; `names` are those of the tool's arguments."""
    problems: list[str] = []
    for detail in details:
        name = str(next(iter(detail["loc"]), ""))
        takes = ", ".join(names) or "nothing"
        text = describe_problem(detail, name, unknown=f"{name} is unknown; it takes {takes}")
        if text not in problems:
            problems.append(text)
    more = f"; {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
    return "; ".join(problems[:_MAX_PROBLEMS]) + more


_log = logging.getLogger(__name__)

_KEY_CAUSE = "the result holds a private key"
_KEY_PREVIEW = "The call has run, and its result holds a private key. Yes tells it to the model."
CHANGED = "what the call touches has changed since it was approved; try again"


class Consent(Struct, frozen=True):
    """Decides on one call: by the rules, and by the user where these leave it open.

    The `observer` is told each verdict and each answer. `caller` names the model that made the
    call, if it is not the model of the conversation. `undo` knows what can't be undone. `notes` are
    texts for the end of the result.
    """

    call: ToolCall
    policy: PermissionPolicy
    confiner: confinement.Confiner
    approver: Approver
    observer: CallObserver | None = None
    caller: str = ""
    undo: UndoStep | None = None
    notes: list[str] = field(default_factory=list[str])

    async def obtain(self, prepared: PreparedCall) -> confinement.Plan:
        """The way in which the call may run; raises ToolError if it may not."""
        mode = self.policy.mode
        plan = await self._plan(prepared)
        if plan.verdict.decision is rules.Decision.ASK:
            accesses, preview = prepared.accesses, await self._preview(prepared)
            request = await self._request(accesses, plan.verdict, preview, plan.sandbox_text)
            request = _offering(request, plan.policy, prepared.tool, accesses)
            self.notes.append(await self._approved(prepared, request))
            # files that the verdict is about, such as hooks, may have changed during the question
            if not await asyncio.to_thread(self.policy.accept, plan.verdict, accesses):
                raise ToolError(CHANGED)
            if self.policy.mode is not mode:  # the user has changed it with the answer
                plan = await self._plan(prepared)
        if self.observer is not None:
            self.observer.started()
        return plan

    async def opened(
        self, prepared: PreparedCall, plan: confinement.Plan, refusal: Refusal
    ) -> tuple[confinement.Plan, str]:
        """The plan by which the call runs again, and the text to add to its result.

        Raises ToolError if a rule or the user says no.
        """
        opening = plan.opening(refusal, self.policy)
        # the first run may have created or removed files that the line mentions
        current = await asyncio.to_thread(
            prepared.tool.accesses, prepared.arguments, prepared.context
        )
        prepared = structs.replace(prepared, accesses=tuple(current))
        accesses = prepared.command.opening(opening.kind)
        verdict = self._decide(prepared.tool, (*self._denied(prepared), *accesses))
        preview = await self._preview(prepared)
        request = await self._request(accesses, verdict, preview, opening.question)
        if not prepared.command.connects_itself:  # else no rule may allow it the next time
            everything = (*prepared.accesses, *accesses)
            request = _offering(request, opening.plan.policy, prepared.tool, everything)
        return opening.plan, await self._approved(prepared, request) + opening.note

    async def keep(
        self,
        prepared: PreparedCall,
        plan: confinement.Plan,
        changes: Sequence[Access],
        describe: Callable[[], Described],
    ) -> tuple[Collection[Access], tuple[int, ...] | None]:
        """Decide on what the call has changed in its layer.

        Returns the changes to leave out, and the numbers of the parts to keep, None for all. Raises
        ToolError if all are dropped.
        """
        tool, policy = prepared.tool.name, plan.policy
        verdict, about = await asyncio.to_thread(
            policy.decide_effect, tool, changes, is_approved=plan.is_approved
        )
        if verdict.decision is rules.Decision.ASK and all(map(policy.is_bytecode, about)):
            return about, None
        self._report(verdict)
        parts = None
        if verdict.decision is rules.Decision.ASK:
            described = await asyncio.to_thread(describe)
            preview = f"{await self._preview(prepared)}\n\n{described.text}".lstrip("\n")
            request = structs.replace(
                await self._request(tuple(about), verdict, preview),
                accesses=tuple(about[:_MAX_CHANGES]),
                detail=valid_text(described.diff),
                parts=described.parts,
                session=propose_for_effect(self.policy, tool, about, rules.Lifetime.SESSION),
                always=propose_for_effect(self.policy, tool, about, rules.Lifetime.ALWAYS),
            )
            approval = await self._approval(request)
            self.notes.append(self._remember(request, approval))
            self.policy.accept(verdict, changes)
            parts = approval.parts
        return (), parts

    async def authorize(self, tool: AnyTool, access: Access, purpose: str) -> bool:
        """Decide on a further access of the running call."""
        verdict = self._decide(tool, [access])
        if verdict.decision is rules.Decision.ASK:
            request = await self._request((access,), verdict, purpose)
            request = _offering(request, self.policy, tool, [access])
            approval = await self._approval(request)
            if access.kind is AccessKind.PLAN:
                # here "for the session" means that edits need no approval; no rule is added
                self.policy.end_plan(edits=approval.choice is Choice.SESSION)
                approval = structs.replace(approval, choice=Choice.ONCE)
            self.notes.append(self._remember(request, approval))
        return verdict.decision is rules.Decision.ASK

    async def ask_user(
        self, reason: str, text: str, fields: tuple[str, ...], choices: FieldChoices
    ) -> tuple[str, ...] | None:
        """Ask a question of the running call; no rule and no mode answers it."""
        if self.policy.mode is ApproveMode.NONE:
            return None
        question = ToolCall(f"{self.call.id}-question", self.call.name, {})
        preview, cause = valid_text(text), valid_text(reason)
        request = ApprovalRequest(
            question, (), preview, cause=cause, fields=fields, choices=choices
        )
        approval = await self._ask(request)
        return None if approval.choice is Choice.DENY else approval.values

    async def disclosed(self, result: ToolResult) -> ToolResult:
        """The result as the model may read it: complete, or an error without the private key."""
        mode = self.policy.mode
        if mode is ApproveMode.ALL or not content.holds_private_key(result.content):
            return result
        approval = Approval(Choice.DENY, reason="--approve none")
        if mode is not ApproveMode.NONE:
            request = ApprovalRequest(self.call, (), preview=_KEY_PREVIEW, cause=_KEY_CAUSE)
            approval = await self._ask(request)
        if approval.choice is not Choice.DENY:
            return result
        why = f"{approval.reason}: {approval.feedback}" if approval.feedback else approval.reason
        return structs.replace(result, content=f"Error: {HELD_BACK} ({why})", ok=False)

    async def _plan(self, prepared: PreparedCall) -> confinement.Plan:
        """How the rules let the call run; raises ToolError if they deny it."""
        if not prepared.tool.starts_programs:
            return confinement.Plan(self._decide(prepared.tool, prepared.accesses), self.policy)
        plan = await self.confiner.plan(prepared.command)
        self._report(plan.verdict)
        return plan

    def _decide(self, tool: AnyTool, accesses: Sequence[Access]) -> Verdict:
        """The verdict of the rules; raises ToolError if they deny an access."""
        verdict = self.policy.decide(tool.name, accesses)
        self._report(verdict)
        return verdict

    def _report(self, verdict: Verdict) -> None:
        """Count the rules, and tell the observer; raises ToolError for a verdict that denies."""
        self.policy.note_use(verdict)
        if self.observer is not None:
            self.observer.ruled(verdict.decision, verdict.cause)
        if verdict.decision is rules.Decision.DENY:
            raise ToolError(f"denied by rule: {verdict.cause}")

    async def _request(
        self, accesses: tuple[Access, ...], verdict: Verdict, preview: str, sandbox: str = ""
    ) -> ApprovalRequest:
        """The question about these accesses; `sandbox` is a sentence about how the call runs."""
        text, causes = valid_text(preview), [verdict.cause]
        written = [
            a.target for a in accesses if (a.kind, a.claim) == (AccessKind.WRITE, Claim.EXACT)
        ]
        changed = (access.target for access in accesses if access.kind is AccessKind.EFFECT)
        written += [target.partition(" ")[2] for target in changed]
        if self.undo is not None and written:
            causes += await self.undo.unkept(written)
        return ApprovalRequest(self.call, accesses, text, cause="; ".join(causes), sandbox=sandbox)

    async def _approved(self, prepared: PreparedCall, request: ApprovalRequest) -> str:
        """The text that an approval adds to the result. Raises ToolError if it is denied."""
        approval = await self._approval(request)
        # during the question, a link may have been put into a path, or a file beside it
        accesses = await asyncio.to_thread(
            prepared.tool.accesses, prepared.arguments, prepared.context
        )
        if tuple(accesses) != prepared.accesses:
            raise ToolError(CHANGED)
        if denied := self._denied(prepared):  # by a rule that was added meanwhile
            raise ToolError(
                f"denied by rule: {self.policy.decide(prepared.tool.name, denied).cause}"
            )
        return self._remember(request, approval)

    async def _approval(self, request: ApprovalRequest) -> Approval:
        """The approval; raises ToolError if the request is denied."""
        approval = await self._ask(request)
        if approval.choice is Choice.DENY or approval.parts == ():
            feedback = f": {approval.feedback}" if approval.feedback else ""
            raise ToolError(approval.reason + feedback)
        return approval

    async def _ask(self, request: ApprovalRequest) -> Approval:
        """The user's answer, which the observer is told too."""
        if self.caller:
            # the ids of calls are unique only among those of one model
            call = structs.replace(request.call, id=f"{self.caller}: {request.call.id}")
            request = structs.replace(request, call=call, caller=self.caller)
        approval = await self.approver.ask(request)
        if self.observer is not None:
            self.observer.answered(approval)
        return approval

    async def _preview(self, prepared: PreparedCall) -> str:
        """The preview; raises its ToolError only if the model may read the reason."""
        try:
            return await asyncio.to_thread(
                prepared.tool.preview, prepared.arguments, prepared.context
            )
        except ToolError as error:
            # "no such file" tells a model about a place that it may not look into
            reads = _revealing_reads(error, prepared.accesses)
            if self.policy.decide(prepared.tool.name, reads).decision is rules.Decision.ALLOW:
                raise
            return f"({error})"

    def _remember(self, request: ApprovalRequest, approval: Approval) -> str:
        """Add the rules that the user chose; returns the text for the model."""
        notes = f"\n[the user adds: {approval.feedback}]" if approval.feedback else ""
        # who drops a part does not want the next such change unseen
        for rule in request.rules_for(approval.choice) if approval.parts is None else ():
            try:
                self.policy.add(rule)
            except (OSError, ShepherdError) as error:  # the user's yes still holds for this call
                _log.warning("rule not stored: %s", error)
                notes += f"\n[rule not stored: {error}]"
        return notes

    def _denied(self, prepared: PreparedCall) -> list[Access]:
        """The accesses of a call that no approval can allow."""
        name = prepared.tool.name
        return [access for access in prepared.accesses if self.policy.denies(name, access)]


def _offering(
    request: ApprovalRequest, policy: PermissionPolicy, tool: AnyTool, accesses: Sequence[Access]
) -> ApprovalRequest:
    """The request with the rules that the answers "session" and "always" would add."""
    return structs.replace(
        request,
        session=propose(policy, tool.name, accesses, rules.Lifetime.SESSION),
        always=propose(policy, tool.name, accesses, rules.Lifetime.ALWAYS),
    )


def _revealing_reads(error: ToolError, accesses: tuple[Access, ...]) -> list[Access]:
    """The reads that would give the model the same information as the error."""
    reads = [access for access in accesses if access.kind is AccessKind.READ]
    if not isinstance(error, PlaceError):
        return reads  # the error is about the content of a file
    writes = [access for access in accesses if access.kind is AccessKind.WRITE]
    parents = (str(PurePosixPath(access.target).parent) for access in (*reads, *writes))
    return [Access(AccessKind.READ, parent) for parent in parents]
