"""The screen and the renderer together, drawn into a terminal emulator."""

import asyncio
import io
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyte
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output
from pyte import modes

from shepherd.cli.repl.complete import PromptCompleter
from shepherd.cli.repl.paint import Painter
from shepherd.cli.repl.prompt import Prompt
from shepherd.cli.repl.render import Renderer
from shepherd.cli.repl.screen import REDRAW_SECONDS, Screen
from shepherd.cli.repl.status import Status
from shepherd.cli.repl.surface import Actions
from shepherd.cli.repl.text_view import AnswerView
from shepherd.events import CallbackEvent
from tests.cli_repl.texts import CUTS, MARKDOWN, split

COLUMNS, ROWS = 50, 12
SGR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Stage:
    screen: Screen
    renderer: Renderer
    sent: io.StringIO
    keys: PipeInput
    submitted: list[str]

    def shown(self) -> list[str]:
        """All lines, scrolled off or not, as a terminal shows what was sent; no empty ones."""
        emulator = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
        emulator.set_mode(modes.LNM)
        pyte.Stream(emulator).feed(self.sent.getvalue())
        scrolled = ["".join(line[x].data for x in range(COLUMNS)) for line in emulator.history.top]
        return [line.rstrip() for line in [*scrolled, *emulator.display] if line.strip()]


@asynccontextmanager
async def _stage() -> AsyncGenerator[Stage]:
    painter = Painter()
    submitted: list[str] = []
    sent = io.StringIO()
    actions = Actions(submitted.append, lambda: None, lambda: None, lambda: False)
    prompt = Prompt(InMemoryHistory(), PromptCompleter([], Path.cwd()), "›")
    with create_pipe_input() as keys:
        output = Vt100_Output(sent, lambda: Size(rows=ROWS, columns=COLUMNS), enable_cpr=False)
        screen = Screen(painter, prompt, actions, output=output, input=keys)
        renderer = Renderer(screen, Status(), "ansi_dark")
        screen.live = renderer.live
        screen.status = lambda _width: "the status"
        running = asyncio.ensure_future(screen.run())
        await asyncio.sleep(0.01)
        try:
            yield Stage(screen, renderer, sent, keys, submitted)
        finally:
            screen.leave()
            with suppress(asyncio.CancelledError):
                await running


def _expected(text: str) -> list[str]:
    painter = Painter()
    view = AnswerView("ansi_dark", styled=True)
    shown = painter.paint_all([*view.feed(text), *view.finish()], COLUMNS)
    emulator = pyte.HistoryScreen(COLUMNS, 2000, history=10)
    emulator.set_mode(modes.LNM)
    pyte.Stream(emulator).feed(shown)
    return [line.rstrip() for line in emulator.display if line.strip()]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MARKDOWN, CUTS, st.text("xyz", max_size=5))
def test_the_scrollback_ends_up_as_if_written_at_once(
    text: str, cuts: list[int], typed: str
) -> None:
    async def streamed() -> list[str]:
        async with _stage() as stage:
            for chunk in split(text, cuts):
                stage.renderer(CallbackEvent.CONTENT, chunk, "", "")
                stage.keys.send_text(typed[:1])
                await asyncio.sleep(REDRAW_SECONDS * 1.2)
            stage.renderer.turn_over()
            await asyncio.sleep(REDRAW_SECONDS * 2)
            *lines, prompt, status = stage.shown()
            assert prompt.startswith("›")
            assert status == "the status"
            return lines

    assert asyncio.run(streamed()) == _expected(text)


async def test_a_tail_higher_than_the_screen_stays_within_it() -> None:
    async with _stage() as stage:
        stage.renderer(CallbackEvent.CONTENT, "word " * 500, "", "")
        await asyncio.sleep(REDRAW_SECONDS * 2)
        shown = stage.shown()
        assert len(shown) < ROWS
        assert shown[-1] == "the status"


async def test_keys_become_messages() -> None:
    async with _stage() as stage:
        await asyncio.sleep(0.6)
        stage.keys.send_text("hello\x1b\rthere\r")
        await asyncio.sleep(0.2)
        assert stage.submitted == ["hello\nthere"]
        stage.keys.send_text("left over")
        await asyncio.sleep(0.05)
        stage.screen.restore("not sent")
        assert stage.screen.prompt.text == "not sent\nleft over"


async def test_a_question_takes_only_its_keys() -> None:
    async with _stage() as stage:
        asking = asyncio.ensure_future(stage.screen.ask("Really?", ["y", "n"]))
        await asyncio.sleep(REDRAW_SECONDS * 2)
        assert "Really?" in stage.shown()
        for key in "qx\r":
            stage.keys.send_text(key)
            await asyncio.sleep(0.02)
        assert not asking.done()
        stage.keys.send_text("y")
        assert await asyncio.wait_for(asking, 2) == "y"
        await asyncio.sleep(REDRAW_SECONDS * 2)
        assert "Really?" not in stage.shown()


async def test_a_question_that_is_cancelled_leaves_the_prompt_as_it_was() -> None:
    async with _stage() as stage:
        asking = asyncio.ensure_future(stage.screen.ask("Really?", ["y", "n"]))
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.wait([asking])
        stage.keys.send_text("typed")
        await asyncio.sleep(REDRAW_SECONDS * 2)
        assert "› typed" in stage.shown()


async def test_a_line_typed_into_a_question_is_sent_and_no_answer() -> None:
    async with _stage() as stage:
        asking = asyncio.ensure_future(stage.screen.ask("May I?", ["y", "n"]))
        await asyncio.sleep(0.1)
        stage.keys.send_text("yes, later\r")
        await asyncio.sleep(0.2)
        assert stage.submitted == ["yes, later"]
        assert not asking.done()
        stage.keys.send_text("y")
        assert await asking == "y"
