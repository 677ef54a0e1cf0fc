"""The screen and the renderer together, drawn into a terminal emulator."""

import asyncio
import io
import re
import select
from collections.abc import AsyncGenerator, Callable, Sequence
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

from shepherd.cli.approval.question import QUIET_SECONDS, Answer, Entry, Line, Question
from shepherd.cli.render.renderer import Renderer
from shepherd.cli.render.rows import RowWriter
from shepherd.cli.render.status import Status
from shepherd.cli.render.surface import Actions
from shepherd.cli.render.tool_view import FullResult
from shepherd.cli.render.views import AnswerView
from shepherd.cli.repl.completion import PromptCompleter
from shepherd.cli.repl.prompt import Prompt
from shepherd.cli.repl.screen import REDRAW_SECONDS, Screen
from shepherd.cli.repl.terminal import Attention, read_focus_events
from shepherd.cli.terminal.paint import Painter, Piece
from shepherd.events import Text, ToolResult
from shepherd.messages import ToolCall
from tests.cli_repl.texts import CUTS, MARKDOWN, split
from tests.examples import examples
from tests.patience import PATIENCE

COLUMNS, ROWS = 50, 12
SGR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Stage:
    screen: Screen
    renderer: Renderer
    sent: io.StringIO
    keys: PipeInput
    submitted: list[str]
    stopped: list[str]

    def display(self) -> list[str]:
        """The lines that are on the screen now."""
        emulator = pyte.Screen(COLUMNS, ROWS)
        emulator.set_mode(modes.LNM)
        pyte.Stream(emulator).feed(self.sent.getvalue())
        return [line.rstrip() for line in emulator.display if line.strip()]

    def shown(self) -> list[str]:
        """All lines, scrolled off or not, as a terminal shows what was sent; no empty ones."""
        emulator = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
        emulator.set_mode(modes.LNM)
        pyte.Stream(emulator).feed(self.sent.getvalue())
        scrolled = ["".join(line[x].data for x in range(COLUMNS)) for line in emulator.history.top]
        return [line.rstrip() for line in [*scrolled, *emulator.display] if line.strip()]

    async def drawn(self) -> list[str]:
        """What is shown when nothing is left to be drawn."""
        await _until(lambda: self.screen.app.render_counter > 0 and self.screen.is_settled)
        return self.shown()

    async def press(self, keys: str) -> None:
        """Press keys together; what they do is done then."""
        self.keys.send_text(keys)
        await _until(lambda: not select.select([self.keys.fileno()], [], [], 0)[0])


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def _stage(*, alerts: bool = False) -> AsyncGenerator[Stage]:
    painter = Painter()
    submitted: list[str] = []
    sent = io.StringIO()
    stopped: list[str] = []

    class StageActions(Actions):
        """Keeps what is sent and stopped, and shows what the renderer has."""

        @property
        def busy(self) -> bool:
            return bool(submitted)

        def submit(self, text: str) -> None:
            submitted.append(text)

        def stop(self) -> None:
            stopped.append("stop")

        def live(self) -> Sequence[Piece]:
            return renderer.live()

        def status_line(self, width: int) -> str:
            return "the status"

        def held(self) -> str:
            return renderer.held()

        def results(self) -> Sequence[FullResult]:
            return renderer.results.all

    prompt = Prompt(InMemoryHistory(), PromptCompleter([], Path.cwd()), "›")
    with create_pipe_input() as keys:
        output = Vt100_Output(sent, lambda: Size(rows=ROWS, columns=COLUMNS), enable_cpr=False)
        attention = Attention(output, {}, alerts=alerts)
        screen = Screen(painter, prompt, StageActions(), attention, input=keys)
        renderer = Renderer(screen, Status())
        stage = Stage(screen, renderer, sent, keys, submitted, stopped)
        running = asyncio.ensure_future(screen.run())
        await stage.drawn()
        try:
            yield stage
        finally:
            screen.leave()
            with suppress(asyncio.CancelledError):
                await running


def _expected(text: str) -> list[str]:
    painter = Painter()
    view = AnswerView(painter)
    shown = RowWriter(painter).write([*view.feed(text), *view.finish()], COLUMNS)
    emulator = pyte.HistoryScreen(COLUMNS, 2000, history=10)
    emulator.set_mode(modes.LNM)
    pyte.Stream(emulator).feed(shown)
    return [line.rstrip() for line in emulator.display if line.strip()]


def test_what_waits_for_the_prompt_begins_when_it_is_there() -> None:
    """A model's imports would delay it."""

    async def waited() -> None:
        actions = Actions()
        prompt = Prompt(InMemoryHistory(), PromptCompleter([], Path.cwd()), "›")
        sent = io.StringIO()
        with create_pipe_input() as keys:
            output = Vt100_Output(sent, lambda: Size(rows=ROWS, columns=COLUMNS), enable_cpr=False)
            screen = Screen(Painter(), prompt, actions, Attention(output, {}), input=keys)
            drawn = asyncio.ensure_future(screen.drawn())
            await asyncio.sleep(0.01)
            assert not drawn.done()
            running = asyncio.ensure_future(screen.run())
            await asyncio.wait_for(drawn, PATIENCE)
            assert "›" in sent.getvalue()
            screen.leave()
            await running

    asyncio.run(waited())


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MARKDOWN, CUTS, st.text("xyz", max_size=5))
def test_the_scrollback_ends_up_as_if_written_at_once(
    text: str, cuts: list[int], typed: str
) -> None:
    async def streamed() -> list[str]:
        async with _stage() as stage:
            for chunk in split(text, cuts):
                stage.renderer(Text(chunk))
                await stage.press(typed[:1])
                await asyncio.sleep(REDRAW_SECONDS * 1.2)  # often, it is drawn between
            stage.renderer.end_turn()
            *lines, prompt, status = await stage.drawn()
            assert prompt.startswith("›")
            assert status == "the status"
            return lines

    assert asyncio.run(streamed()) == _expected(text)


async def test_a_tail_higher_than_the_screen_stays_within_it() -> None:
    async with _stage() as stage:
        stage.renderer(Text("word " * 500))
        shown = await stage.drawn()
        assert " ".join(shown[:-4]) == " ".join(["word"] * (len(" ".join(shown[:-4])) // 5 + 1))
        assert shown[-1] == "the status"


async def test_keys_become_messages() -> None:
    async with _stage() as stage:
        await stage.press("hello\x1b\rthere\r")
        assert stage.submitted == ["hello\nthere"]
        await stage.press("left over")
        stage.screen.restore("not sent")
        assert stage.screen.prompt.text == "not sent\nleft over"


QUESTION = Question(
    "Really?", "because", (Line("the text"),), (Entry(Answer.ONCE), Entry(Answer.NO))
)


@asynccontextmanager
async def _question(stage: Stage) -> AsyncGenerator[asyncio.Future[Answer]]:
    asking = asyncio.ensure_future(stage.screen.ask(QUESTION))
    await asyncio.sleep(0)
    assert any("Really?" in line for line in await stage.drawn())
    yield asking


async def test_a_question_takes_only_its_keys() -> None:
    async with _stage() as stage, _question(stage) as asking:
        for key in ("\x1b[6~", "n", "\x1b[A", "\x7f", "\x1b[B"):
            await stage.press(key)
        assert not asking.done()
        await stage.press("\r")
        assert await asyncio.wait_for(asking, PATIENCE) is Answer.NO
        assert not any("Really?" in line for line in await stage.drawn())


async def test_a_question_takes_no_key_of_the_one_before_it() -> None:
    """As that of a command in the background, which ends while somebody types a secret."""
    async with _stage() as stage:
        screen = stage.screen
        secret = asyncio.ensure_future(screen.ask_secret("key: "))
        await _until(lambda: "key:" in "".join(stage.display()))
        asking = asyncio.ensure_future(screen.ask(QUESTION))
        await asyncio.sleep(0)
        await stage.press("sk-y")
        text = asyncio.ensure_future(screen.ask_text("name: "))
        await stage.press("\r")
        assert await asyncio.wait_for(secret, PATIENCE) == "sk-y"
        assert screen.prompt.text == ""
        await _until(lambda: "Really?" in "".join(stage.display()))
        assert "name:" not in "".join(stage.display())
        await stage.press("\x1b[B")
        await stage.press("\r")
        assert await asyncio.wait_for(asking, PATIENCE) is Answer.NO
        await _until(lambda: "name:" in "".join(stage.display()))
        await stage.press("me\r")
        assert await asyncio.wait_for(text, PATIENCE) == "me"
        assert "sk-y" not in stage.sent.getvalue()


async def test_a_yes_is_carried_out_when_no_key_follows() -> None:
    async with _stage() as stage, _question(stage) as asking:
        await asyncio.sleep(QUIET_SECONDS)
        await stage.press("\r")
        assert not asking.done()
        await stage.press("x")
        await asyncio.sleep(2 * QUIET_SECONDS)
        assert not asking.done()
        assert stage.screen.prompt.text == "x"
        await stage.press("\x7f")  # the prompt is empty again: the question has the keys
        await stage.drawn()
        await asyncio.sleep(QUIET_SECONDS)
        await stage.press("\r")
        assert await asyncio.wait_for(asking, PATIENCE) is Answer.ONCE


async def test_a_question_rings_while_the_terminal_has_no_focus() -> None:
    read_focus_events()
    async with _stage(alerts=True) as stage:
        for keys, rings in (("\x1b[O", 1), ("\x1b[I", 0)):
            await stage.press(keys)
            before = stage.sent.getvalue().count("\a")
            async with _question(stage) as asking:
                asking.cancel()
            assert stage.sent.getvalue().count("\a") - before == rings
            assert not stage.screen.prompt.text


async def test_a_question_that_is_cancelled_leaves_the_prompt_as_it_was() -> None:
    async with _stage() as stage, _question(stage) as asking:
        asking.cancel()
        await asyncio.wait([asking])
        await stage.press("typed")
        assert "› typed" in await stage.drawn()


async def test_a_line_typed_into_a_question_is_sent_and_no_answer() -> None:
    async with _stage() as stage, _question(stage) as asking:
        await stage.press("yes, later\r")
        assert stage.submitted == ["yes, later"]
        assert not asking.done()
        await stage.drawn()
        await stage.press("n")
        await stage.press("\r")
        assert await asyncio.wait_for(asking, PATIENCE) is Answer.NO


async def test_text_in_the_prompt_keeps_the_keys_until_an_arrow_is_pressed() -> None:
    async with _stage() as stage:
        await stage.press("half a ")
        async with _question(stage) as asking:
            await stage.press("n")
            assert stage.screen.prompt.text == "half a n"
            await stage.press("\x1b[B")
            await stage.press("\r")
            assert await asyncio.wait_for(asking, PATIENCE) is Answer.NO
            assert stage.screen.prompt.text == "half a n"


async def _with_results(stage: Stage) -> None:
    for call_id, lines in (("1", 3), ("2", 40)):
        stage.renderer(ToolCall(call_id, "execute_command", {"command": f"seq {lines}"}))
        text = "\n".join(f"line {number}" for number in range(1, lines + 1)) + "\x1b[2J"
        stage.renderer(ToolResult(call_id, "execute_command", text))
    await stage.drawn()


async def _until_shown(stage: Stage, *texts: str) -> list[str]:
    await _until(lambda: all(text in "\n".join(stage.display()) for text in texts))
    return stage.display()


async def test_ctrl_o_shows_whole_results_while_the_model_goes_on() -> None:
    async with _stage() as stage:
        await stage.press("\x0f")
        assert "result" not in "\n".join(await stage.drawn())
        await _with_results(stage)
        assert "Ctrl+O shows all" in "\n".join(stage.shown())
        await stage.press("\x0f")
        shown = await _until_shown(stage, "result 2 of 2", "execute_command seq 40")
        assert len(shown) <= ROWS
        stage.renderer(Text("The model goes on.\n\nMore"))
        await _until(lambda: "The model goes on." in "\n".join(stage.shown()))
        await stage.press("G")
        await _until_shown(stage, "line 40<U+001B>[2J", "100 %")
        await stage.press("\x1b[A")
        await _until_shown(stage, "line 39")
        await stage.press("p")
        await _until_shown(stage, "result 1 of 2", "line 3")
        await stage.press("q")
        await _until_shown(stage, "\u203a", "the status")
        await _until(lambda: "result 1" not in "\n".join(stage.display()))
        await stage.press("typed")
        await _until_shown(stage, "\u203a typed")


async def test_esc_closes_the_results_and_stops_nothing() -> None:
    async with _stage() as stage:
        await _with_results(stage)
        await stage.press("\x0f")
        await _until_shown(stage, "result 2 of 2")
        stage.submitted.append("a turn that Esc would stop")
        await stage.press("\x1b")
        await _until(lambda: "result 2" not in "\n".join(stage.display()))
        assert stage.stopped == []
