"""Runs tools for clients, with a line in the audit for each call."""

import logging
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from shepherd.config.secrets import keys_in
from shepherd.conversation.own_commands import SIGN
from shepherd.events import EventCallback, ignore_events
from shepherd.messages import JsonObject, ToolCall
from shepherd.server.access.audit import AuditError, AuditLog
from shepherd.server.access.redaction import MAX_TEXT, short_arguments, without_secrets
from shepherd.server.errors import ApiError
from shepherd.server.operation.traces import span
from shepherd.server.record import CallOrigin, calling_for, current_origin
from shepherd.tools.base import AnyTool, CallRunner, ToolResult
from shepherd.tools.permissions.approval import Approval, Choice
from shepherd.tools.permissions.rules import Decision
from shepherd.tools.runner import ToolRunner

logger = logging.getLogger(__name__)

MAX_DECISIONS = 10
UNKNOWN = "(unknown)"
"""The name of a tool that does not exist: the client can have made up anything."""


@dataclass(slots=True)
class CallRecord:
    """The decisions on a call, each with its rule or reason, and whether the call has run."""

    decisions: list[JsonObject] = field(default_factory=list[JsonObject])
    has_run: bool = False

    def ruled(self, decision: Decision, cause: str) -> None:
        """See `CallObserver`."""
        self._add(decision.value, "rules", cause)

    def answered(self, approval: Approval) -> None:
        """See `CallObserver`."""
        if approval.by:
            self._add(approval.choice.value, f"key {approval.by}", "")
        else:
            self._add(approval.choice.value, "nobody", approval.reason)

    def started(self) -> None:
        """See `CallObserver`."""
        self.has_run = True

    def _add(self, decision: str, by: str, cause: str) -> None:
        if len(self.decisions) < MAX_DECISIONS:
            self.decisions.append({"decision": decision, "by": by, "cause": cause})

    def outcome(self, result: ToolResult) -> str:
        """How the call has ended."""
        if result.ok:
            return "ok"
        last = self.decisions[-1]["decision"] if self.decisions else ""
        return "denied" if last == Choice.DENY.value and not self.has_run else "failed"


@dataclass(frozen=True, slots=True)
class AuditedTools:
    """A `ToolExecutor` that notes each call; `model` is the one that calls, "" for a client.

    `origin` tells where the call that runs comes from.
    """

    tools: ToolRunner
    audit: AuditLog
    model: str = ""
    origin: Callable[[], CallOrigin] = current_origin

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        """The result of the call; a call that can't be noted is refused if it must be."""
        with calling_for(self.model):
            record, entry = CallRecord(), self._entry(call)
            outcome, started = "cancelled", time.perf_counter()
            try:
                self.audit.begin({"event": "begin", **entry})
                observed = self.tools.observed_by(record)
                observed.wrap_nested = self._nested
                with span("tool", gen_ai__tool__name=entry["tool"]):
                    result = await observed.run(call, output_bytes, on_event)
                outcome = record.outcome(result)
            except AuditError as error:
                outcome = "refused"
                return ToolResult(f"Error: not run: {error}", ok=False)
            else:
                return result
            finally:
                seconds = round(time.perf_counter() - started, 3)
                entry |= {"event": "end", "decisions": self._decisions(record)}
                self._end({**entry, "seconds": seconds, "outcome": outcome})

    def _nested(self, runner: ToolRunner) -> CallRunner:
        """The runner of a model that a tool calls; its calls are noted too."""
        return _NestedRunner(runner, replace(self, tools=runner))

    def _entry(self, call: ToolCall) -> JsonObject:
        known = self.tools.registry.get(call.name) is not None
        name = call.name if known else UNKNOWN
        origin, caller = self.origin(), self.tools.caller
        if caller:
            origin = replace(origin, model=caller)
        return _entry(name, short_arguments(call.arguments, self._secrets), origin)

    def _decisions(self, record: CallRecord) -> list[JsonObject]:
        return [
            {**entry, "cause": without_secrets(str(entry["cause"])[:MAX_TEXT], self._secrets)}
            for entry in record.decisions
        ]

    def _end(self, entry: JsonObject) -> None:
        self.audit.end(entry)
        outcome = str(entry["outcome"])
        logged = outcome if outcome in ("ok", "cancelled") else "refused or failed"
        logger.info("Tool %s, key %s: %s", entry["tool"], entry["key"] or "-", logged)

    @property
    def _secrets(self) -> Mapping[str, str]:
        return self.tools.context.secrets


@dataclass(frozen=True, slots=True)
class _NestedRunner:
    """A `CallRunner` whose calls are noted."""

    runner: ToolRunner
    audited: AuditedTools

    @property
    def tools(self) -> Iterable[AnyTool]:
        return self.runner.tools

    def on_behalf_of(self, caller: str) -> CallRunner:
        return self.runner.on_behalf_of(caller)

    async def run(
        self,
        call: ToolCall,
        output_bytes: int | None = None,
        on_event: EventCallback = ignore_events,
    ) -> ToolResult:
        return await self.audited.run(call, output_bytes, on_event)


@contextmanager
def noted_command(audit: AuditLog, name: str, argument: str) -> Generator[None]:
    """Run a user's command with a line in the audit, also for one that is refused.

    Raises ApiError before the command runs if the line can't be written and must be.
    """
    arguments = short_arguments({"argument": argument}, keys_in(os.environ))
    tool = name if name.startswith(SIGN) else f"/{name}"
    entry = _entry(tool, arguments, current_origin())
    try:
        audit.begin({"event": "begin", **entry})
    except AuditError as error:
        raise ApiError(503, f"The command is not run: {error}", "audit_unavailable") from error
    decisions, outcome, started = list[JsonObject](), "cancelled", time.perf_counter()
    try:
        yield
        outcome = "ok"
    except ApiError as error:
        outcome = "denied"
        decisions.append({"decision": "deny", "by": "scopes", "cause": error.message})
        raise
    except Exception:
        outcome = "failed"
        raise
    finally:
        seconds = round(time.perf_counter() - started, 3)
        entry |= {"event": "end", "decisions": decisions, "seconds": seconds, "outcome": outcome}
        audit.end(entry)


def _entry(name: str, arguments: object, origin: CallOrigin) -> JsonObject:
    """The beginning of a line of the audit."""
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"time": moment, **asdict(origin), "tool": name, "arguments": arguments}
