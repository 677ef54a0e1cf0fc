"""The command `/init`, and the lines of such commands."""

import os
import re

from shepherd.errors import InvalidRequestError
from shepherd.knowledge.project import Project

INIT = "init"
INIT_SUMMARY = "let the model write AGENTS.md for this directory"
INIT_FILE, IMPROVE = "AGENTS.md", "improve"

_CONTENT = (
    "It tells agents what they can't guess: what the project is, where things are, how to build "
    "and test it (also one single test), and its conventions. Write at most 60 short lines, and "
    "only what you have seen in files."
)
_INIT_PROMPT = (
    "Write a file AGENTS.md in the working directory. First look at the directory, the README, "
    f"the build files and some of the code; keep what CLAUDE.md or GEMINI.md say. {_CONTENT}"
)
_IMPROVE_PROMPT = (
    "Improve the file AGENTS.md in the working directory. First read it, and check it against the "
    f"README, the build files and the code. Change only what is wrong or missing. {_CONTENT}"
)
_LINE = re.compile(r"/([a-z][a-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)


def parse_line(text: str) -> tuple[str, str] | None:
    """The name and the argument of a line such as `/review src`; None for other texts."""
    match = _LINE.fullmatch(text.strip())
    return (match[1], (match[2] or "").strip()) if match else None


def init_prompt(project: Project, argument: str) -> str:
    """The prompt of `/init`; raises InvalidRequestError if it would replace a file unasked."""
    exists = os.path.lexists(project.cwd / INIT_FILE)
    if argument not in ("", IMPROVE):
        raise InvalidRequestError(f"/{INIT} takes {IMPROVE} or nothing.")
    if exists and not argument:
        raise InvalidRequestError(
            f"{INIT_FILE} exists; /{INIT} {IMPROVE} lets the model change it."
        )
    return _IMPROVE_PROMPT if exists else _INIT_PROMPT
