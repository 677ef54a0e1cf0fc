"""What the renderer shows of a turn while it runs: text as it arrives, running calls, the plan."""

from collections.abc import Sequence

from rich.text import Text

from shepherd.cli.render.inline import InlineStream
from shepherd.cli.render.markdown_flow import MarkdownFlow
from shepherd.cli.terminal import paint
from shepherd.cli.terminal.sanitize import indented_line, one_line, sanitize, sanitize_chunk
from shepherd.events import Notice, PlanStep, PlanUpdate, StepStatus, Topic
from shepherd.tools.plan import ASCII_SIGNS, MAX_STEP


class _PlainLines:
    """Text as it is, line by line."""

    def __init__(self) -> None:
        self.held = ""
        """The last line, which has no newline yet."""

    def feed(self, text: str) -> list[paint.Ink]:
        """Read text; returns the lines that it ends."""
        *lines, self.held = (self.held + text).split("\n")
        return [paint.Piece(Text(line), soft_wrap=True) for line in lines]

    def finish(self) -> list[paint.Ink]:
        """Return the last line, and begin a new text."""
        line, self.held = self.held, ""
        return [paint.Piece(Text(line), soft_wrap=True)] if line.strip() else []


class AnswerView:
    """Streams Markdown; without styles, its source."""

    def __init__(self, painter: paint.Painter) -> None:
        flow = MarkdownFlow(painter.code_theme, painter.glyphs)
        self._stream = flow if painter.styled else _PlainLines()
        self._has_text = False
        """Whether it has returned a part of the text."""

    @property
    def held(self) -> str:
        """The text that can't be shown in its final form yet."""
        return self._stream.held

    def feed(self, text: str) -> list[paint.Ink]:
        """Read text; returns its finished parts, after a blank line at the beginning."""
        text = sanitize_chunk(text)
        if not self._has_text and not self.held:  # blank lines at the beginning say nothing
            text = text.lstrip("\n")
        return self._after_blank_line(self._stream.feed(text))

    def finish(self) -> list[paint.Ink]:
        """Return the rest; the next text is a new one."""
        ink = self._after_blank_line(self._stream.finish())
        self._has_text = False
        return ink

    def _after_blank_line(self, ink: list[paint.Ink]) -> list[paint.Ink]:
        """The ink, after a blank line if it is the first of its text."""
        if not ink or self._has_text:  # only the first part follows other output
            return ink
        self._has_text = True
        return [paint.BLANK_LINE, *ink]


class ThinkingView:
    """Streams reasoning, dimmed and set in; `characters` counts it, also if it is hidden."""

    def __init__(self) -> None:
        self._words: InlineStream | None = None
        """The open line."""
        self.characters = 0

    @property
    def is_open(self) -> bool:
        """Whether there was reasoning since the last `finish`."""
        return self.characters > 0

    @property
    def held(self) -> str:
        """The end of the text, if it is the beginning of a word."""
        return self._words.held if self._words else ""

    def feed(self, text: str) -> Sequence[paint.Ink]:
        """Read text; returns its finished words."""
        text = sanitize_chunk(text)
        if not self.characters:  # blank lines at the beginning say nothing
            text = text.lstrip("\n")
        self.characters += len(text)
        return [item for line in text.splitlines(keepends=True) for item in self._flow(line)]

    def finish(self) -> Sequence[paint.Ink]:
        """Return the rest."""
        self.characters = 0
        return self._end_line()

    def _flow(self, line: str) -> Sequence[paint.Ink]:
        """The words of a line, or of a part of one, which has no newline."""
        if line == "\n" and self._words is None:
            return [paint.BLANK_LINE]
        ink = list[paint.Ink]()
        if self._words is None:  # a new line begins, with its indent
            self._words = InlineStream()
            ink.append(paint.Row(Text(paint.INDENT), Text(paint.INDENT)))
        ink += map(_dimmed, self._words.feed(line.removesuffix("\n")))
        return [*ink, *self._end_line()] if line.endswith("\n") else ink

    def _end_line(self) -> Sequence[paint.Ink]:
        words, self._words = self._words, None
        return list(map(_dimmed, words.finish())) if words else []


def _dimmed(piece: str) -> paint.Words:
    return paint.Words(Text(piece, style="dim italic"))


MAX_LINE = 400
MAX_TAIL_LINES = 5


class LiveCalls:
    """Keeps the last line of each sub-agent, and the last lines of each command, by call."""

    def __init__(self, glyphs: paint.Glyphs) -> None:
        self._glyphs = glyphs
        self._lines: dict[str, list[str]] = {}
        self.outputs: dict[str, str] = {}
        """What commands have printed so far, by call."""

    def take(self, notice: Notice) -> None:
        """Keep a notice of the topic TASK (a sub-agent's) or OUTPUT (a command's).

        Of a sub-agent, it is `· last line`, of a command `└ last lines`.
        """
        sign, lines = self._glyphs.dot, [one_line(notice.text, MAX_LINE)]
        if notice.topic == Topic.OUTPUT:
            texts = sanitize(notice.text).rstrip("\n").split("\n")[-MAX_TAIL_LINES:]
            sign, lines = self._glyphs.result, [indented_line(text, MAX_LINE) for text in texts]
            self.outputs[notice.id] = notice.text
        first, *others = lines
        self._lines[notice.id] = [f"  {sign} {first}", *(f"    {line}" for line in others)]

    def end(self, call_id: str) -> None:
        """Forget a call that has its result."""
        self._lines.pop(call_id, None)
        self.outputs.pop(call_id, None)

    def clear(self) -> None:
        """Forget all calls."""
        self._lines.clear()
        self.outputs.clear()

    def pieces(self) -> list[paint.Piece]:
        """The lines, each cut to the width of the screen."""
        return [
            paint.Piece(Text(line, style="quiet", no_wrap=True, overflow="ellipsis"))
            for lines in self._lines.values()
            for line in lines
        ]


_LOOKS = {
    StepStatus.PENDING: ("☐", "quiet"),
    StepStatus.IN_PROGRESS: ("▸", "bold"),
    StepStatus.COMPLETED: ("☑", "quiet"),
}
"""The sign of a state, and the style of its step."""


class PlanView:
    """Shows the last plan in the live area; `finish` returns it for the permanent output."""

    def __init__(self, glyphs: paint.Glyphs) -> None:
        self._unicode = glyphs is paint.UNICODE
        self._steps: tuple[PlanStep, ...] = ()

    def take(self, plan: PlanUpdate) -> list[paint.Piece]:
        """Keep the steps of a plan; of a plan that is proposed as a text, return the text."""
        if plan.proposal:
            return [paint.BLANK_LINE, paint.Piece(Text(sanitize(plan.proposal)))]
        self._steps = plan.steps or self._steps
        return []

    def live(self) -> list[paint.Piece]:
        """The checklist so far."""
        pieces = list[paint.Piece]()
        for step in self._steps:
            sign, style = _LOOKS[step.status]
            if not self._unicode:
                sign = ASCII_SIGNS[step.status]
            text = f"  {sign} {one_line(step.step, MAX_STEP)}"
            pieces.append(paint.Piece(Text(text, style=style)))
        return pieces

    def finish(self) -> list[paint.Piece]:
        """The checklist at the end of a turn; the view is empty afterwards."""
        pieces = [paint.BLANK_LINE, *self.live()] if self._steps else []
        self._steps = ()
        return pieces
