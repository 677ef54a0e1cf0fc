"""The events of a turn as updates of a session, and calls of tools as an editor shows them."""

from collections.abc import Callable
from pathlib import Path

from acp import RequestError, helpers, schema
from acp.utils import serialize_params
from msgspec import Struct, field

from shepherd import errors, events, json_text, messages
from shepherd.cli.render.tool_view import argument_summary
from shepherd.events import Topic
from shepherd.tools.paths import resolve_path
from shepherd.tools.registry import traits_of
from shepherd.tools.text import code_span, fenced, valid_text
from shepherd.tools.tool import FileChange

CallContent = (
    schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent
)

INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32602, -32603


def invalid(text: str) -> RequestError:
    """The error of a request that can't be used, with a sentence for the user."""
    return RequestError(INVALID_PARAMS, text)


_FAILED = "Error: "
MAX_PROGRESS = 4000
"""Characters of a running call's output that are shown."""


class _OpenCall(Struct):
    """A shown call without a result: its id for the editor, its change, and its output so far."""

    key: str
    name: str
    change: list[CallContent] = field(default_factory=list[CallContent])
    output: str = ""


class SessionUpdates(Struct):
    """Sends the updates of one session; `receive` is the callback of its turns.

    A call gets an id that is unique in the session, because models repeat theirs. `problem` is the
    last reason for which a turn was stopped.
    """

    session_id: str
    cwd: Path
    post: Callable[[messages.JsonObject], None]
    problem: str = ""
    _cost: schema.Cost | None = None
    _call_count: int = 0
    _place: int = 0
    _open_calls: dict[str, _OpenCall] = field(default_factory=dict[str, _OpenCall])

    def send(
        self, update: helpers.SessionUpdate | schema.UsageUpdate | schema.ConfigOptionUpdate
    ) -> None:
        """Send an update."""
        notification = schema.SessionNotification(session_id=self.session_id, update=update)
        params = serialize_params(notification)
        self.post({"jsonrpc": "2.0", "method": "session/update", "params": params})

    def receive(self, event: events.Event) -> bool:
        """Send an event; the callback of a turn."""
        match event:
            case events.Text():
                self.answer(event.text)
            case events.Thinking():
                self.thought(event.text)
            case messages.ToolCall():
                self.call_started(event)
            case events.ToolResult():
                self.call_ended(event.id, event.text)
            case events.Stats():
                self._show_usage(event)
            case events.Notice():
                self._show_notice(event)
            case events.PlanUpdate():
                self._show_plan(event)
            case events.Failure():
                self.problem = event.message
            case events.PrefillProgress():
                self._show_place(event)
            case _:
                pass
        return True

    def answer(self, text: str) -> None:
        """Send a piece of the answer."""
        self.send(helpers.update_agent_message(helpers.text_block(valid_text(text))))

    def thought(self, text: str) -> None:
        """Send a piece of the model's reasoning."""
        self.send(helpers.update_agent_thought(helpers.text_block(valid_text(text))))

    def user_message(self, text: str) -> None:
        """Send a message of the user."""
        self.send(helpers.update_user_message(helpers.text_block(valid_text(text))))

    def notice(self, text: str) -> None:
        """Send a sentence for the user, which is not part of the answer."""
        self.thought(f"\n{text}\n")

    def call_started(self, call: messages.ToolCall) -> None:
        """Show a call that the model made."""
        self._call_count += 1
        key = f"call-{self._call_count}"
        self._open_calls[call.id] = _OpenCall(key, call.name)
        self.send(
            helpers.start_tool_call(
                key,
                call_title(call),
                kind=traits_of(call.name).kind,
                status="pending",
                locations=call_locations(call, self.cwd) or None,
                raw_input=raw_input(call),
            )
        )

    def shows(self, call: messages.ToolCall) -> bool:
        """Whether this call is shown and has no result; a call of a sub-agent is not shown."""
        # a sub-agent's model may repeat the id of the call that runs it
        open_call = self._open_calls.get(call.id)
        return open_call is not None and open_call.name == call.name

    def call_key(self, call: messages.ToolCall) -> str:
        """The id of a call for the editor; shows the call if it is not shown."""
        if not self.shows(call):
            self.call_started(call)
        return self._open_calls[call.id].key

    def call_runs(self, call: messages.ToolCall, change: list[CallContent]) -> None:
        """Show that a call runs, with its change."""
        key = self.call_key(call)
        self._open_calls[call.id].change = change
        self.send(helpers.update_tool_call(key, status="in_progress", content=change or None))

    def call_ended(self, id: str, result: str) -> None:
        """Show the change of a call that has ended, or its result if it failed or changed none."""
        call = self._open_calls.pop(id, None)
        if call is None:  # a call of a sub-agent
            return
        has_failed = result.startswith(_FAILED)
        content = call.change
        if has_failed or not content:  # a call that failed has changed nothing
            content = [text_content(valid_text(result))]
        status: schema.ToolCallStatus = "failed" if has_failed else "completed"
        self.send(
            helpers.update_tool_call(call.key, status=status, content=content, raw_output=result)
        )

    def end_turn(self) -> None:
        """End the calls that have no result."""
        for call_id in list(self._open_calls):
            self.call_ended(call_id, messages.INTERRUPTED)

    def _show_notice(self, notice: events.Notice) -> None:
        """Show a notice where the editor has a place for it, else among the thoughts."""
        match notice.topic:
            case Topic.STEERING:
                self.user_message(notice.text)
            case Topic.MODE:
                self.send(helpers.update_current_mode(notice.text))
            case Topic.OUTPUT | Topic.TASK | Topic.PROGRESS if notice.id in self._open_calls:
                self._show_call_output(self._open_calls[notice.id], notice)
            case _:
                self.notice(notice.text)

    def _show_plan(self, plan: events.PlanUpdate) -> None:
        """Show the steps, or a proposal that waits for the user."""
        if plan.proposal:
            self.answer(f"\n{plan.proposal}\n")
            return
        entries = [
            helpers.plan_entry(valid_text(step.step), status=step.status.value)
            for step in plan.steps
        ]
        self.send(helpers.update_plan(entries))

    def _show_place(self, progress: events.PrefillProgress) -> None:
        """Tell each new place of a prompt that waits for others, with the time expected then."""
        place, self._place = self._place, progress.place
        if progress.place not in (0, place):
            self.notice(f"{progress.waits.capitalize()}.")

    def _show_call_output(self, call: _OpenCall, notice: events.Notice) -> None:
        """Show the last output of a running call, or one more line about its work."""
        # a notice of output has all of the last lines, the others have one new line
        before = "" if notice.topic == Topic.OUTPUT else call.output
        call.output = f"{before}\n{notice.text}".strip("\n")[-MAX_PROGRESS:]
        content = [*call.change, text_content(valid_text(call.output))]
        self.send(helpers.update_tool_call(call.key, status="in_progress", content=content))

    def _show_usage(self, stats: events.Stats) -> None:
        """Send the context's use and the session's cost; those of other models only add cost."""
        if stats.cost is not None:
            cost_before = self._cost.amount if self._cost else 0.0
            self._cost = schema.Cost(amount=cost_before + stats.cost, currency="USD")
        if stats.context_size > 0 and not stats.provider:  # 0: the size is unknown
            update = schema.UsageUpdate(
                session_update="usage_update",
                used=stats.context_used,
                size=stats.context_size,
                cost=self._cost,
            )
            self.send(update)


MAX_DIFF_CHARACTERS = 2_000_000
"""Both texts of a change together; a longer one is shown as text, because editors become slow."""


def call_title(call: messages.ToolCall) -> str:
    """`Read `notes.txt``: what the model chose is in a code span, because titles are Markdown."""
    subject = argument_summary(call.arguments)
    head = traits_of(call.name).verb or one_line_span(call.name)
    return f"{head} {one_line_span(subject)}" if subject else head


def call_locations(call: messages.ToolCall, cwd: Path) -> list[schema.ToolCallLocation]:
    """The file that the arguments name, and its line."""
    path, line = call.arguments.get("path"), call.arguments.get("offset")
    # a `path` of a server's tool need not be one on this machine
    if not isinstance(path, str) or traits_of(call.name).kind == "other":
        return []
    try:
        resolved = resolve_path(path, cwd)
    except errors.ToolError:
        return []
    is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
    return [schema.ToolCallLocation(path=valid_text(str(resolved)), line=line if is_line else None)]


def raw_input(call: messages.ToolCall) -> object:
    """The arguments, as text if JSON can't hold them."""
    return call.arguments if json_text.is_finite(call.arguments) else call.arguments_json


def text_content(text: str) -> CallContent:
    """Text that is shown as it is."""
    return helpers.tool_content(helpers.text_block(fenced(text)))


def diff_content(change: FileChange) -> CallContent | None:
    """The change of a file, None if it is too long."""
    before, after = change.before, change.after
    if len(before or "") + len(after) > MAX_DIFF_CHARACTERS:
        return None
    old = None if before is None else valid_text(before)
    return helpers.tool_diff_content(valid_text(str(change.path)), valid_text(after), old)


def one_line_span(text: str) -> str:
    """The text, on one line, in a code span that no part of it can close."""
    return code_span(" ".join(text.split()))
