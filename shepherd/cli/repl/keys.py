"""The actions of keys."""

import os
import select
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from prompt_toolkit import filters
from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.input import Input
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from shepherd.cli.render.surface import Actions
from shepherd.cli.repl.completion import choose_command, chose_file
from shepherd.cli.repl.prompt import Prompt

_AS_TYPED: dict[str, KeyPress] = {
    Keys.ControlJ: KeyPress(Keys.ControlM, "\r"),
    Keys.ControlAt: KeyPress(Keys.ControlD, "\x04"),
}
"""Enter and Ctrl+D, as Linux reports them in its own line editing."""

NO_MENU = ~filters.has_completions & ~filters.is_searching
"""Neither a menu nor the search in the history has the keys."""

TWICE_SECONDS = 1.0
"""Two presses of Esc within this time belong together."""

_WITHOUT_BRACKETED_PASTE = ("linux", "vt", "ansi", "cons25", "eterm", "screen")


@contextmanager
def reading_keys(source: Input) -> Generator[None]:
    """Switches the terminal to keys in this context; lines that were typed before come first."""
    edits_lines = _edits_lines(source)  # asked before `raw_mode` changes it
    with source.raw_mode():
        typed_before: list[KeyPress] = []
        while edits_lines and not source.closed and input_waiting(source):
            typed_before += source.read_keys()
        store_typeahead(source, [_AS_TYPED.get(key.key, key) for key in typed_before])
        yield


def input_waiting(source: Input) -> bool:
    """Whether a terminal has input to read."""
    try:
        descriptor = source.fileno()
        readable, _, _ = select.select([descriptor], [], [], 0)
        return os.isatty(descriptor) and bool(readable)
    except (NotImplementedError, OSError, ValueError):  # the input has no file, or it is closed
        return False


def marks_pastes(env: Mapping[str, str]) -> bool:
    """Whether the terminal marks pastes (GNU screen 4 does not, tmux does)."""
    return "TMUX" in env or not env.get("TERM", "").startswith(_WITHOUT_BRACKETED_PASTE)


def _edits_lines(source: Input) -> bool:
    """Whether the terminal is in its own line editing, which changes Enter and Ctrl+D."""
    try:
        input_flags, _, _, local_flags, *_ = termios.tcgetattr(source.fileno())
    except (NotImplementedError, OSError, ValueError, termios.error):  # it is no terminal
        return False
    return bool(input_flags & termios.ICRNL and local_flags & termios.ICANON)


def prompt_keys(prompt: Prompt, actions: Actions) -> KeyBindings:
    """Keys while the user types: Enter sends; Alt+Enter, Ctrl+J or a backslash break the line.

    While the model works, Tab sends into the running turn, and Up takes a waiting message back.
    """
    keys = KeyBindings()
    can_steer = filters.Condition(lambda: actions.busy and not completes_path(prompt.buffer))
    can_take_back = filters.Condition(  # in a lower row, Up goes to the row above
        lambda: actions.has_waiting and prompt.buffer.document.cursor_position_row == 0
    )

    @keys.add("tab", filter=NO_MENU & can_steer)
    def _(event: KeyPressEvent) -> None:
        if prompt.is_bursting and more_follows(event):  # a paste that the terminal does not mark
            event.current_buffer.insert_text("\t")
        else:
            actions.steer(prompt.take())

    bind(keys, "up", actions.take_back, when=NO_MENU & can_take_back)

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if prompt.is_bursting and more_follows(event):  # a paste, as above
            buffer.insert_text("\n")
        elif buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        elif chose_file(buffer):  # Enter accepts it; a second one sends
            buffer.complete_state = None
        else:
            choose_command(buffer)  # the marked one instead of its beginning
            actions.submit(prompt.take())

    _bind_pastes(keys, prompt)

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _bind_pastes(keys: KeyBindings, prompt: Prompt) -> None:
    """Add the keys of pastes, and Tab in the menu."""
    is_after_fold = filters.Condition(lambda: bool(prompt.fold_before_cursor()))

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        prompt.paste(event.data.replace("\r\n", "\n").replace("\r", "\n"))

    bind(keys, "tab", prompt.unfold, when=is_after_fold)
    bind(keys, "backspace", prompt.delete_fold, when=is_after_fold)

    @keys.add("tab", filter=filters.has_completions)
    def _(event: KeyPressEvent) -> None:
        if not choose_command(event.current_buffer):
            event.current_buffer.complete_next()


def global_keys(prompt: Prompt, actions: Actions, is_asking: Callable[[], bool]) -> KeyBindings:
    """Keys that work everywhere: Ctrl+C, Esc, Ctrl+D, Ctrl+Z and Shift+Tab."""
    keys = KeyBindings()

    @keys.add("c-c", filter=~filters.is_searching)
    @keys.add("<sigint>")
    def _(_event: KeyPressEvent) -> None:
        if prompt.text and not is_asking():
            prompt.take()  # only clears the prompt; the history has the text
        else:
            actions.stop()

    _bind_escape(keys, prompt, actions, is_asking)
    bind(keys, "s-tab", actions.turn_mode, when=NO_MENU & ~filters.Condition(is_asking))
    bind(keys, "c-z", lambda: get_app().suspend_to_background())
    bind(keys, "c-d", actions.leave, when=filters.Condition(lambda: not prompt.text))
    return keys


def _bind_escape(
    keys: KeyBindings, prompt: Prompt, actions: Actions, is_asking: Callable[[], bool]
) -> None:
    """Add Esc: it closes the completions or stops the work; twice, it goes back to a message."""
    first_pressed_at = -TWICE_SECONDS

    def is_idle() -> bool:
        return not (prompt.text or is_asking() or actions.busy)

    def press() -> None:
        """Handle one press, by what there is to close or to stop."""
        nonlocal first_pressed_at
        now = time.monotonic()
        is_second = now - first_pressed_at < TWICE_SECONDS
        first_pressed_at = -TWICE_SECONDS  # a press with an effect is not the first of two
        if prompt.buffer.complete_state is not None:
            prompt.buffer.complete_state = None
        elif actions.busy:
            actions.stop()
        elif is_idle() and is_second:
            actions.rewind()
        elif is_idle():
            first_pressed_at = now

    # a key that follows at once makes it Alt+key
    is_alone = filters.Condition(lambda: not get_app().key_processor.input_queue)
    # in vi's mode, Esc leaves the insertion unless there is something to stop
    busy = filters.Condition(lambda: actions.busy)
    has_effect = busy | filters.has_completions | filters.emacs_mode
    bind(keys, "escape", press, when=is_alone & ~filters.is_searching & has_effect)
    # two presses that arrive together
    both_arrived = filters.Condition(is_idle) & ~filters.is_searching
    bind(keys, ("escape", "escape"), actions.rewind, when=both_arrived)


def bind(
    keys: KeyBindings,
    key: str | tuple[str, ...],
    action: Callable[[], None],
    *,
    when: filters.FilterOrBool = True,
) -> None:
    """Bind `key`, or several in a row, to `action`, before any other binding."""

    @keys.add(*((key,) if isinstance(key, str) else key), filter=when, eager=True)
    def _(_event: KeyPressEvent) -> None:
        action()


def completes_path(buffer: Buffer) -> bool:
    """Whether Tab may be meant for the completion of a command or a path, `/he` or `see @src`."""
    return buffer.text.startswith("/") or "@" in buffer.document.get_word_before_cursor(WORD=True)


def more_follows(event: KeyPressEvent) -> bool:
    """Whether more keys have arrived already."""
    return bool(event.key_processor.input_queue) or input_waiting(event.app.input)
