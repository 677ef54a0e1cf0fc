"""Asks the user about the accesses of a call, and keeps the rules that the user adds."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from shepherd.config.section import ApproveMode
from shepherd.errors import PlaceError, ShepherdError, ToolError
from shepherd.json_text import is_finite
from shepherd.messages import ToolCall
from shepherd.tools.base import Access, AccessKind, AnyTool, FieldChoices, ToolContext, ToolResult
from shepherd.tools.confinement import Command, Plan
from shepherd.tools.deferred import call_signature
from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    CallObserver,
    Choice,
)
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.proposal import propose
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.text import valid_json, valid_text
from shepherd.validation import describe_problem

_MAX_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call with checked arguments and its accesses."""

    call: ToolCall
    tool: AnyTool
    arguments: Any
    context: ToolContext
    accesses: tuple[Access, ...]

    @property
    def command(self) -> Command:
        """The call as one that starts programs."""
        place = self.tool.start_directory(self.arguments, self.context)
        return Command(self.tool.name, self.accesses, place, self.context.on_event)


class CallStep(Protocol):
    """Work around each call of a conversation, such as keeping the files that it changes."""

    async def before(self, prepared: PreparedCall) -> None:
        """Act on an allowed call before it runs; ToolError refuses the call."""
        ...

    async def after(self, prepared: PreparedCall, result: ToolResult) -> ToolResult:
        """The result to use, also after a failure; a cancelled call has none."""
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
        usage = f"; it is {call_signature(tool.spec())}" if tool.is_extension else ""
        raise ToolError(f"bad arguments for {call.name}: {problems}{usage}") from error


def _sentence(details: list[ErrorDetails], names: Iterable[str]) -> str:
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

CHANGED = "what the call touches has changed since it was approved; try again"


@dataclass(frozen=True, slots=True)
class Consent:
    """The rules, and the user who is asked where these leave it open.

    The `observer` is told each verdict.
    """

    policy: PermissionPolicy
    approver: Approver
    observer: CallObserver | None

    def decide(self, tool: str, accesses: Sequence[Access]) -> Verdict:
        """The verdict of the rules, which the observer now knows."""
        return self.noted(self.policy.decide(tool, accesses))

    def noted(self, verdict: Verdict) -> Verdict:
        """The verdict, which the observer now knows."""
        if self.observer is not None:
            self.observer.ruled(verdict.decision, verdict.cause)
        return verdict

    async def approved(self, prepared: PreparedCall, plan: Plan) -> str:
        """Ask for approval; returns text to add to the result. Raises ToolError if it is denied."""
        request = ApprovalRequest(
            call=prepared.call,
            accesses=prepared.accesses,
            preview=valid_text(await self._preview(prepared)),
            session=propose(plan.policy, prepared.tool.name, prepared.accesses, Lifetime.SESSION),
            always=propose(plan.policy, prepared.tool.name, prepared.accesses, Lifetime.ALWAYS),
            cause=plan.verdict.cause,
            sandbox=plan.sandbox_text,
        )
        return await self._answer(prepared, request)

    async def opened(
        self, prepared: PreparedCall, plan: Plan, refusal: Refusal
    ) -> tuple[Plan, str]:
        """The plan by which the call runs again, and the text to add to its result.

        Raises ToolError if a rule or the user says no.
        """
        opening = plan.opening(refusal)
        # the first run may have created or removed files that the line mentions
        current = await asyncio.to_thread(
            prepared.tool.accesses, prepared.arguments, prepared.context
        )
        prepared = replace(prepared, accesses=tuple(current))
        accesses = prepared.command.opening(opening.kind)
        denied = self._denied(prepared)
        verdict = self.decide(prepared.tool.name, (*denied, *accesses))
        if verdict.decision is Decision.DENY:
            raise ToolError(f"denied by rule: {verdict.cause}")
        everything = (*prepared.accesses, *accesses)

        def offer(lifetime: Lifetime) -> tuple[Rule, ...]:
            if prepared.command.connects_itself:
                return ()
            return propose(opening.plan.policy, prepared.tool.name, everything, lifetime)

        request = ApprovalRequest(
            call=prepared.call,
            accesses=accesses,
            preview=valid_text(await self._preview(prepared)),
            session=offer(Lifetime.SESSION),
            always=offer(Lifetime.ALWAYS),
            cause=verdict.cause,
            sandbox=opening.question,
        )
        return opening.plan, await self._answer(prepared, request) + opening.note

    async def authorize(
        self, call: ToolCall, tool: AnyTool, notes: list[str], access: Access, purpose: str
    ) -> bool:
        """Decide on a further access of a running call."""
        verdict = self.decide(tool.name, [access])
        if verdict.decision is Decision.DENY:
            raise ToolError(f"denied by rule: {verdict.cause}")
        if verdict.decision is Decision.ASK:
            request = ApprovalRequest(
                call=call,
                accesses=(access,),
                preview=valid_text(purpose),
                session=propose(self.policy, tool.name, [access], Lifetime.SESSION),
                always=propose(self.policy, tool.name, [access], Lifetime.ALWAYS),
                cause=verdict.cause,
            )
            approval = await self._consent(request)
            if access.kind is AccessKind.PLAN:
                self.policy.end_plan(edits=approval.choice is Choice.SESSION)
                approval = replace(approval, choice=Choice.ONCE)
            notes.append(self._remember(request, approval))
        return verdict.decision is Decision.ASK

    async def ask_user(
        self,
        call: ToolCall,
        reason: str,
        text: str,
        fields: tuple[str, ...],
        choices: FieldChoices,
    ) -> tuple[str, ...] | None:
        """Ask a question of a running call; no rule and no mode answers it."""
        if self.policy.mode is ApproveMode.NONE:
            return None
        question = ToolCall(f"{call.id}-question", call.name, {})
        preview, cause = valid_text(text), valid_text(reason)
        request = ApprovalRequest(
            question, (), preview, cause=cause, fields=fields, choices=choices
        )
        approval = await self.approver.ask(request)
        return None if approval.choice is Choice.DENY else approval.values

    async def _answer(self, prepared: PreparedCall, request: ApprovalRequest) -> str:
        """The text that an approval adds to the result. Raises ToolError if it is denied."""
        approval = await self._consent(request)
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

    async def _consent(self, request: ApprovalRequest) -> Approval:
        """The approval; raises ToolError if the request is denied."""
        approval = await self.approver.ask(request)
        if approval.choice is Choice.DENY:
            feedback = f": {approval.feedback}" if approval.feedback else ""
            raise ToolError(approval.reason + feedback)
        return approval

    async def _preview(self, prepared: PreparedCall) -> str:
        """The preview; raises its ToolError only if the model may read the reason."""
        try:
            return await asyncio.to_thread(
                prepared.tool.preview, prepared.arguments, prepared.context
            )
        except ToolError as error:
            reads = _revealing_reads(error, prepared.accesses)
            if self.policy.decide(prepared.tool.name, reads).decision is Decision.ALLOW:
                raise
            return f"({error})"

    def _remember(self, request: ApprovalRequest, approval: Approval) -> str:
        notes = f"\n[the user adds: {approval.feedback}]" if approval.feedback else ""
        for rule in request.rules_for(approval.choice):
            try:
                self.policy.add(rule)
            except (OSError, ShepherdError) as error:
                _log.warning("rule not stored: %s", error)
                notes += f"\n[rule not stored: {error}]"
        return notes

    def _denied(self, prepared: PreparedCall) -> list[Access]:
        """The accesses of a call that no approval can allow."""
        name = prepared.tool.name
        return [access for access in prepared.accesses if self.policy.denies(name, access)]


def _revealing_reads(error: ToolError, accesses: tuple[Access, ...]) -> list[Access]:
    """The reads that would give the model the same information as the error."""
    reads = [access for access in accesses if access.kind is AccessKind.READ]
    if not isinstance(error, PlaceError):
        return reads
    writes = [access for access in accesses if access.kind is AccessKind.WRITE]
    parents = (str(PurePosixPath(access.target).parent) for access in (*reads, *writes))
    return [Access(AccessKind.READ, parent) for parent in parents]
