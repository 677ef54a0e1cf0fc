"""Runs calls: validate, ask the rules, ask the user, run under a deadline, cap the result."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from copy import copy
from functools import partial
from typing import Any

from msgspec.structs import replace

from shepherd import errors, events, messages
from shepherd.config.section import ApproveMode, SandboxMode
from shepherd.tools.attempt import Attempt, failure
from shepherd.tools.confinement import Confiner, Plan, refusal_note
from shepherd.tools.consent import CallStep, Consent, PreparedCall, UndoStep, parse_arguments
from shepherd.tools.deferred import unknown_tool
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.git import is_of_git
from shepherd.tools.layer.patch import patch
from shepherd.tools.layer.view import view_of
from shepherd.tools.paths import REAL_FILES
from shepherd.tools.permissions.approval import Approver, CallObserver, harmless_error
from shepherd.tools.permissions.policy import PermissionPolicy, Verdict
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.registry import ToolRegistry
from shepherd.tools.review import (
    LastAnswer,
    ReviewChanges,
    Reviewed,
    SharedLayer,
    settle,
    show_conflict,
)
from shepherd.tools.sandbox.refusal import Refused
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.settlement import Settlement, listed
from shepherd.tools.text import cap_text, valid_text
from shepherd.tools.tool import AnyTool, CallRunner, ToolContext, ToolResult

_log = logging.getLogger(__name__)

WrapNested = Callable[["ToolRunner"], CallRunner]


class ToolRunner:
    """A `turn.ToolExecutor` over a registry of tools, a policy and an approver.

    `caller` names the model whose calls it runs, if that is not the model of the conversation.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        policy: PermissionPolicy,
        approver: Approver,
        context: ToolContext,
        steps: Sequence[CallStep] = (),
        undo: UndoStep | None = None,
    ) -> None:
        self.registry = registry
        self.policy = policy
        self.approver = approver
        self.steps = steps
        self.undo = undo
        # set in copies of a runner: `on_behalf_of` and `observed_by`
        self.caller = ""
        self.observer: CallObserver | None = None
        self.wrap_nested: WrapNested | None = None
        self.own_layer: SharedLayer | None = None
        spill_dir = context.spill_dir.resolve()
        self.context = replace(context, cwd=policy.cwd, spill_dir=spill_dir)
        sandbox = context.sandbox or Sandbox(SandboxMode.OFF)  # programs run without a box
        self._confiner = Confiner(policy, sandbox, spill_dir)

    @property
    def tools(self) -> ToolRegistry:
        """The tools that it runs."""
        return self.registry

    def on_behalf_of(self, caller: str, *, in_layer: bool = False) -> CallRunner:
        """A runner for a model that a tool calls, with the same rules and the same approver.

        Requests for approval name the caller. Tools that call models are left out. With `in_layer`
        its calls work in a layer of their own, unless they work in that of a turn already.
        """
        nested = copy(self)
        if in_layer and not self.policy.reviews:
            nested.own_layer = SharedLayer()
            nested.context = replace(self.context, review=nested.own_layer)
        nested.registry = ToolRegistry(tool for tool in self.registry if not tool.calls_models)
        nested.caller = caller
        return nested if self.wrap_nested is None else self.wrap_nested(nested)

    def observed_by(
        self, observer: CallObserver, wrap_nested: WrapNested | None = None
    ) -> "ToolRunner":
        """The same runner, which tells `observer` how it is decided on its calls.

        `wrap_nested` replaces the runner for a model that a tool calls.
        """
        observed = copy(self)
        observed.observer = observer
        observed.wrap_nested = wrap_nested or self.wrap_nested
        return observed

    async def run(
        self,
        call: messages.ToolCall,
        output_bytes: int | None = None,
        on_event: events.EventCallback = events.ignore_events,
    ) -> ToolResult:
        """The call's result, whatever happens; only cancelling the task raises."""
        limit = min(output_bytes or self.context.output_bytes, self.context.output_bytes)
        mode = self.policy.mode
        policy = await self._policy_of_calls()
        consent = self._consent(call, policy, self.approver)
        context = replace(self.context, output_bytes=limit, on_event=on_event, runner=self)
        try:
            result = await consent.disclosed(await self._run_approved(call, context, consent))
        except errors.ToolError as error:
            result = failure(error)
        except Exception as error:  # noqa: BLE001 - a defect in one tool must not end the session
            _log.exception("%s failed", call.name)
            result = ToolResult(f"Error: {call.name} failed: {harmless_error(error)}", ok=False)
        if mode is ApproveMode.PLAN and self.policy.mode is not mode:  # the user accepted a plan
            on_event(events.Notice(self.policy.mode.value, events.Topic.MODE))
        return await asyncio.to_thread(self._presentable, result, limit)

    def _consent(
        self, call: messages.ToolCall, policy: PermissionPolicy, approver: Approver
    ) -> Consent:
        confiner, observer = self._confiner, self.observer
        return Consent(call, policy, confiner, approver, observer, self.caller, self.undo)

    async def _policy_of_calls(self) -> PermissionPolicy:
        """The rules for the next call; in a layer of its own, the question comes at the end."""
        if self.own_layer is None or self.policy.mode is ApproveMode.PLAN:
            return self.policy
        place = await self._confiner.layer_place()
        return self.policy if place is None else self.policy.in_layer()

    async def settle(self, *, keep: bool = True) -> str:
        """Commit or drop what the calls have changed in a layer of their own; raises ToolError."""
        if self.own_layer is None or self.own_layer.layer is None:
            return ""
        try:
            if not keep:
                return ""
            reviewed = await self._settled(self.own_layer)
            if reviewed.feedback:
                raise errors.ToolError(f"its changes were not kept. {reviewed.feedback}")
            return reviewed.text
        except errors.ConflictError as error:
            problem = f"something else changed {listed(error.paths)} at the same time"
            raise errors.ToolError(f"its changes were not kept: {problem}") from error
        finally:
            await self.own_layer.drop()

    async def review(self) -> Reviewed:
        """Ask about all that the calls have changed in the layer of the mode `review`."""
        review = self.context.review
        if review is None or review.layer is None:
            return Reviewed("")
        try:
            return await self._settled(review)
        except errors.ConflictError as error:
            return await show_conflict(review, error)

    async def _settled(self, review: SharedLayer) -> Reviewed:
        """Ask about all that is in the layer; raises ConflictError."""
        answer = LastAnswer(self.approver)
        call, tool = messages.ToolCall("review", ReviewChanges.name, {}), ReviewChanges()
        consent = self._consent(call, self.policy, answer)
        prepared = await self._prepare(call, tool, tool.arguments(), self.context, consent)
        asks = self.policy.mode is not ApproveMode.AUTO
        plan = Plan(Verdict(Decision.ALLOW), self.policy, asks_effect=asks)
        settlement = Settlement(prepared, plan, self._confiner, consent, self.undo)
        return await settle(review, settlement, answer)

    async def patch(self) -> bytes:
        """What the calls have changed in the layer of the mode `review`, for `git apply`.

        Raises ToolError without git, and OSError.
        """
        review = self.context.review
        layer = None if review is None else review.layer
        if layer is None:
            return b""
        async with layer.mounted:
            effect = await asyncio.to_thread(read_effect, layer)
            changes = [change for change in effect.changes if not is_of_git(change.path)]
            return await asyncio.to_thread(patch, changes, layer)

    async def _run_approved(
        self, call: messages.ToolCall, context: ToolContext, consent: Consent
    ) -> ToolResult:
        """Check the call, obtain consent, and run it; raises ToolError."""
        tool = self.registry.get(call.name)
        if tool is None:
            raise errors.ToolError(unknown_tool(call.name, self.registry.names))
        arguments = parse_arguments(tool, call)
        await self._confiner.prepare(context.on_event)
        # tools that call models run the calls of these; extensions know nothing of layers
        knows_layers = not (tool.calls_models or tool.is_extension)
        review = context.review if knows_layers and consent.policy.reviews else None
        async with AsyncExitStack() as seen:
            if review is not None:
                layer = await review.open(await self._confiner.layer_place(), self.policy.cwd)
                view = await seen.enter_async_context(view_of(layer))
                context = replace(context, view=view)
            prepared = await self._prepare(call, tool, arguments, context, consent)
            plan = await consent.obtain(prepared)
            # programs that go on have a layer of their own: one has it mounted at a time
            goes_on = tool.goes_on(arguments)
            if review is not None and not goes_on and (plan.layers or not tool.starts_programs):
                prepared = replace(prepared, layer=review.layer)
            if tool.starts_programs:  # they mount the layer themselves
                await seen.aclose()
                prepared = replace(prepared, context=replace(prepared.context, view=REAL_FILES))
            result = await self._run_with_steps(prepared, plan, consent)
        return replace(result, content=result.content + "".join(consent.notes))

    async def _prepare(
        self,
        call: messages.ToolCall,
        tool: AnyTool,
        arguments: Any,
        context: ToolContext,
        consent: Consent,
    ) -> PreparedCall:
        """The call with its accesses; raises ToolError."""
        context = replace(context, denies=partial(self.policy.denies, tool.name))
        accesses = await asyncio.to_thread(tool.accesses, arguments, context)
        context = replace(
            context,
            grants=frozenset(accesses),
            authorize=partial(consent.authorize, tool),
            ask_user=consent.ask_user,
        )
        place = await asyncio.to_thread(tool.start_directory, arguments, context)
        return PreparedCall(call, tool, arguments, context, tuple(accesses), place)

    async def _run_with_steps(
        self, prepared: PreparedCall, plan: Plan, consent: Consent
    ) -> ToolResult:
        """Run the call with all steps before it, and after it in reverse order."""
        for step in self.steps:
            await step.before(prepared)
        try:
            result = await self._run_confined(prepared, plan, consent)
        except errors.ToolError as error:
            # the steps after the call are told about a failure too
            result = failure(error)
        for step in reversed(self.steps):
            result = await step.after(prepared, result)
        return result

    async def _run_confined(
        self, prepared: PreparedCall, plan: Plan, consent: Consent
    ) -> ToolResult:
        """Run the call; after a refusal of the sandbox, ask whether to run it with more rights."""
        shared = prepared.layer
        place = prepared.place if plan.box else prepared.context.cwd
        # a call in a shared layer changes no file yet, so there is nothing to keep for /undo
        undo = self.undo if shared is None else None
        notes = ""
        while True:  # as planned, without a layer, with network, outside of the sandbox
            confinement = await self._confiner.confinement(plan, place, shared)
            running = replace(prepared, context=replace(prepared.context, confinement=confinement))
            settlement = Settlement(running, plan, self._confiner, consent, undo)
            layer = confinement.layer if confinement and shared is None else None
            mounts = shared is not None and prepared.tool.starts_programs
            async with Attempt(settlement, layer) as attempt:
                async with shared.mounted if shared and mounts else nullcontext():
                    result = await attempt.run()
                if result.refusal is None:
                    result = await attempt.keep(result)
                    return replace(result, content=result.content + notes)
                changed = await attempt.changed()  # it runs again, and does the same
                prepared = replace(prepared, accesses=(*prepared.accesses, *changed))
                # it has no more rights without a layer, but then its effect can't be asked about
                if result.refusal.kind is Refused.LAYER and plan.is_approved and not shared:
                    plan = replace(plan, rights=replace(plan.rights, through=True))
                    notes += f"\n[{result.refusal.text}: it was run again without a layer]"
                    continue
                try:
                    if shared is not None and result.refusal.kind is not Refused.NETWORK:
                        raise errors.ToolError("the changes of this turn stay in their layer")
                    plan, answer = await consent.opened(prepared, plan, result.refusal)
                except errors.ToolError as error:  # no: the first result stands
                    note = refusal_note(result.refusal, str(error))
                    prepared.context.on_event(events.Notice(note, events.Topic.NOTICE))
                    result = await attempt.keep(result)
                    return replace(result, content=f"{result.content}{notes}\n[{note}]")
            notes += answer

    def _presentable(self, result: ToolResult, limit: int) -> ToolResult:
        """The result without secrets and broken characters, cut to about `limit` bytes."""
        content = self.context.without_secrets(valid_text(result.content))
        try:
            # twice the limit, because tools that cap their output add a line or two
            if len(content.encode()) > 2 * limit:
                content = cap_text(content, limit, self.context.spill_dir)
        except OSError as error:
            cut = content.encode()[:limit].decode("utf-8", "ignore")
            content = f"{cut}\n[cut; the rest can't be kept: {error}]"
        display = self.context.without_secrets(valid_text(result.display))
        return replace(result, content=content, display=display)
