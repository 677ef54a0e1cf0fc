"""Custom commands: Markdown files whose text a user sends by name, with arguments."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from shepherd.errors import InvalidRequestError, ToolError
from shepherd.knowledge import files

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
_LINE = re.compile(r"/(?P<name>[a-z][a-z0-9_-]*)(?:\s+(?P<argument>.*))?", re.DOTALL)


def parse_line(text: str) -> tuple[str, str] | None:
    """The name and the argument of a line such as `/review src`; None for other texts."""
    match = _LINE.fullmatch(text.strip())
    return (match["name"], (match["argument"] or "").strip()) if match else None


def init_prompt(project: files.Project, argument: str) -> str:
    """The prompt of `/init`; raises InvalidRequestError if it would replace a file unasked."""
    exists = os.path.lexists(project.cwd / INIT_FILE)
    if argument not in ("", IMPROVE):
        raise InvalidRequestError(f"/{INIT} takes {IMPROVE} or nothing.")
    if exists and not argument:
        raise InvalidRequestError(
            f"{INIT_FILE} exists; /{INIT} {IMPROVE} lets the model change it."
        )
    return _IMPROVE_PROMPT if exists else _INIT_PROMPT


MAX_COMMAND_BYTES, MAX_SUMMARY = 65_536, 120

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PLACE = re.compile(r"\\(?P<literal>\$(?:ARGUMENTS|[1-9]))\b|\$(?P<place>ARGUMENTS|[1-9])\b")
"""`$2` is a place of one digit; `$10` is none, and `\\$2` stands for the text `$2`."""


class CustomCommand(files.Named, frozen=True, kw_only=True):
    """A command; `hint` names its arguments, and `place` is its file."""

    summary: str
    hint: str
    text: str

    def expanded(self, argument: str) -> str:
        """The text with `$ARGUMENTS` and `$1` to `$9` replaced.

        An argument without such a place comes after the text.
        """
        words = _words(argument)

        def replacement(match: re.Match[str]) -> str:
            if match["literal"]:
                return match["literal"]
            if match["place"] == "ARGUMENTS":
                return argument
            number = int(match["place"])
            return words[number - 1] if number <= len(words) else ""

        has_place = any(match["place"] for match in _PLACE.finditer(self.text))
        text = _PLACE.sub(replacement, self.text)
        return text if has_place or not argument else f"{text}\n\n{argument}"


def find_commands(
    project: files.Project, reader: files.KnowledgeFiles, warn: Callable[[str], None]
) -> tuple[CustomCommand, ...]:
    """The commands by name; `warn` gets a sentence for each that can't be used."""
    read = partial(_command, project, reader)
    commands = files.find_named(project, "commands", lambda path: path.suffix == ".md", read, warn)
    return tuple(sorted(commands, key=lambda command: command.name))


def _command(
    project: files.Project, reader: files.KnowledgeFiles, file: files.Location
) -> CustomCommand:
    """The command in a file; raises ToolError if it can't be used."""
    label, name = project.name(file.path), file.path.stem
    if not _NAME.fullmatch(name):
        raise ToolError(
            f"{label} needs a name that begins with a lower-case letter and has only those, "
            "digits, - and _"
        )
    if name == INIT:
        raise ToolError(f"{label} has the name of Shepherd's own /{INIT}")
    read = reader.read(file.path, file.root, MAX_COMMAND_BYTES, label)
    if read.unread:
        raise ToolError(f"{label} has more than {MAX_COMMAND_BYTES:,} bytes")
    document = files.split_front_matter(read.text)
    if not document.body:
        raise ToolError(f"{label} is empty")
    first_line = document.body.split("\n", 1)[0].lstrip("# ")
    summary = document.line("description") or first_line
    if len(summary) > MAX_SUMMARY:
        summary = f"{summary[:MAX_SUMMARY]}…"
    return CustomCommand(
        name=name,
        of_user=file.of_user,
        place=Path(os.path.realpath(file.path)),
        summary=summary,
        hint=document.line("argument-hint") or _default_hint(document),
        text=document.body,
    )


def _default_hint(document: files.Document) -> str:
    """The arguments by the places in the text, such as `[1] [2]`; without any, one text."""
    places = {match["place"] for match in _PLACE.finditer(document.body) if match["place"]}
    if not places or "ARGUMENTS" in places:
        return "[TEXT]"
    return " ".join(f"[{digit}]" for digit in sorted(places))  # places have one digit


def _words(argument: str) -> Sequence[str]:
    """The words of an argument, of which quotes can hold several together."""
    try:
        return shlex.split(argument)
    except ValueError:  # an open quote
        return argument.split()
