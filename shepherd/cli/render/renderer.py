"""Renders the events of a turn."""

from collections.abc import Callable

from msgspec import Struct
from rich.text import Text

from shepherd import events
from shepherd.agents import TASK
from shepherd.cli.render import tool_view
from shepherd.cli.render.status import Activity, Status
from shepherd.cli.render.surface import Surface
from shepherd.cli.render.tool_view import ResultLog
from shepherd.cli.render.views import AnswerView, LiveCalls, PlanView, ThinkingView
from shepherd.cli.terminal.attachments import without_attachments
from shepherd.cli.terminal.paint import BLANK_LINE, Piece
from shepherd.cli.terminal.sanitize import sanitize
from shepherd.messages import Message, Role, ToolCall
from shepherd.tools import deferred, plan
from shepherd.tools.review import ReviewChanges
from shepherd.tools.text import pluralize
from shepherd.tools.tool import ToolResult

STOP_HINT = "Esc stops"
FIRST_READ = "(read {tokens} before the first word)"
EXPAND_HINT = "Ctrl+O shows all"


class _CallState(Struct):
    """What was shown of a call; `display` is its change, which is shown with the result."""

    call: ToolCall
    has_line: bool = False
    has_preview: bool = False
    """Whether its change was shown before it ran."""
    is_begun_task: bool = False
    """Whether it is a sub-agent's that runs, whose line is shown with the result."""
    display: str = ""


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
        self._surface = surface
        self._glyphs = surface.painter.glyphs
        self._status = status
        # what arrives, and what the live area shows of it
        self._answer = AnswerView(surface.painter)
        self._thinking = ThinkingView()
        self.activity = Activity(self._glyphs)
        self._plan = PlanView(self._glyphs)
        self._live_calls = LiveCalls(self._glyphs)
        # calls and their results
        self.results = ResultLog()
        self._calls: dict[str, _CallState] = {}
        """The calls of this turn by their ids."""
        self._last_line_of = ""
        """The id of the call whose line was shown last."""

    def __call__(self, event: events.Event) -> bool:
        """Show an event; the result True lets the turn go on."""
        match event:
            case events.Text():
                self._on_text(event.text)
            case events.Thinking():
                self._on_thinking(event.text)
            case _:
                self._on_step(event)
                self._surface.refresh()  # text needs none: it is written above the live area
        return True

    def user(self, text: str) -> None:
        """Show the user's message, unless the terminal already shows it."""
        if self._surface.echoes:
            return
        lines = sanitize(text).split("\n")
        sign = Text(f"{self._glyphs.user} ", style="user")
        # further lines are set in as far as the sign
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
        """Show that a call begins; that of a sub-agent has a live line until its result."""
        if call.name == TASK:  # several run together, so their lines come with their results
            self._state_of(call).is_begun_task = True
        else:
            self.show_call(call)
        self.activity.start(f"running {sanitize(call.name)}")
        self._surface.refresh()

    def tool_finished(self, call: ToolCall, result: ToolResult) -> None:
        """Keep the change that a call made until its result, which arrives as an event."""
        self._state_of(call).display = result.display

    def end_own_output(self) -> None:
        """Remove the last lines of the user's own command, which is no call, from the live area."""
        self._live_calls.end("")
        self._surface.refresh()

    def preview(self, call: ToolCall, text: str) -> None:
        """Show what a call would do, below its line."""
        self.show_call(call)
        if call.name in plan.PLAN_TOOLS:  # the plan itself is shown
            return
        # the line of a command such as `ls` says all that its preview does
        if text and text.strip() != tool_view.argument_summary(call.arguments):
            self._state_of(call).has_preview = True
            self._surface.show(*tool_view.display_pieces(text))

    def live(self) -> list[Piece]:
        """The last lines of running calls, the plan and the activity, for the live area."""
        pieces = self._live_calls.pieces()
        for lines in (self._plan.live(), self.activity.live(STOP_HINT)):
            if lines:  # the blank line also divides them from the permanent output above
                pieces += [BLANK_LINE, *lines]
        return pieces

    def held(self) -> str:
        """The end of the text that arrives, as long as its final form is open."""
        if self._thinking.is_open:  # an answer has not begun then
            return self._thinking.held if self.show_thinking else ""
        return self._answer.held

    def settle(self) -> None:
        """Write the rest of the text that arrives, before anything else is shown."""
        self._end_thinking()
        self._surface.show(*self._answer.finish())

    def interrupted(self) -> None:
        """Show that the user stopped the turn, and what stopped commands have printed."""
        for call_id, output in list(self._live_calls.outputs.items()):
            if call_id in self._calls:
                name = self._calls[call_id].call.name
                self._on_tool_result(events.ToolResult(call_id, name, output))
        self.end_turn()
        self.notice("interrupted", "warn")

    def end_turn(self) -> None:
        """Write what is still open at the end of a turn, and empty the live area."""
        self.settle()
        for state in self._calls.values():
            if state.is_begun_task:  # it has no result, which would have shown its line
                self.show_call(state.call)
        self._surface.show(*self._plan.finish())
        self.activity.stop()
        self._calls.clear()
        self._live_calls.clear()
        self._surface.refresh()

    def _on_step(self, event: events.Event) -> None:
        """Show what is not text."""
        match event:
            case ToolCall():
                self._calls[event.id] = _CallState(event)
            case events.ToolResult():
                self._on_tool_result(event)
            case events.PrefillProgress():
                progress = f"{event.done} of {event.total} tokens" if event.done else ""
                self.activity.start(event.waits or "reading the prompt", progress)
                self._status.context_used = event.done or self._status.context_used
            case events.PlanUpdate():
                self.settle()
                self._surface.show(*self._plan.take(event))
            case events.Notice():
                self._on_notice(event)
            case events.Failure():
                self.error(event.message)
            case events.Stats():
                if not self._status.totals.generations and event.prompt_tokens:
                    self.notice(FIRST_READ.format(tokens=pluralize(event.prompt_tokens, "token")))
                self._status.add_stats(event)
            case events.Stop():
                self._on_stop(event.reason)
            case _:
                pass

    def _on_text(self, text: str) -> None:
        """Stream the answer, which ends the reasoning."""
        self._end_thinking()
        self._start("writing")
        self._surface.show(*self._answer.feed(text))

    def _on_thinking(self, text: str) -> None:
        """Stream reasoning, after a blank line at its beginning; hidden, it is only counted."""
        lead = [] if self._thinking.is_open else [BLANK_LINE]
        ink = self._thinking.feed(text)
        self._start("thinking")
        if self.show_thinking and self._thinking.is_open:  # it is not yet after newlines alone
            self._surface.show(*lead, *ink)

    def _start(self, label: str) -> None:
        """Begin an activity; each further part of a text does not redraw the live area."""
        if self.activity.label != label:
            self.activity.start(label)
            self._surface.refresh()

    def _end_thinking(self) -> None:
        """Write the rest of the reasoning, or how long it was if it is hidden."""
        if not self._thinking.is_open:
            return
        characters = self._thinking.characters
        rest = self._thinking.finish()
        if not self.show_thinking:
            note = f"  (thought: {characters} characters; /thinking show)"
            rest = [BLANK_LINE, Piece(Text(note, style="quiet"))]
        self._surface.show(*rest)

    def _on_tool_result(self, result: events.ToolResult) -> None:
        """Show a result under the line of its call, and the change that the call made."""
        call_id = result.id
        self._live_calls.end(call_id)
        if result.name == plan.UPDATE_PLAN and not result.text.startswith("Error"):
            return  # the plan itself is shown
        # a client that joined during the call knows only its name
        state = self._state_of(ToolCall(call_id, result.name, {}))
        if self._last_line_of != call_id:  # the line of another call is above the result
            state.has_line = False
        self.show_call(state.call)
        hint = EXPAND_HINT if self._surface.has_live_area else ""  # plain output has no keys
        self._surface.show(*tool_view.result_pieces(state.call, result.text, self._glyphs, hint))
        self.results.add(tool_view.call_title(state.call), state.display, result.text)
        if state.display and not state.has_preview:  # one that was asked about stands above
            self._surface.show(*tool_view.display_pieces(state.display))
        self.activity.start("waiting for the model")

    def _state_of(self, call: ToolCall) -> _CallState:
        """What was shown of the call with this id, which may have other arguments here."""
        return self._calls.setdefault(call.id, _CallState(call))

    def show_call(self, call: ToolCall) -> None:
        """Show the line of a call, once."""
        state = self._state_of(call)
        if call.name not in plan.PLAN_TOOLS and not state.has_line:
            state.has_line, state.is_begun_task = True, False
            self._last_line_of = call.id
            self.settle()
            self._surface.show(BLANK_LINE)
            if call.name != ReviewChanges.name:  # which stands for the whole turn
                self._surface.show(tool_view.call_line(call, self._glyphs))

    def _on_notice(self, notice: events.Notice) -> None:
        """Show a notice by its topic: in the live area, as a message of the user, or as a line."""
        match notice.topic:
            case events.Topic.TASK | events.Topic.OUTPUT if self._surface.has_live_area:
                self._live_calls.take(notice)
            case events.Topic.OUTPUT:  # without a live area; the result has it too
                pass
            case events.Topic.STEERING:
                self.settle()
                self.user(without_attachments(notice.text))
            case events.Topic.MODE:
                self._status.approve = notice.text
                self.notice(f"approve: {notice.text}")
            case events.Topic.WARNING:
                self.notice(notice.text, "warn")
            case _:
                self.notice(notice.text)

    def _on_stop(self, reason: events.FinishReason) -> None:
        """End the text of a generation, and tell if it was cut."""
        self.settle()
        if reason is events.FinishReason.LENGTH:
            self.notice(events.CUT, "warn")


EXCHANGES = 3


def show_last_exchanges(messages: list[Message], renderer: Renderer) -> None:
    """Show the last exchanges of a conversation, and the number of messages before them."""
    # an exchange begins with a message of the user; hints are Shepherd's
    starts = [i for i, m in enumerate(messages) if m.role is Role.USER and not m.is_hint]
    begin = starts[-EXCHANGES] if len(starts) > EXCHANGES else 0
    if begin:
        renderer.notice(pluralize(begin, "earlier message"))
    for message in messages[begin:]:
        _show(message, renderer)
    renderer.end_turn()


def _show(message: Message, renderer: Renderer) -> None:
    """Show a message by the events that a turn would have for it."""
    match message.role:
        case Role.USER if message.is_hint:
            renderer(events.Notice(message.content, events.Topic.HINT))
        case Role.USER:
            renderer.settle()
            renderer.user(without_attachments(message.plain_text))
        case Role.ASSISTANT:
            if message.content:
                renderer(events.Text(message.content))
            renderer.settle()
            # a call of a deferred tool names it in its arguments; `open_call` takes it from there
            for call in map(deferred.open_call, message.tool_calls):
                if call.name == plan.UPDATE_PLAN:
                    renderer(plan.plan_of(call.arguments))
                renderer(call)
        case Role.TOOL:
            renderer(events.ToolResult(message.tool_call_id, message.name, message.plain_text))
        case Role.SYSTEM:  # no part of the talk
            pass
