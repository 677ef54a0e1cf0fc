"""Runs calls: validate, ask the rules, ask the user, run under a deadline, cap the result."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, TypeVar

from shepherd.config.choices import ApproveMode, SandboxMode
from shepherd.errors import PlaceError, ShepherdError, ToolError
from shepherd.events import CallbackEvent, EventCallback, Topic, ignore_events
from shepherd.messages import ToolCall
from shepherd.tools.base import (
    Access,
    AccessKind,
    AnyTool,
    Authorize,
    CallRunner,
    FieldChoices,
    ToolContext,
    ToolResult,
)
from shepherd.tools.call import CallStep, PreparedCall, parse_arguments
from shepherd.tools.confinement import Confiner, Plan, refusal_note
from shepherd.tools.deferred.wrapper import unknown_tool
from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    CallObserver,
    Choice,
    NamingApprover,
    ObservedApprover,
    disclosed,
    harmless_error,
)
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.proposal import propose
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.sandbox.refusal import Refusal
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.text import cap_text, valid_text

_log = logging.getLogger(__name__)
T = TypeVar("T")
_CHANGED = "what the call touches has changed since it was approved; try again"


class ToolRunner:
    """A `turn.ToolExecutor` over a registry of tools, a policy and an approver."""

    def __init__(
        self,
        registry: ToolRegistry,
        policy: PermissionPolicy,
        approver: Approver,
        context: ToolContext,
        steps: Sequence[CallStep] = (),
    ) -> None:
        self.registry = registry
        self.policy = policy
        self.approver = approver
        self.steps = steps
        self.observer: CallObserver | None = None
        self.caller = ""
        self.wrap_nested: Callable[[ToolRunner], CallRunner] | None = None
        spill_dir = context.spill_dir.resolve()
        self.context = replace(context, cwd=policy.cwd, spill_dir=spill_dir)
        sandbox = context.sandbox or Sandbox(SandboxMode.OFF)
        self._confiner = Confiner(policy, sandbox, spill_dir)

    @property
    def tools(self) -> ToolRegistry:
        """See `CallRunner`."""
        return self.registry

    def on_behalf_of(self, caller: str) -> CallRunner:
        """A runner for a model that a tool calls, with the same rules and the same approver.

        Requests for approval name the caller. Tools that call models are left out. `wrap_nested`
        can replace the runner.
        """
        nested = copy(self)
        nested.registry = ToolRegistry(tool for tool in self.registry if not tool.calls_models)
        nested.approver = NamingApprover(self.approver, caller)
        nested.caller = caller
        return nested if self.wrap_nested is None else self.wrap_nested(nested)

    def observed_by(self, observer: CallObserver) -> "ToolRunner":
        """The same runner, which tells `observer` how it is decided on its calls."""
        observed = copy(self)
        observed.observer = observer
        observed.approver = ObservedApprover(self.approver, observer)
        return observed

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        """The call's result, whatever happens; only cancelling the task raises."""
        limit = min(output_bytes or self.context.output_bytes, self.context.output_bytes)
        mode = self.policy.mode
        try:
            result = await self._run(call, limit, on_event)
            result = await disclosed(call, result, self.policy.mode, self.approver)
        except ToolError as error:
            result = ToolResult(f"Error: {harmless_error(error)}", ok=False)
        except Exception as error:  # noqa: BLE001 - a defect in one tool must not end the session
            _log.exception("%s failed", call.name)
            result = ToolResult(f"Error: {call.name} failed: {harmless_error(error)}", ok=False)
        if mode is ApproveMode.PLAN and self.policy.mode is not mode:
            on_event(CallbackEvent.SYSTEM, self.policy.mode.value, Topic.MODE, "")
        return await asyncio.to_thread(self._presentable, result, limit)

    async def _run(self, call: ToolCall, limit: int, on_event: EventCallback) -> ToolResult:
        tool = self.registry.get(call.name)
        if tool is None:
            raise ToolError(unknown_tool(call.name, self.registry.names))
        arguments = parse_arguments(tool, call)
        await self._confiner.prepare(on_event)
        denies = partial(self.policy.denies, tool.name)
        context = replace(
            self.context, denies=denies, output_bytes=limit, on_event=on_event, runner=self
        )
        accesses = await asyncio.to_thread(tool.accesses, arguments, context)
        notes: list[str] = []
        authorize = partial(self._authorize, call, tool, notes)
        context = replace(
            context,
            grants=frozenset(accesses),
            authorize=authorize,
            ask_user=partial(self._ask_user, call),
        )
        prepared = PreparedCall(call, tool, arguments, context, tuple(accesses))
        mode = self.policy.mode
        plan = await self._allowed_plan(prepared)
        if plan.verdict.decision is Decision.ASK:
            notes.append(await self._approved(prepared, plan))
            if not await asyncio.to_thread(self.policy.accept, plan.verdict, accesses):
                raise ToolError(_CHANGED)
            if self.policy.mode is not mode:
                plan = await self._allowed_plan(prepared)
        if self.observer is not None:
            self.observer.started()
        result = await self._stepped(prepared, plan)
        return replace(result, content=result.content + "".join(notes))

    async def _stepped(self, prepared: PreparedCall, plan: Plan) -> ToolResult:
        """Run the call with all steps before it, and after it in reverse order."""
        for step in self.steps:
            await step.before(prepared)
        try:
            result = await self._confined(prepared, plan)
        except ToolError as error:
            result = ToolResult(f"Error: {harmless_error(error)}", ok=False)
        for step in reversed(self.steps):
            result = await step.after(prepared, result)
        return result

    async def _ask_user(
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

    async def _authorize(
        self, call: ToolCall, tool: AnyTool, notes: list[str], access: Access, purpose: str
    ) -> bool:
        """Decide on a further access of a running call."""
        verdict = self._noted(self.policy.decide(tool.name, [access]))
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

    async def _allowed_plan(self, prepared: PreparedCall) -> Plan:
        """The plan of a call; raises ToolError if the rules deny it."""
        plan = await self._plan(prepared)
        if plan.verdict.decision is Decision.DENY:
            raise ToolError(f"denied by rule: {plan.verdict.cause}")
        return plan

    async def _plan(self, prepared: PreparedCall) -> Plan:
        """The verdict of the rules on a call, and where the call runs."""
        if prepared.tool.starts_programs:
            plan = await self._confiner.plan(prepared.command)
            self._noted(plan.verdict)
            return plan
        verdict = self._noted(self.policy.decide(prepared.tool.name, prepared.accesses))
        return Plan(verdict, self.policy, self.policy)

    def _noted(self, verdict: Verdict) -> Verdict:
        """The verdict, which the observer now knows."""
        if self.observer is not None:
            self.observer.ruled(verdict.decision, verdict.cause)
        return verdict

    async def _approved(self, prepared: PreparedCall, plan: Plan) -> str:
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

    async def _answer(self, prepared: PreparedCall, request: ApprovalRequest) -> str:
        """The text that an approval adds to the result. Raises ToolError if it is denied."""
        approval = await self._consent(request)
        accesses = await asyncio.to_thread(prepared.tool.accesses, prepared.arguments, self.context)
        if tuple(accesses) != prepared.accesses:
            raise ToolError(_CHANGED)
        if denied := _denied(self.policy, prepared):  # by a rule that was added meanwhile
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

    async def _confined(self, prepared: PreparedCall, plan: Plan) -> ToolResult:
        """Run the call; after a refusal of the sandbox, ask whether to run it with more rights."""
        place = (
            prepared.tool.start_directory(prepared.arguments, prepared.context)
            if plan.box
            else prepared.context.cwd
        )
        notes = ""
        while True:
            confinement = await self._confiner.confinement(plan, place)
            context = replace(prepared.context, confinement=confinement)
            result = await _within(prepared.tool, prepared.arguments, context)
            if result.refusal is None:
                return replace(result, content=result.content + notes)
            try:
                plan, answer = await self._opened(prepared, plan, result.refusal)
            except ToolError as error:
                note = refusal_note(result.refusal, str(error))
                prepared.context.on_event(CallbackEvent.SYSTEM, note, Topic.NOTICE, "")
                return replace(result, content=f"{result.content}{notes}\n[{note}]")
            notes += answer

    async def _opened(
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
        denied = _denied(self.policy, prepared)
        verdict = self._noted(self.policy.decide(prepared.tool.name, (*denied, *accesses)))
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

    def _presentable(self, result: ToolResult, limit: int) -> ToolResult:
        content = self._without_secrets(valid_text(result.content))
        try:
            # twice the limit, because tools that cap their output add a line or two
            if len(content.encode()) > 2 * limit:
                content = cap_text(content, limit, self.context.spill_dir)
        except OSError as error:
            cut = content.encode()[:limit].decode("utf-8", "ignore")
            content = f"{cut}\n[cut; the rest can't be kept: {error}]"
        display = self._without_secrets(valid_text(result.display))
        return replace(result, content=content, display=display)

    def _without_secrets(self, text: str) -> str:
        for secret, name in self.context.secrets.items():
            text = text.replace(secret, f"[{name}]")
        return text


def _denied(policy: PermissionPolicy, prepared: PreparedCall) -> list[Access]:
    """The accesses of a call that no approval can allow."""
    return [access for access in prepared.accesses if policy.denies(prepared.tool.name, access)]


def _revealing_reads(error: ToolError, accesses: tuple[Access, ...]) -> list[Access]:
    """The reads that would give the model the same information as the error."""
    reads = [access for access in accesses if access.kind is AccessKind.READ]
    if not isinstance(error, PlaceError):
        return reads
    writes = [access for access in accesses if access.kind is AccessKind.WRITE]
    parents = (str(PurePosixPath(access.target).parent) for access in (*reads, *writes))
    return [Access(AccessKind.READ, parent) for parent in parents]


async def _untimed(
    deadline: asyncio.Timeout, authorize: Authorize, access: Access, purpose: str
) -> bool:
    """Authorize; the time that the user needs to answer does not count."""
    loop = asyncio.get_running_loop()
    started, end = loop.time(), deadline.when()
    deadline.reschedule(None)
    try:
        return await authorize(access, purpose)
    finally:
        if end is not None:
            deadline.reschedule(end + loop.time() - started)


async def _within(tool: AnyTool, arguments: Any, context: ToolContext) -> ToolResult:
    seconds = tool.deadline(arguments, context)
    deadline = asyncio.timeout(seconds)
    context = replace(context, authorize=partial(_untimed, deadline, context.authorize))
    try:
        async with deadline:
            return await tool.run(arguments, context)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise ToolError(f"timed out after {seconds:g} s") from error
