"""The events of a turn as updates of a session."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from acp.helpers import (
    SessionUpdate,
    plan_entry,
    start_tool_call,
    text_block,
    update_agent_message,
    update_agent_thought,
    update_current_mode,
    update_plan,
    update_tool_call,
    update_user_message,
)
from acp.schema import Cost, PlanEntryStatus, SessionNotification, ToolCallStatus, UsageUpdate
from acp.utils import serialize_params

from shepherd.cli.acp.tool_calls import (
    CallContent,
    call_kind,
    call_locations,
    call_title,
    raw_input,
    text_content,
)
from shepherd.events import TEXT_EVENTS, CallbackEvent, Topic
from shepherd.messages import INTERRUPTED, JsonObject, ToolCall
from shepherd.tools.text import valid_text

_FAILED = "Error: "
MAX_PROGRESS = 4000
"""Characters of a running call's output that are shown."""


@dataclass(slots=True)
class SessionUpdates:
    """Sends the updates of one session; `receive` is the callback of its turns.

    A call gets an id that is unique in the session, because models repeat theirs. `problem` is the
    last reason for which a turn was stopped.
    """

    session_id: str
    cwd: Path
    post: Callable[[JsonObject], None]
    problem: str = ""
    _cost: Cost | None = None
    _started: int = 0
    _open_calls: dict[str, str] = field(default_factory=dict[str, str])
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _progress: dict[str, str] = field(default_factory=dict[str, str])
    _contents: dict[str, list[CallContent]] = field(default_factory=dict[str, list[CallContent]])

    def send(self, update: SessionUpdate | UsageUpdate) -> None:
        """Send an update."""
        notification = SessionNotification(session_id=self.session_id, update=update)
        params = serialize_params(notification)
        self.post({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def receive(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Send an event; the callback of a turn."""
        if event in TEXT_EVENTS:
            if event is CallbackEvent.THINKING:
                self.thought(content)
            else:
                self.send(update_agent_message(text_block(valid_text(content))))
            return True
        match event:
            case CallbackEvent.TOOL_CALL:
                self.call_started(ToolCall(id, name, json.loads(content)))
            case CallbackEvent.TOOL_RESULT:
                self.call_ended(id, content)
            case CallbackEvent.STATS:
                self._usage(json.loads(content), is_own=not name)
            case CallbackEvent.SYSTEM:
                self._system(content, name, id)
            case CallbackEvent.ERROR:
                self.problem = content
            case _:
                pass
        return True

    def thought(self, text: str) -> None:
        """Send a piece of the model's reasoning."""
        self.send(update_agent_thought(text_block(valid_text(text))))

    def notice(self, text: str) -> None:
        """Send a sentence for the user, which is not part of the answer."""
        self.thought(f"\n{text}\n")

    def call_started(self, call: ToolCall, status: ToolCallStatus = "pending") -> None:
        """Show a call that the model made."""
        self._started += 1
        self._open_calls[call.id] = key = f"call-{self._started}"
        self._names[call.id] = call.name
        self.send(
            start_tool_call(
                key,
                call_title(call),
                kind=call_kind(call.name),
                status=status,
                locations=call_locations(call, self.cwd) or None,
                raw_input=raw_input(call),
            )
        )

    def shows(self, call: ToolCall) -> bool:
        """Whether this call is shown and has no result; a call of a sub-agent is not shown."""
        return self._names.get(call.id) == call.name

    def call_key(self, call: ToolCall) -> str:
        """The id of a call for the editor; shows the call if it is not shown."""
        if not self.shows(call):
            self.call_started(call)
        return self._open_calls[call.id]

    def call_runs(self, call: ToolCall, contents: list[CallContent]) -> None:
        """Show that a call runs, with its change."""
        key = self.call_key(call)
        self._contents[call.id] = contents
        self.send(update_tool_call(key, status="in_progress", content=contents or None))

    def call_ended(self, id: str, result: str) -> None:
        """Show the result of a call, below its change if that was made."""
        key = self._open_calls.pop(id, None)
        if key is None:
            return
        failed = result.startswith(_FAILED)
        self._progress.pop(id, None)
        self._names.pop(id, None)
        contents = self._contents.pop(id, [])
        visible = [text_content(valid_text(result))] if failed or not contents else contents
        status: ToolCallStatus = "failed" if failed else "completed"
        self.send(update_tool_call(key, status=status, content=visible, raw_output=result))

    def end_turn(self) -> None:
        """End the calls that have no result."""
        for call_id in list(self._open_calls):
            self.call_ended(call_id, INTERRUPTED)

    def _system(self, content: str, topic: str, id: str) -> None:
        match topic:
            case Topic.PREFILL:
                pass
            case Topic.STEERING:
                self.send(update_user_message(text_block(valid_text(content))))
            case Topic.PLAN:
                self._plan(json.loads(content))
            case Topic.MODE:
                self.send(update_current_mode(content))
            case Topic.OUTPUT | Topic.TASK | Topic.PROGRESS if id in self._open_calls:
                self._call_goes_on(id, content, replaces=topic == Topic.OUTPUT)
            case _:
                self.notice(content)

    def _plan(self, plan: JsonObject) -> None:
        """Show the steps, or a proposal that waits for the user."""
        if "steps" in plan:
            steps = cast(list[dict[str, str]], plan["steps"])
            entries = [
                plan_entry(valid_text(step["step"]), status=cast(PlanEntryStatus, step["status"]))
                for step in steps
            ]
            self.send(update_plan(entries))
        elif "proposal" in plan:
            self.send(update_agent_message(text_block(valid_text(f"\n{plan['proposal']}\n"))))

    def _call_goes_on(self, id: str, text: str, *, replaces: bool) -> None:
        """Show the last output of a running call, or one more line about its work."""
        before = "" if replaces else self._progress.get(id, "")
        self._progress[id] = visible = f"{before}\n{text}".strip("\n")[-MAX_PROGRESS:]
        contents = [*self._contents.get(id, []), text_content(valid_text(visible))]
        self.send(update_tool_call(self._open_calls[id], status="in_progress", content=contents))

    def _usage(self, stats: JsonObject, *, is_own: bool) -> None:
        """Send the context's use and the session's cost; those of other models only add cost."""
        cost = cast(float | None, stats.get("cost"))
        if cost is not None:
            self._cost = Cost(
                amount=(self._cost.amount if self._cost else 0.0) + cost, currency="USD"
            )
        used, size = cast(int, stats["context_used"]), cast(int, stats["context_size"])
        if size > 0 and is_own:
            self.send(
                UsageUpdate(session_update="usage_update", used=used, size=size, cost=self._cost)
            )
