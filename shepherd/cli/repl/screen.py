"""The terminal: permanent output that scrolls, and below it a live area that is redrawn."""

import asyncio
from functools import partial
from pathlib import Path

from prompt_toolkit import layout
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor

from shepherd.cli.approval.question import Answer, Question
from shepherd.cli.render.surface import Actions, Surface
from shepherd.cli.repl import terminal
from shepherd.cli.repl.keys import bind, global_keys, prompt_keys, reading_keys
from shepherd.cli.repl.panels import ESCAPE_SECONDS, PartsPanel, QuestionPanel, ResultPanel
from shepherd.cli.repl.prompt import Prompt
from shepherd.cli.repl.scrollback import InkWriter
from shepherd.cli.terminal.paint import Ink, Painter
from shepherd.own_programs import find_editor

REDRAW_SECONDS = 0.04
LIVE_SHARE = 0.6
"""The maximum share of the screen's height for the live text."""


class Screen(Surface):
    """A prompt and a live area on a terminal, to which `attention` writes too."""

    def __init__(
        self,
        painter: Painter,
        prompt: Prompt,
        actions: Actions,
        attention: terminal.Attention,
        *,
        input: Input | None = None,
        vi_mode: bool = False,
    ) -> None:
        self.painter = painter
        self.prompt = prompt
        self.echoes = False
        self.has_live_area = True
        self._attention = attention
        self._actions = actions
        self._drawn = asyncio.Event()
        """Whether the prompt has been on the terminal."""
        self._painted: tuple[int, list[str]] = (-1, [])
        """The number of a redraw, and the lines of its live area."""
        self._terminal_answers: terminal.AnswerReader | None = None
        """Reads what the terminal tells about its colours; None if it is not asked."""
        # the line that `ask_text` asks for
        self._reply: asyncio.Future[str] | None = None
        """What it waits for; None without a question."""
        self._reply_label = ""
        self._is_secret = False
        """Whether the reply is shown as stars."""
        self._one_at_a_time = asyncio.Lock()
        """Held by a question: the keys of one answer no other, and it has the focus to its end."""
        self._reply_buffer = Buffer(multiline=False)
        # what is drawn, and the keys
        self._build_windows(actions)
        self._panel = QuestionPanel(painter, prompt, self._prompt_window, lambda: self.app)
        self._parts_panel = PartsPanel(painter, self._prompt_window, lambda: self.app)
        self.reader = ResultPanel(painter, self._prompt_window, lambda: self.app, actions.results)
        keys = global_keys(prompt, actions, self._is_asking)
        self._panel.bind_return_keys(keys)
        self._bind_keys(keys)
        self.app = terminal.ResizingApplication(
            layout=layout.Layout(self._root(), focused_element=self._prompt_window),
            key_bindings=keys,
            style=terminal.STYLE,
            erase_when_done=True,
            min_redraw_interval=REDRAW_SECONDS,
            editing_mode=EditingMode.VI if vi_mode else EditingMode.EMACS,
            output=attention.output,
            input=input,
            before_pause=self._pause,
            after_pause=self._go_on,
            before_erase=self._prepare_resize,
        )
        self.app.ttimeoutlen = ESCAPE_SECONDS
        self._ink = InkWriter(
            painter,
            self.app,
            actions.held,
            is_typing=lambda: bool(prompt.text) or self._has_panel() or self.reader.is_open,
        )
        self.app.before_render += self._panel.before_drawing
        self.app.after_render += self._panel.drawn
        self.app.after_render += self._note_drawn

    def show(self, *ink: Ink) -> None:
        """Write above the prompt, permanently."""
        self._ink.add(ink)

    @property
    def is_settled(self) -> bool:
        """Whether everything is written and drawn."""
        return not self._ink.is_waiting and not self.app.invalidated

    async def drawn(self) -> None:
        """Wait until the prompt is on the terminal."""
        await self._drawn.wait()

    def refresh(self) -> None:
        """Redraw soon."""
        self.app.invalidate()

    def animate(self) -> None:
        """Draw the activity again, unless arriving text shows it."""
        if self._ink.is_quiet:
            self.refresh()

    async def ask(self, question: Question) -> Answer:
        """Show `question` in place of the live area until it is answered."""
        self.alert("A question waits.")
        async with self._one_at_a_time:
            self.reader.close()  # both would be in the place of the live area
            return await self._panel.ask(question)

    async def ask_parts(self, question: Question) -> tuple[int, ...] | None:
        """Show the parts of `question` in its place until the user has chosen."""
        async with self._one_at_a_time:
            return await self._parts_panel.ask(question)

    async def ask_text(self, label: str, *, secret: bool = False) -> str:
        """Read one line after `label`, shown as stars if it is a secret."""
        async with self._one_at_a_time:
            self.reader.close()
            self._reply_label, self._is_secret = label, secret
            self._reply = asyncio.get_running_loop().create_future()
            self.app.layout.focus(self._reply_window)
            self.refresh()
            try:
                return await self._reply
            finally:
                self._reply = None
                self._reply_buffer.reset()  # nothing keeps a secret
                self.app.layout.focus(self._prompt_window)
                self.refresh()

    async def ask_secret(self, label: str) -> str:
        """Read one line after `label`, shown as stars."""
        return await self.ask_text(label, secret=True)

    def hint(self, text: str) -> None:
        """Show `text` in the prompt until the user types."""
        self.prompt.placeholder = text
        self.refresh()

    def restore(self, text: str) -> None:
        """Put text back before the typed text."""
        self.prompt.restore(text)

    def alert(self, text: str) -> None:
        """Ring the bell and notify, if the terminal does not have the focus."""
        self._attention.alert(text)

    async def run(self) -> None:
        """Read keys until `leave`."""
        try:
            with reading_keys(self.app.input):
                self._attention.begin()
                if self._terminal_answers is not None:
                    self._terminal_answers.colours.ask(self.app.output)
                await self.app.run_async(set_exception_handler=False)
        except EOFError:
            return  # the terminal was closed
        finally:
            self._attention.end()
            self._ink.write()  # what has come too late for a redraw
            if self._terminal_answers is not None:
                self._terminal_answers.drop()

    def ask_background(self, changed: terminal.BackgroundListener) -> None:
        """Ask the terminal in `run` whether its background is light; `changed` gets the answer."""
        colours = terminal.TerminalColours(changed)
        self._terminal_answers = terminal.read_answers(self.app.input, colours)

    def leave(self) -> None:
        """End `run`."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit()

    def _bind_keys(self, keys: KeyBindings) -> None:
        """Add the keys of the editor and of the results, and note the focus of the terminal."""
        asks_nothing = ~Condition(self._is_asking) & ~is_searching
        for key in ("c-g", ("c-x", "c-e")):  # the second one is that of shells
            bind(keys, key, self._open_editor, when=asks_nothing)
        bind(keys, "c-o", self.reader.toggle, when=asks_nothing)
        for key, has_focus in ((terminal.FOCUS_IN, True), (terminal.FOCUS_OUT, False)):
            bind(keys, key, partial(self._note_focus, has_focus=has_focus))

    def _note_focus(self, *, has_focus: bool) -> None:
        self._attention.has_focus = has_focus

    def _open_editor(self) -> None:
        """Edit the typed text in the user's editor; output waits meanwhile."""
        self.prompt.unfold()
        self._pause()  # the editor has the terminal
        find_editor(Path.cwd())
        editing = self.prompt.buffer.open_in_editor()
        editing.add_done_callback(lambda _task: self._go_on())

    def _pause(self) -> None:
        """Leave the terminal to another program."""
        self._ink.is_paused = True
        self._attention.end()

    def _go_on(self) -> None:
        """Take the terminal back from another program, which may have changed the screen."""
        self._attention.begin()
        self._ink.is_paused = False
        self._ink.begin_row()
        self._ink.add(())  # writes what has come meanwhile

    def _note_drawn(self, _app: object) -> None:
        self._drawn.set()

    def _prepare_resize(self) -> bool:
        """Put the cursor into the live area; returns whether it was above it."""
        return self._ink.prepare_resize()

    def _is_asking(self) -> bool:
        """Whether a question, of any kind, waits for the user."""
        return self._reply is not None or self._has_panel()

    def _has_panel(self) -> bool:
        """Whether a question is in the place of the live area."""
        return self._panel.is_open or self._parts_panel.is_open

    def _accept_reply(self) -> None:
        """Give the typed line to `ask_text`, which may have it already after a second Enter."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(self._reply_buffer.text)

    def _build_windows(self, actions: Actions) -> None:
        """Make the windows of the prompt and of the line for `ask_text`."""
        self._prompt_window = self.prompt.window(prompt_keys(self.prompt, actions))
        reply_keys = KeyBindings()
        bind(reply_keys, "enter", self._accept_reply)
        self._reply_window = layout.Window(
            layout.BufferControl(
                self._reply_buffer,
                input_processors=[
                    ConditionalProcessor(PasswordProcessor(), Condition(lambda: self._is_secret))
                ],
                key_bindings=reply_keys,
            ),
            height=1,
            get_line_prefix=lambda _line, _wrap: [("class:prompt", self._reply_label)],
        )

    def _root(self) -> layout.HSplit:
        """All windows, each visible while its condition holds; one of five is above the prompt."""
        has_question = Condition(lambda: self._panel.is_open)
        has_parts = Condition(lambda: self._parts_panel.is_open)
        has_reply_line = Condition(lambda: self._reply is not None)
        has_results = Condition(lambda: self.reader.is_open)
        has_live_lines = Condition(lambda: bool(self._live_lines()))
        has_typed = Condition(lambda: bool(self.prompt.text))
        asks_nothing = ~has_question & ~has_parts & ~has_reply_line
        live = layout.FormattedTextControl(lambda: ANSI("\n".join(self._live_lines())))
        live_window = layout.Window(live, dont_extend_height=True)
        shows_live = asks_nothing & has_live_lines & ~has_results
        waiting = layout.FormattedTextControl(lambda: ANSI(self._waiting_text()))
        waiting_window = layout.Window(waiting, dont_extend_height=True)
        hides_waiting = ~asks_nothing & Condition(lambda: bool(self._actions.waiting_messages()))
        status = layout.FormattedTextControl(self._status_text)
        return layout.HSplit(
            [
                layout.ConditionalContainer(live_window, shows_live),
                layout.ConditionalContainer(self._panel.window, has_question),
                layout.ConditionalContainer(self._parts_panel.window, has_parts),
                layout.ConditionalContainer(self.reader.window, asks_nothing & has_results),
                layout.ConditionalContainer(self._reply_window, has_reply_line),
                layout.ConditionalContainer(waiting_window, hides_waiting),
                layout.Window(height=1),
                layout.ConditionalContainer(self._prompt_window, asks_nothing | has_typed),
                self.prompt.search,
                layout.CompletionsMenu(max_height=8),
                layout.Window(status, height=1),
            ],
            align=layout.VerticalAlign.TOP,
        )

    def _live_lines(self) -> list[str]:
        """The live area, painted once per redraw; of a high one, the end."""
        redraw, lines = self._painted
        if redraw != self.app.render_counter:
            size = self.app.output.get_size()
            max_rows = max(2, int(size.rows * LIVE_SHARE))
            painted = self.painter.paint_all(self._actions.live(), size.columns)
            lines = painted.splitlines()[-max_rows:]
            self._painted = self.app.render_counter, lines
        return lines

    def _waiting_text(self) -> str:
        columns = self.app.output.get_size().columns
        return self.painter.paint_all(self._actions.waiting_messages(), columns).rstrip("\n")

    def _status_text(self) -> StyleAndTextTuples:
        return [("class:status", self._actions.status_line(self.app.output.get_size().columns))]
