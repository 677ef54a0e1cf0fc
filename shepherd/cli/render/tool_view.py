"""Tool calls and their results in a line or two, changes as coloured diffs."""

import json
import os
from collections import deque
from itertools import islice

from msgspec import Struct
from rich.text import Text

from shepherd.cli.approval.question import Line, text_lines
from shepherd.cli.terminal.paint import Glyphs, Piece
from shepherd.cli.terminal.sanitize import indented_line, revealed_line, sanitize
from shepherd.config.secrets import keys_in
from shepherd.messages import JsonObject, ToolCall
from shepherd.tools.registry import traits_of
from shepherd.tools.text import uncut

MAX_ARGUMENT = 200
MAX_RESULT_LINES = 3
MAX_OUTPUT_LINES = 5
MAX_DIFF_LINES = 60
MAX_LINE = 400

_SUBJECTS = ("command", "path", "pattern", "url", "name", "method", "question")
_BODIES = frozenset({"content", "old_string", "new_string", "body"})
_PLURALS = {"entry": "entries", "match": "matches"}


def call_line(call: ToolCall, glyphs: Glyphs) -> Piece:
    """`● read_file notes.txt`."""
    line = Text(f"{glyphs.call} ", style="quiet")
    line.append(revealed_line(call.name, 80), style="tool")
    summary = argument_summary(call.arguments)
    if summary:
        line.append(f" {summary}")
    return Piece(line)


def argument_summary(arguments: JsonObject) -> str:
    """A summary of the arguments: the subject first, without long texts.

    `notes.txt start=1` is that of `{"start": 1, "path": "notes.txt"}`.
    """
    subject = next((key for key in _SUBJECTS if isinstance(arguments.get(key), str)), "")
    parts = [revealed_line(str(arguments[subject]), MAX_ARGUMENT)] if subject else []
    for key, value in arguments.items():
        if key != subject and key not in _BODIES:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            parts.append(revealed_line(f"{key}={text}", MAX_ARGUMENT))
    return " ".join(parts)


def call_title(call: ToolCall) -> str:
    """The name of a call with a summary of its arguments."""
    return f"{revealed_line(call.name, 80)} {argument_summary(call.arguments)}".rstrip()


def result_pieces(call: ToolCall, content: str, glyphs: Glyphs, hint: str = "") -> list[Piece]:
    """`└ 12 lines`, the first lines of the result, or the last lines of a command's.

    `hint` says how to read the lines that are left out.
    """
    if content.startswith("Error: "):  # its lines are joined, so that none is left out
        return [_hanging([revealed_line(content, MAX_LINE)], glyphs, "bad")]
    lines = sanitize(content).rstrip("\n").split("\n")
    unit = traits_of(call.name).unit
    if unit and not content.startswith("("):  # `(no matches)` is the tool's remark, not a line
        return [_hanging([counted(len(lines), unit)], glyphs, "quiet")]
    shows_end = traits_of(call.name).shows_end
    limit = MAX_OUTPUT_LINES if shows_end else MAX_RESULT_LINES
    visible = lines[-limit:] if shows_end else lines[:limit]
    visible_texts = [indented_line(line, MAX_LINE) for line in visible]
    left_out = len(lines) - limit
    if left_out > 0:
        what = counted(left_out, "earlier line" if shows_end else "more line")
        note = f"({what}; {hint})" if hint else f"({what})"
        visible_texts.insert(0 if shows_end else len(visible_texts), note)
    return [_hanging(visible_texts, glyphs, "quiet")]


def display_pieces(display: str) -> list[Piece]:
    """A coloured diff, or indented text; a long one is cut, with the number of other lines."""
    display = display.rstrip("\n")
    lines = list(islice(text_lines(display), MAX_DIFF_LINES + 1))
    head = lines[:MAX_DIFF_LINES]
    text = Text().join(map(_display_line, head))
    if len(lines) > len(head):
        # some are segments of one long line, some stand for several blank ones
        left_out = display.count("\n") + 1 - sum(line.span for line in head)
        what = counted(left_out, "more line") if left_out else "the line goes on"
        text.append(f"    ({what})\n", style="quiet")
    text.rstrip()
    return [Piece(text, soft_wrap=True)]


def counted(number: int, unit: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{number} {unit if number == 1 else _PLURALS.get(unit, unit + 's')}"


def _hanging(lines: list[str], glyphs: Glyphs, style: str) -> Piece:
    """The lines one below the other, the first after the sign of a result."""
    first = f"  {glyphs.result} "
    text = Text(first, style="quiet")
    text.append(("\n" + " " * len(first)).join(lines), style=style)
    return Piece(text)


def _display_line(line: Line) -> Text:
    indent = "    " if line.span else "      "  # a further segment of a long line is set in
    return Text.assemble(indent, *line.fragments(), "\n")


MAX_RESULTS = 200
MAX_CHARACTERS = 4_000_000
"""The maximum of all kept texts together."""

MAX_TEXT = 1_000_000
CUT = "\n[cut here: {count} more characters]"


class FullResult(Struct, frozen=True):
    """A result with the line of its call."""

    title: str
    text: str


class ResultLog:
    """The newest results, the oldest first."""

    def __init__(self) -> None:
        self.all: deque[FullResult] = deque()
        self._characters = 0  # of all together

    def add(self, title: str, *texts: str) -> None:
        """Keep the texts that are not empty, one below the other, also what the model did not get.

        Without keys: the model gets none either, but the file of a long output has them.
        """
        wholes = [uncut(part, MAX_TEXT + 1) for part in texts if part.strip("\n")]
        text = "\n".join(part.rstrip("\n") for part in wholes)
        for key, name in keys_in(os.environ).items():
            text = text.replace(key, f"[{name}]")
        if not text:
            return
        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT] + CUT.format(count=len(text) - MAX_TEXT)
        self.all.append(FullResult(title, text))
        self._characters += len(text)
        while len(self.all) > MAX_RESULTS or self._characters > MAX_CHARACTERS:
            oldest = self.all.popleft()
            self._characters -= len(oldest.text)
