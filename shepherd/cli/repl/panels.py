"""The panels in place of the live area: a question, or whole results; the model goes on."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.key_binding import KeyBindings, KeyBindingsBase, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import UIContent, UIControl, Window
from prompt_toolkit.layout.controls import GetLinePrefixCallable
from rich.text import Text

from shepherd.cli.approval.checklist import Checklist
from shepherd.cli.approval.dialog import SENT, Dialog, Frame, lay_out, preferred_rows
from shepherd.cli.approval.pager import Pager, Row, fold
from shepherd.cli.approval.question import Answer, Question, fact, text_lines
from shepherd.cli.render.tool_view import FullResult
from shepherd.cli.repl.keys import NO_MENU, bind, input_waiting, more_follows
from shepherd.cli.repl.prompt import Prompt
from shepherd.cli.terminal.paint import UNICODE, Painter, Piece

ESCAPE_SECONDS = 0.08
"""The time to wait for the rest of a sequence that begins with Esc."""


class _Panel(UIControl):
    """Is in the place of the live area and has the keys while it is open."""

    rows_around: int
    """Rows of the screen that do not belong to it."""

    def __init__(
        self, painter: Painter, prompt_window: Window, app: Callable[[], Application[None]]
    ) -> None:
        self.window = Window(self, dont_extend_height=True)
        self._painter = painter
        self._prompt_window = prompt_window
        self._app = app
        self._unicode = painter.glyphs is UNICODE
        self._keys = self._bindings()

    def needed_rows(self, width: int, available: int) -> int:
        """The number of rows that the text needs, up to the available ones; 0 while closed."""
        raise NotImplementedError

    def draw(self, width: int, height: int) -> Sequence[Row]:
        """At most `height` rows."""
        raise NotImplementedError

    def _bindings(self) -> KeyBindings:
        raise NotImplementedError

    def is_focusable(self) -> bool:
        return True

    def get_key_bindings(self) -> KeyBindingsBase:
        return self._keys

    def preferred_height(
        self,
        width: int,
        max_available_height: int,
        wrap_lines: bool,  # noqa: FBT001 - prompt-toolkit's signature
        get_line_prefix: GetLinePrefixCallable | None,
    ) -> int:
        """The rows that the panel wants, as prompt-toolkit asks for them."""
        free_rows = self._app().output.get_size().rows - self.rows_around
        return self.needed_rows(width, min(max_available_height, free_rows))

    def create_content(self, width: int, height: int) -> UIContent:
        """The rows as prompt-toolkit takes them: it reads the sequences that Rich has written."""
        text = Text("\n").join(Text.assemble(*row) for row in self.draw(width, height))
        painted = self._painter.paint(Piece(text, soft_wrap=True), width).rstrip("\n")
        lines = list(split_lines(to_formatted_text(ANSI(painted))))
        return UIContent(lambda i: lines[i], line_count=len(lines), show_cursor=False)

    def _focus(self, window: Window) -> None:
        self._app().layout.focus(window)


_STEPS = {"up": -1, "s-tab": -1, "down": 1, "tab": 1}
"""Keys that mark another line."""


class QuestionPanel(_Panel):
    """Shows a `Dialog` while one is open; typed text goes to the prompt."""

    rows_around = 2  # the blank line and the status

    def __init__(
        self,
        painter: Painter,
        prompt: Prompt,
        prompt_window: Window,
        app: Callable[[], Application[None]],
    ) -> None:
        super().__init__(painter, prompt_window, app)
        self._prompt = prompt
        self._dialog: Dialog | None = None
        self._frame = Frame([])
        """What was drawn last."""
        self._answer: asyncio.Future[Answer] | None = None
        """What `ask` waits for."""

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self._dialog is not None

    async def ask(self, question: Question) -> Answer:
        """Show `question` until it is answered; a prompt with text keeps the keys."""
        self._dialog = Dialog(question, unicode=self._unicode)
        self._answer = asyncio.get_running_loop().create_future()
        if not self._prompt.text:  # otherwise the user is typing a message
            self._focus(self.window)
        self._app().invalidate()
        try:
            return await self._answer
        finally:
            self._dialog = self._answer = None  # also if the turn was stopped
            self._focus(self._prompt_window)
            self._app().invalidate()

    def before_drawing(self, _app: Application[None]) -> None:
        """Return the keys to the question once the text in the prompt was sent."""
        if self._dialog and self._is_beside_prompt() and not self._prompt.text:
            self._focus(self.window)
            self._dialog.disturb(SENT)

    def bind_return_keys(self, keys: KeyBindings) -> None:
        """Add the keys that lead from the prompt back to a question, if there is one."""
        can_return = NO_MENU & Condition(self._is_beside_prompt)
        for key, step in _STEPS.items():
            bind(keys, key, partial(self._move, step), when=can_return)
        for key, turn in {"pageup": Pager.back, "pagedown": Pager.forward}.items():
            bind(keys, key, partial(self._page, turn), when=can_return)

    def _is_beside_prompt(self) -> bool:
        """Whether there is a question while the prompt has the keys."""
        return self.is_open and not self._app().layout.has_focus(self.window)

    def _move(self, step: int) -> None:
        """Return to the question, with the next or the previous line marked."""
        self._focus(self.window)
        self._act(lambda dialog: dialog.move(step))

    def drawn(self, _app: Application[None]) -> None:
        """Note that the question is visible; keys that were pressed before are not answers."""
        dialog = self._dialog
        if dialog is None:
            return
        if not dialog.is_visible:  # it is now drawn for the first time
            _take_waiting_keys(self._app())  # before it counts as visible
        dialog.note_drawn(end=self._frame.end, legible=self._frame.legible)

    def _page(self, turn: Callable[[Pager], None]) -> None:
        """Return to the question, with another part of its text."""
        self._focus(self.window)
        self._act(lambda dialog: dialog.page(turn))

    def needed_rows(self, width: int, available: int) -> int:
        return preferred_rows(self._dialog, width, available) if self._dialog else 0

    def draw(self, width: int, height: int) -> Sequence[Row]:
        """Draw into exactly the available rows, so that all drawn text is visible."""
        if self._dialog is None:
            return []
        focused = self._app().layout.has_focus(self.window)
        sign = self._painter.glyphs.user
        self._frame = lay_out(self._dialog, sign, focused=focused, width=width, height=height)
        return self._frame.rows

    def _bindings(self) -> KeyBindings:
        """Keys that move and page; Enter chooses, and any other text may be typing."""
        keys = KeyBindings()
        for key, step in _STEPS.items():
            bind(keys, key, partial(self._move, step))
        turns = {
            "pageup": Pager.back,
            "left": Pager.back,
            "pagedown": Pager.forward,
            "right": Pager.forward,
            "home": Pager.begin,
            "end": Pager.end,
        }
        for key, turn in turns.items():
            bind(keys, key, partial(self._page, turn))

        @keys.add("enter")
        def _(_event: KeyPressEvent) -> None:
            self._act(Dialog.enter)

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            self._act(Dialog.disturb)
            self._put_into_prompt(event.data.replace("\r\n", "\n").replace("\r", "\n"))

        @keys.add(Keys.Any)
        def _(event: KeyPressEvent) -> None:
            if event.data.isprintable():
                self._type(event.data, burst=more_follows(event))
            else:  # a key such as F5
                self._act(Dialog.disturb)

        return keys

    def _type(self, character: str, *, burst: bool) -> None:
        """Handle a character; if it is typing, it and what was typed before go to the prompt."""
        if self._dialog is not None:
            self._put_into_prompt(self._dialog.type(character, burst=burst))

    def _act(self, action: Callable[[Dialog], None]) -> None:
        """Do what a key means, and return the answer if that was one."""
        if self._dialog is None:
            return
        action(self._dialog)
        self._settle()

    def _settle(self) -> None:
        """Return the answer, or check again once the delay of a choice is over."""
        dialog, answer = self._dialog, self._answer
        if dialog is None or answer is None or answer.done():  # done: `ask` has not gone on yet
            return
        if dialog.answer is not None:
            answer.set_result(dialog.answer)
        elif dialog.is_waiting:
            # a key that begins a sequence arrives later by the time to wait for its rest
            delay = dialog.missing_seconds() + ESCAPE_SECONDS
            asyncio.get_running_loop().call_later(delay, self._carry_out, dialog)

    def _carry_out(self, dialog: Dialog) -> None:
        """Make the choice of `dialog` the answer, unless a key has come meanwhile."""
        if dialog is not self._dialog:  # it is closed already
            return
        if input_waiting(self._app().input):  # a key that withdraws it, not read yet
            asyncio.get_running_loop().call_later(ESCAPE_SECONDS, self._carry_out, dialog)
        # a choice that was made anew has a call of its own, when its time is over
        elif dialog.is_waiting and dialog.missing_seconds() <= 0:
            dialog.carry_out()
            self._settle()

    def _put_into_prompt(self, text: str) -> None:
        """Add text to the prompt, which has the keys then."""
        if text:
            self._prompt.buffer.insert_text(text)
            self._focus(self._prompt_window)


def _take_waiting_keys(app: Application[None]) -> None:
    """Handle the keys that the terminal already has."""
    while not app.input.closed and input_waiting(app.input):
        keys = app.input.read_keys()
        if not keys:  # only the beginning of a sequence, or the end of the input
            return
        app.key_processor.feed_multiple(keys)
        app.key_processor.process_keys()


class PartsPanel(_Panel):
    """Shows a `Checklist` while one is open."""

    rows_around = 2  # the blank line and the status

    def __init__(
        self, painter: Painter, prompt_window: Window, app: Callable[[], Application[None]]
    ) -> None:
        super().__init__(painter, prompt_window, app)
        self._checklist: Checklist | None = None
        self._answer: asyncio.Future[tuple[int, ...] | None] | None = None
        """What `ask` waits for."""
        self._height = 0

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self._checklist is not None

    async def ask(self, question: Question) -> tuple[int, ...] | None:
        """Show the parts of a question until the user has chosen; None leads back to it."""
        self._checklist = Checklist(question.parts)
        self._answer = asyncio.get_running_loop().create_future()
        self._focus(self.window)
        self._app().invalidate()
        try:
            return await self._answer
        finally:
            self._checklist = self._answer = None
            self._focus(self._prompt_window)
            self._app().invalidate()

    def needed_rows(self, width: int, available: int) -> int:
        return len(self._rows(width, available))

    def draw(self, width: int, height: int) -> Sequence[Row]:
        self._height = height
        return self._rows(width, height)

    def _rows(self, width: int, height: int) -> Sequence[Row]:
        sign = self._painter.glyphs.user
        return self._checklist.rows(sign, width, height) if self._checklist else []

    def _act(self, action: Callable[[Checklist], None]) -> None:
        """Do what a key means, and return the answer if that was one."""
        if self._checklist is not None:
            action(self._checklist)
            if self._checklist.answer is not None:
                self._end(self._checklist.answer)

    def _end(self, answer: tuple[int, ...] | None = None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _bindings(self) -> KeyBindings:
        """Keys that mark, choose and unfold; Enter accepts, and Esc leads back."""
        keys = KeyBindings()
        actions: dict[str, Callable[[Checklist], None]] = {
            " ": Checklist.toggle,
            "a": Checklist.toggle_all,
            "right": Checklist.unfold,
            "left": Checklist.fold,
            "enter": Checklist.accept,
            "pagedown": lambda checklist: checklist.page(self._height // 2),
            "pageup": lambda checklist: checklist.page(-self._height // 2),
        }
        for key, step in _STEPS.items():
            actions[key] = partial(Checklist.move, step=step)
        for key, action in actions.items():
            bind(keys, key, partial(self._act, action))
        bind(keys, "escape", self._end)

        @keys.add(Keys.Any)
        def _(_event: KeyPressEvent) -> None:
            """No other key is typing."""

        return keys


RESULT_KEYS = "Up Down PgUp PgDn g G, n p: other results, Esc closes"


class ResultPanel(_Panel):
    """Shows one of `results` while it is open; it opens with the last one."""

    rows_around = 4  # the prompt, the status and blank lines

    def __init__(
        self,
        painter: Painter,
        prompt_window: Window,
        app: Callable[[], Application[None]],
        results: Callable[[], Sequence[FullResult]],
    ) -> None:
        super().__init__(painter, prompt_window, app)
        self._results = results
        self._index = 0
        """The place of the shown result in `_listed`."""
        self._listed: Sequence[FullResult] = ()
        """The results when it was opened."""
        self._pager: Pager | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is shown."""
        return self._pager is not None

    def toggle(self) -> None:
        """Open it with the last result, or close it; without results nothing happens."""
        if self.is_open:
            self.close()
            return
        self._listed = tuple(self._results())  # new ones must not change the numbers
        if self._listed:
            self._open(len(self._listed) - 1)
            self._focus(self.window)

    def close(self) -> None:
        """Return to the prompt."""
        if self.is_open:
            self._pager, self._listed = None, ()
            self._focus(self._prompt_window)
            self._app().invalidate()

    def needed_rows(self, width: int, available: int) -> int:
        return min(available, self._pager.height(width, available) + 1) if self._pager else 0

    def draw(self, width: int, height: int) -> Sequence[Row]:
        """Draw a page, and below it the place and the keys."""
        if self._pager is None:
            return []
        rows = self._pager.rows(width, max(1, height - 1))  # one row is for the place
        number = f"result {self._index + 1} of {len(self._listed)}"
        place = f"  {number}, {self._pager.position()} ({RESULT_KEYS})"
        first_row, *_others = fold([(place, "warn")], width)  # the rest is cut
        return [*rows, first_row]

    def _open(self, index: int) -> None:
        """Show the result with this index, from its beginning."""
        result = self._listed[index]
        lines = [fact(result.title, "bold"), *text_lines(result.text)]
        self._index, self._pager = index, Pager(lines, unicode=self._unicode)
        self._app().invalidate()

    def _open_other(self, step: int) -> None:
        """Open the next result, or the previous one with -1; at the ends nothing happens."""
        index = self._index + step
        if 0 <= index < len(self._listed):
            self._open(index)

    def _page(self, turn: Callable[[Pager], None]) -> None:
        """Show another part of the result."""
        if self._pager is not None:
            turn(self._pager)
            self._app().invalidate()

    def _bindings(self) -> KeyBindings:
        """Keys that page, show another result, or close the panel."""
        keys = KeyBindings()
        turns = {
            "up": Pager.up,
            "down": Pager.down,
            "pageup": Pager.back,
            "pagedown": Pager.forward,
            " ": Pager.forward,
            "home": Pager.begin,
            "g": Pager.begin,
            "end": Pager.end,
            "G": Pager.end,
        }
        for key, turn in turns.items():
            bind(keys, key, partial(self._page, turn))
        for key, step in {"n": 1, "right": 1, "p": -1, "left": -1}.items():
            bind(keys, key, partial(self._open_other, step))
        for key in ("escape", "q"):
            bind(keys, key, self.close)
        return keys
