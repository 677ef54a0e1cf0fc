"""Plays sessions on a pty, and draws docs/session.svg, approval.svg and review.svg."""

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from io import StringIO
from itertools import groupby
from pathlib import Path

import pyte.screens
from rich.console import Console
from rich.style import Style
from rich.text import Text

from tests.e2e.terminal import CTRL_C, CTRL_D, ENTER, QUIET, Terminal

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SHEPHERD = str(Path(sys.executable).with_name("shepherd"))
COLUMNS, ROWS = 88, 60
DOWN, RIGHT = "\x1b[B", "\x1b[C"


def main() -> int:
    """Play, draw, and print the session as text."""
    with tempfile.TemporaryDirectory() as place:
        pictures = {**play(Path(place)), "review.svg": play_review(Path(place))}
        for name, picture in pictures.items():
            print(picture.plain)
            (DOCS / name).write_text(draw(picture), encoding="utf-8")
    return 0


def play(home: Path) -> dict[str, Text]:
    """The pictures by the names of their files; the session is played in a new `home`."""
    folder = home / "garden"
    folder.mkdir()
    (folder / "notes.txt").write_text("water the roses\nbuy bread\n")
    (folder / "todo.md").write_text("- count the sheep\n")
    env, argv = _environment(home), [SHEPHERD]
    with Terminal(argv, folder, env, columns=COLUMNS, rows=ROWS) as terminal:
        question = _until_question(terminal)
        session = _to_the_end(terminal)
    with Terminal([*argv, "--continue"], folder, env, columns=COLUMNS, rows=ROWS) as terminal:
        again = _continue(terminal)
    shell = Text("\n$ shepherd --continue\n", style="bold")
    return {"approval.svg": question, "session.svg": Text.assemble(session, shell, again)}


def _environment(home: Path) -> dict[str, str]:
    """That of a user on a machine with no other models and servers, whatever this one has."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color"}
    env |= {"LC_ALL": "C.UTF-8", "COLORTERM": "truecolor", "OLLAMA_MODELS": str(home)}
    return env | {"OLLAMA_HOST": "127.0.0.1:9", "LLAMA_ARG_PORT": "9"}


_TESTS = """import unittest
from sheep import count


class Test(unittest.TestCase):
    def test_a_flock_is_counted(self) -> None:
        self.assertEqual(count(["Ada", "Bo"]), 2)
"""
_COUNT = "def count(flock: list[str]) -> int:\n    return len(flock)\n"
_TRY = "python3 -B -m unittest -q 2>&1 | tail -1"
_REVIEWED = f"""\
think: I look at the code and its test before I change anything.
text: I look at the code and run its test first.
call: read_file {{"path": "sheep.py"}}
call: execute_command {json.dumps({"command": _TRY})}
---
think: count() returns 0 for every flock.
text: "`count()` returns 0 for every flock. I mend it and run the test again."
call: edit_file {{"path": "sheep.py", "old_string": "return 0", "new_string": "return len(flock)"}}
---
call: execute_command {json.dumps({"command": f"{_TRY}; rm draft.txt"})}
---
text: The sheep are counted, and the test passes. I removed a draft.
"""
"""A turn in the shape of a model of real size, whose weights are not here."""


def play_review(home: Path) -> Text:
    """The picture of a turn in the mode `review`, of which one part is not kept."""
    folder = home / "flock"
    folder.mkdir()
    (folder / "sheep.py").write_text(_COUNT.replace("len(flock)", "0"))
    (folder / "test_sheep.py").write_text(_TESTS)
    (folder / "draft.txt").write_text("count them by hand\n")
    script = home / "script.txt"
    script.write_text(_REVIEWED)
    argv = [SHEPHERD, "--approve", "review", "--model", f"script:{script}"]
    with Terminal(argv, folder, _environment(home), columns=COLUMNS, rows=ROWS) as terminal:
        terminal.wait_for("approve: review")
        terminal.say("make count() work, and tidy up")
        terminal.wait_asked("Keep these changes")
        question = picture_of(terminal)
        terminal.send("c")
        time.sleep(QUIET)
        terminal.send(ENTER)
        terminal.wait_for("Keep which")
        terminal.send(" ")
        terminal.send(DOWN)
        terminal.send(RIGHT)
        terminal.wait_for("return len")
        terminal.settle()
        parts = picture_of(terminal)
        terminal.send(ENTER)
        terminal.wait_for("were kept")
        terminal.settle()
        end = picture_of(terminal)
    pieces = [
        *_after(question, "› make")[:-1],
        *_after(parts, "Keep which")[:-1],
        *_after(end, "  kept "),
    ]
    return Text("\n").join(pieces)


def _after(picture: Text, begin: str) -> list[Text]:
    """The lines of a picture from the one that begins so."""
    lines = picture.split("\n")
    return lines[next(n for n, line in enumerate(lines) if line.plain.startswith(begin)) :]


def draw(picture: Text) -> str:
    """The picture as SVG."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(picture)
    svg = console.export_svg(title="shepherd", font_aspect_ratio=0.61)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # fonts from the network
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace")


def _until_question(terminal: Terminal) -> Text:
    terminal.wait_for("approve: ask")
    terminal.say("what files are here?")
    terminal.wait_for("todo.md")
    terminal.settle()
    terminal.say("read notes.txt")
    terminal.wait_for("buy bread")
    terminal.settle()
    terminal.say("replace 'bread' with 'cheese' in notes.txt")
    terminal.wait_for("Allow")
    terminal.settle()
    return picture_of(terminal)


def _to_the_end(terminal: Terminal) -> Text:
    terminal.choose("y")
    terminal.wait_for("replacement")
    terminal.settle()
    terminal.say("run sleep 60")  # what changes nothing is not asked about
    terminal.wait_for("execute_command")
    time.sleep(1)
    terminal.send(CTRL_C)
    terminal.wait_for("interrupted")
    terminal.settle()
    terminal.send(CTRL_D)
    terminal.wait_exit()
    return picture_of(terminal)


def _continue(terminal: Terminal) -> Text:
    terminal.wait_for("approve")
    terminal.settle()
    terminal.say("read notes.txt")
    terminal.wait_for("buy cheese")
    terminal.settle()
    return picture_of(terminal)


def picture_of(terminal: Terminal) -> Text:
    """The screen with everything that has left it at the top."""
    screen = terminal.screen
    rows = [*screen.history.top, *(screen.buffer[y] for y in range(screen.lines))]
    lines = [_line(row) for row in rows]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    return Text("\n").join(lines)


def _line(row: Mapping[int, pyte.screens.Char]) -> Text:
    line = Text()
    for style, run in groupby((row[x] for x in range(COLUMNS)), _style):
        line.append("".join(char.data for char in run), style)
    line.rstrip()
    return line


def _style(char: pyte.screens.Char) -> Style:
    return Style(
        color=_color(char.fg),
        bgcolor=_color(char.bg),
        bold=char.bold,
        italic=char.italics,
        underline=char.underscore,
        reverse=char.reverse,
    )


def _color(name: str) -> str | None:
    if name == "default":
        return None
    named = {"brown": "yellow", "brightbrown": "bright_yellow"}.get(name, name)
    if named.startswith("bright") and "_" not in named:
        return f"bright_{named.removeprefix('bright')}"
    return f"#{named}" if len(named) == 6 and set(named) <= set("0123456789abcdef") else named


if __name__ == "__main__":
    sys.exit(main())
