"""Plays a session of longer work on a pty, and draws docs/work.svg.

A script answers in the place of a model. All else is the real program: the instructions of the
project, an MCP server, a plan, sub-agents, and undo.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.text import Text

from scripts.record_session import COLUMNS, DOCS, ROWS, SHEPHERD, draw, picture_of
from tests.e2e.terminal import CTRL_D, Terminal

CTRL_U = "\x15"
PICTURE = "work.svg"
STEPS = ("look at the repository", "ask for two verses", "write them down")


def main() -> int:
    """Play, draw, and print the session as text."""
    with tempfile.TemporaryDirectory() as place:
        picture = play(Path(place))
    print(picture.plain)
    (DOCS / PICTURE).write_text(draw(picture), encoding="utf-8")
    return 0


def play(home: Path) -> Text:
    """The picture of the session, which is played in a new `home`."""
    folder = home / "garden"
    folder.mkdir()
    (folder / "AGENTS.md").write_text("# Garden\n\nVerses belong into verses.md.\n")
    (folder / "verses.md").write_text("The roses are red.\n")
    script = home / "answers"
    script.write_text(_script(folder), encoding="utf-8")
    env = {"HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    env |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"COLORTERM": "truecolor", "SHEPHERD_TOOLS__SANDBOX": "off"}
    _prepare(folder, env)
    argv = [SHEPHERD, "--model", f"script:{script}"]
    with Terminal(argv, folder, env, columns=COLUMNS, rows=ROWS + 20) as terminal:
        return _session(terminal)


def _prepare(folder: Path, env: dict[str, str]) -> None:
    """A repository, and an MCP server for it."""
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (
        ["git", "init", "-q", "-b", "main"],
        ["git", "add", "."],
        ["git", *who, "commit", "-q", "-m", "Plant"],
        [SHEPHERD, "mcp", "add", "git", "--", "mcp-server-git"],
    ):
        subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True)


def _script(folder: Path) -> str:
    """The answers, one after the other; the second and third of four are those of sub-agents."""
    edit = {"path": "verses.md", "old_string": "The roses are red.\n"}
    edit["new_string"] = edit["old_string"] + "The sheep go to bed.\n"
    generations = [
        [_call("update_plan", steps=_steps(0)), _call("git__git_status", repo_path=str(folder))],
        [
            _call("update_plan", steps=_steps(1)),
            _call("task", prompt="write a verse that rhymes with red"),
            _call("task", prompt="write a verse about sheep"),
        ],
        ["text: The sheep go to bed."],
        ["text: The sheep go to bed."],
        [_call("update_plan", steps=_steps(2)), _call("edit_file", **edit)],
        [_call("update_plan", steps=_steps(3))],
        ["text: Both verses were the same, so I wrote one."],
    ]
    return "\n---\n".join("\n".join(steps) for steps in generations) + "\n"


def _call(name: str, **arguments: object) -> str:
    return f"call: {name} {json.dumps(arguments)}"


def _steps(done: int) -> list[dict[str, str]]:
    """The plan with so many steps done."""
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
    return [{"step": step, "status": status} for step, status in zip(STEPS, states, strict=False)]


def _session(terminal: Terminal) -> Text:
    terminal.wait_for("approve: ask")
    terminal.say("add a verse to the garden")
    for asked in ("Allow git__git_status", "Allow edit_file"):
        terminal.wait_asked(asked)
        terminal.settle()
        terminal.choose("y")
    terminal.wait_for("so I wrote one")
    terminal.settle()
    for command, shown in (
        ("/diff", "go to bed"),
        ("/undo", "Restored"),
        ("/mcp", "ready"),
        ("/init", "AGENTS.md exists"),
    ):
        terminal.say(command)
        terminal.wait_for(shown)
        terminal.settle()
    terminal.send(f"{CTRL_U}{CTRL_D}")  # /init came back into the prompt
    terminal.wait_exit()
    return picture_of(terminal)


if __name__ == "__main__":
    sys.exit(main())
