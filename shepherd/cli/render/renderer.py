"""Renders the events of a turn."""

import json
from collections.abc import Callable

from rich.text import Text

from shepherd.agents import TASK
from shepherd.cli.render import tool_view
from shepherd.cli.render.live_calls import LiveCalls
from shepherd.cli.render.plan_view import PlanView
from shepherd.cli.render.status import Activity, Status
from shepherd.cli.render.surface import Surface
from shepherd.cli.render.text_view import AnswerView, ThinkingView
from shepherd.cli.render.tool_view import ResultLog
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.events import CallbackEvent, FinishReason, Topic, tokens_read
from shepherd.messages import Message, Role, ToolCall
from shepherd.tools.base import ToolResult
from shepherd.tools.deferred.wrapper import open_call
from shepherd.tools.plan import PLAN_TOOLS, UPDATE_PLAN
from shepherd.tools.text import pluralize

CUT = "The answer was cut: it reached the limit of tokens."
STOP_HINT = "Esc stops"
EXPAND_HINT = "Ctrl+O shows all"
_TEXT = frozenset({CallbackEvent.CONTENT, CallbackEvent.CODEBLOCK, CallbackEvent.THINKING})


class Renderer:
    """An event callback that shows everything; `show_thinking` False hides the reasoning.

    `reword` changes notices and errors before they are shown.

    All text passes `sanitize`, so text of models and tools can't control the terminal.
    """

    def __init__(
        self,
        surface: Surface,
        status: Status,
        *,
        show_thinking: bool = True,
        reword: Callable[[str], str] = str,
    ) -> None:
        self.show_thinking = show_thinking
        self.reword = reword
        self.activity = Activity(surface.painter.glyphs)
        self.results = ResultLog()
        self._surface = surface
        self._glyphs = surface.painter.glyphs
        self._status = status
        self._answer = AnswerView(surface.painter)
        self._thinking = ThinkingView(styled=surface.painter.styled)
        self._plan = PlanView(surface.painter.glyphs)
        self._announced: dict[str, ToolCall] = {}
        self._calls: dict[str, ToolCall] = {}
        self._begun_tasks: dict[str, ToolCall] = {}
        self._displays: dict[str, str] = {}
        self._previewed: set[str] = set()
        self._live_calls = LiveCalls(self._glyphs)
        self._last_call = ""
        self._handlers: dict[CallbackEvent, Callable[[str, str, str], None]] = {
            CallbackEvent.CONTENT: self._on_text,
            CallbackEvent.CODEBLOCK: self._on_text,
            CallbackEvent.THINKING: self._on_thinking,
            CallbackEvent.TOOL_CALL: self._on_tool_call,
            CallbackEvent.TOOL_RESULT: self._on_tool_result,
            CallbackEvent.SYSTEM: self._on_system,
            CallbackEvent.ERROR: self._on_error,
            CallbackEvent.STATS: self._on_stats,
            CallbackEvent.STOP: self._on_stop,
        }

    def __call__(self, event: CallbackEvent, content: str, name: str, id: str) -> bool:
        """Show an event; never cancels."""
        handler = self._handlers.get(event)
        if handler is not None:
            handler(content, name, id)
            if event not in _TEXT:
                self._surface.refresh()
        return True

    def user(self, text: str) -> None:
        """Show the user's message, unless the terminal already shows it."""
        if self._surface.echoes:
            return
        lines = sanitize(text).split("\n")
        sign = Text(f"{self._glyphs.user} ", style="user")
        body = sign + Text("\n  ").join(Text(line, style="bold") for line in lines)
        self._surface.show(BLANK_LINE, Piece(body))

    def notice(self, text: str, style: str = "quiet") -> None:
        """Show a line about an event."""
        self.settle()
        self._surface.show(Piece(Text(f"  {sanitize(self.reword(text))}", style=style)))

    def error(self, text: str) -> None:
        """Show an error."""
        self.settle()
        self._surface.show(
            BLANK_LINE, Piece(Text(f"Error: {sanitize(self.reword(text))}", style="bad"))
        )

    def tool_started(self, call: ToolCall) -> None:
        """A call begins; that of a sub-agent has a live line until its result."""
        if call.name == TASK:
            self._begun_tasks[call.id] = call
        else:
            self._show_call(call)
        self.activity.start(f"running {sanitize(call.name)}")
        self._surface.refresh()

    def tool_finished(self, call: ToolCall, result: ToolResult) -> None:
        """A call has ended; its result arrives as an event."""
        if result.display and call.id not in self._previewed:
            self._displays[call.id] = result.display

    def end_output(self, call_id: str) -> None:
        """Remove the last lines of a command from the live area."""
        self._live_calls.end(call_id)
        self._surface.refresh()

    def announce(self, call: ToolCall) -> None:
        """Show the call of a question."""
        self._show_call(call)

    def preview(self, call: ToolCall, text: str) -> None:
        """Show a short preview of a call."""
        self._show_call(call)
        if call.name in PLAN_TOOLS:
            return
        if text and text.strip() != tool_view.argument_summary(call.arguments):
            self._previewed.add(call.id)
            self._surface.show(*tool_view.display_pieces(text))

    def live(self) -> list[Piece]:
        """The activity, for the live area."""
        activity = self.activity.live(STOP_HINT)
        gap = [BLANK_LINE]
        below = [gap + part for part in (self._plan.live(), activity) if part]
        parts = [self._live_calls.pieces(), *below]
        return [piece for part in parts for piece in part]

    def held(self) -> str:
        """The end of the text that arrives, as long as its final form is open."""
        if self._thinking.is_open:
            return self._thinking.held if self.show_thinking else ""
        return self._answer.held

    def settle(self) -> None:
        """Write the rest of the text that arrives."""
        self._end_thinking()
        self._surface.show(*self._answer.finish())

    def interrupted(self) -> None:
        """Show that the user stopped the turn."""
        self.settle()
        self.turn_over()
        self.notice("interrupted", "warn")

    def turn_over(self) -> None:
        """The turn has ended."""
        self.settle()
        for call in [*self._begun_tasks.values()]:
            self._show_call(call)
        self._surface.show(*self._plan.finish())
        self.activity.stop()
        self._announced.clear()
        self._calls.clear()
        self._displays.clear()
        self._previewed.clear()
        self._live_calls.clear()
        self._surface.refresh()

    def _on_text(self, content: str, name: str, id: str) -> None:
        self._end_thinking()
        self._start("writing")
        self._surface.show(*self._answer.feed(content))

    def _on_thinking(self, content: str, name: str, id: str) -> None:
        first = not self._thinking.is_open
        ink = self._thinking.feed(content)
        self._start("thinking")
        if self.show_thinking:
            self._surface.show(*([BLANK_LINE] if first else []), *ink)

    def _start(self, label: str) -> None:
        """Begin an activity; text that arrives does not redraw the live area."""
        if self.activity.label != label:
            self.activity.start(label)
            self._surface.refresh()

    def _end_thinking(self) -> None:
        if not self._thinking.is_open:
            return
        characters = self._thinking.characters
        rest = self._thinking.finish()
        if not self.show_thinking:
            note = f"  (thought: {characters} characters; /thinking show)"
            rest = [BLANK_LINE, Piece(Text(note, style="quiet"))]
        self._surface.show(*rest)

    def _on_tool_call(self, content: str, name: str, id: str) -> None:
        self._announced[id] = ToolCall(id, name, json.loads(content))

    def _on_tool_result(self, content: str, name: str, id: str) -> None:
        self._live_calls.end(id)
        if name == UPDATE_PLAN and not content.startswith("Error"):
            return
        call = self._calls.get(id) or self._announced.get(id) or ToolCall(id, name, {})
        if self._last_call != id:  # another call began meanwhile
            self._calls.pop(id, None)
        self._show_call(call)
        hint = EXPAND_HINT if self._surface.has_live_area else ""
        self._surface.show(*tool_view.result_pieces(call, content, self._glyphs, hint))
        display = self._displays.pop(id, "")
        self.results.add(tool_view.call_title(call), display, content)
        if display:
            self._surface.show(*tool_view.display_pieces(display))
        self.activity.start("waiting for the model")

    def _show_call(self, call: ToolCall) -> None:
        if call.name not in PLAN_TOOLS and call.id not in self._calls:
            self._calls[call.id] = call
            self._begun_tasks.pop(call.id, None)
            self._last_call = call.id
            self.settle()
            self._surface.show(BLANK_LINE, tool_view.call_line(call, self._glyphs))

    def _on_system(self, content: str, name: str, id: str) -> None:
        if name == Topic.PREFILL:
            self.activity.start("reading the prompt")
            self.activity.note(_progress(content))
            self._status.context_used = tokens_read(content)
        elif name in (Topic.TASK, Topic.OUTPUT) and self._surface.has_live_area:
            self._live_calls.take(name, content, id)
        elif name in (Topic.PLAN, Topic.STEERING, Topic.MODE):
            self._on_change(content, name)
        elif name != Topic.OUTPUT:
            self.notice(content, "warn" if name == Topic.WARNING else "quiet")

    def _on_change(self, content: str, topic: str) -> None:
        """Show a new plan, a message of the user that joined the turn, or another mode."""
        self.settle()
        if topic == Topic.PLAN:
            self._surface.show(*self._plan.take(content))
        elif topic == Topic.STEERING:
            self.user(without_attachments(content))
        else:
            self._status.approve = content
            self.notice(f"approve: {content}")

    def _on_error(self, content: str, name: str, id: str) -> None:
        self.error(content)

    def _on_stats(self, content: str, name: str, id: str) -> None:
        self._status.take(content, delegate=name)

    def _on_stop(self, content: str, name: str, id: str) -> None:
        self.settle()
        if content == FinishReason.LENGTH:
            self.notice(CUT, "warn")


def _progress(content: str) -> str:
    done, _, total = content.partition("/")
    return f"{done} of {total} tokens" if total else content


EXCHANGES = 3


def show_last_exchanges(messages: list[Message], renderer: Renderer) -> None:
    """Show the last exchanges, and the number of earlier messages."""
    starts = [i for i, m in enumerate(messages) if m.role is Role.USER and not m.is_hint]
    begin = starts[-EXCHANGES] if len(starts) > EXCHANGES else 0
    if begin:
        renderer.notice(pluralize(begin, "earlier message"))
    for message in messages[begin:]:
        _show(message, renderer)
    renderer.turn_over()


def _show(message: Message, renderer: Renderer) -> None:
    match message.role:
        case Role.USER if message.is_hint:
            renderer(CallbackEvent.SYSTEM, message.content, Topic.HINT, "")
        case Role.USER:
            renderer.settle()
            renderer.user(without_attachments(message.plain_text))
        case Role.ASSISTANT:
            if message.content:
                renderer(CallbackEvent.CONTENT, message.content, "", "")
            renderer.settle()
            for call in map(open_call, message.tool_calls):
                if call.name == UPDATE_PLAN:
                    renderer(CallbackEvent.SYSTEM, call.arguments_json, Topic.PLAN, "")
                renderer(CallbackEvent.TOOL_CALL, call.arguments_json, call.name, call.id)
        case Role.TOOL:
            text, call_id = message.plain_text, message.tool_call_id
            renderer(CallbackEvent.TOOL_RESULT, text, message.name, call_id)
        case Role.SYSTEM:
            pass
