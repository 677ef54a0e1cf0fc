"""Runs calls: validate, ask the rules, ask the user, run under a deadline, cap the result."""

import asyncio
import logging
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from shepherd.errors import ShepherdError, ToolError
from shepherd.events import EventCallback, unheard
from shepherd.messages import ToolCall
from shepherd.tools.base import Access, AccessKind, Arguments, ToolContext, ToolResult
from shepherd.tools.pathglob import escape_glob
from shepherd.tools.permissions.approval import (
    Approval,
    ApprovalRequest,
    Approver,
    Choice,
    NamingApprover,
)
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.proposal import propose
from shepherd.tools.permissions.rules import Decision, Lifetime, Rule
from shepherd.tools.registry import AnyTool, ToolRegistry
from shepherd.tools.text import cap_text, valid_json, valid_text
from shepherd.tools.validation import argument_errors

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ToolRunner:
    """A `turn.ToolExecutor` over a registry of tools, a policy and somebody to ask."""

    def __init__(
        self,
        registry: ToolRegistry,
        policy: PermissionPolicy,
        approver: Approver,
        context: ToolContext,
    ) -> None:
        self.registry = registry
        self.policy = policy
        self.approver = approver
        spill_dir = context.spill_dir.resolve()
        self.context = replace(context, cwd=policy.cwd, spill_dir=spill_dir)
        own_output = f"{escape_glob(str(spill_dir))}/**"
        policy.add(Rule("read", own_output, Decision.ALLOW, lifetime=Lifetime.SESSION))

    def on_behalf_of(self, asker: str) -> "ToolRunner":
        """A runner for a model that a tool asks: by the same rules, with the same person to ask.

        They are told who asks. It has none of the tools that ask models themselves.
        """
        nested = copy(self)
        nested.registry = ToolRegistry(tool for tool in self.registry if not tool.asks_models)
        nested.approver = NamingApprover(self.approver, asker)
        return nested

    async def run(
        self, call: ToolCall, output_bytes: int | None = None, tell: EventCallback = unheard
    ) -> ToolResult:
        """The call's result, whatever happens; only cancelling the task raises."""
        limit = min(output_bytes or self.context.output_bytes, self.context.output_bytes)
        try:
            result = await self._run(call, limit, tell)
        except ToolError as error:
            result = ToolResult(f"Error: {error}", ok=False)
        except Exception as error:  # noqa: BLE001 - a defect in one tool must not end the session
            _log.exception("%s failed", call.name)
            result = ToolResult(f"Error: {call.name} failed: {error}", ok=False)
        return await asyncio.to_thread(self._presentable, result, limit)

    async def _run(self, call: ToolCall, limit: int, tell: EventCallback) -> ToolResult:
        tool = self.registry.get(call.name)
        if tool is None:
            raise ToolError(f"unknown tool: {call.name}")
        arguments = _parse(tool, call)
        denies = partial(self.policy.denies, tool.name)
        context = replace(self.context, denies=denies, output_bytes=limit, tell=tell, runner=self)
        accesses = await asyncio.to_thread(tool.accesses, arguments, context)
        verdict = self.policy.decide(tool.name, accesses)
        if verdict.decision is Decision.DENY:
            raise ToolError(f"denied by rule: {verdict.cause}")
        notes = ""
        if verdict.decision is Decision.ASK:
            notes = await self._approved(call, tool, arguments, accesses, verdict)
        result = await _within(tool, arguments, context)
        return replace(result, content=result.content + notes) if notes else result

    async def _approved(
        self,
        call: ToolCall,
        tool: AnyTool,
        arguments: Arguments,
        accesses: list[Access],
        verdict: Verdict,
    ) -> str:
        """Ask; the text to add to the result. Raises ToolError if the answer is no."""
        preview = await self._preview(tool, arguments, accesses)
        request = ApprovalRequest(
            call=call,
            accesses=tuple(accesses),
            preview=valid_text(preview),
            session=propose(self.policy, tool.name, accesses, Lifetime.SESSION),
            always=propose(self.policy, tool.name, accesses, Lifetime.ALWAYS),
            cause=verdict.cause,
        )
        approval = await self.approver.ask(request)
        if approval.choice is Choice.DENY:
            feedback = f": {approval.feedback}" if approval.feedback else ""
            raise ToolError(approval.reason + feedback)
        if await asyncio.to_thread(tool.accesses, arguments, self.context) != accesses:
            raise ToolError("what the call touches has changed since it was approved; try again")
        return self._remember(request, approval)

    async def _preview(self, tool: AnyTool, arguments: Arguments, accesses: list[Access]) -> str:
        """The preview; raises its ToolError only if the model may know what it tells."""
        try:
            return await asyncio.to_thread(tool.preview, arguments, self.context)
        except ToolError as error:
            reads = [access for access in accesses if access.kind is AccessKind.READ]
            if self.policy.decide(tool.name, reads).decision is Decision.ALLOW:
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
            # twice the limit: tools that cap by themselves add a line or two to it
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


def _parse(tool: AnyTool, call: ToolCall) -> Arguments:
    try:
        model: type[Arguments] = tool.arguments
        return model.model_validate(valid_json(call.arguments))
    except ValidationError as error:
        problems = argument_errors(error, tool.arguments)
        raise ToolError(f"bad arguments for {call.name}: {problems}") from error


async def _within(tool: AnyTool, arguments: Any, context: ToolContext) -> ToolResult:
    seconds = tool.deadline(arguments, context)
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await tool.run(arguments, context)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise ToolError(f"timed out after {seconds:g} s") from error
