"""Calls of tools as an editor shows them: kind, title, locations, and content."""

import re
from pathlib import Path

from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TerminalToolCallContent,
    ToolCallLocation,
)

from shepherd.cli.render.tool_view import argument_summary
from shepherd.errors import ToolError
from shepherd.json_text import is_finite
from shepherd.messages import ToolCall
from shepherd.tools.base import FileChange
from shepherd.tools.paths import resolve_path
from shepherd.tools.registry import traits_of
from shepherd.tools.text import valid_text

CallContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

MAX_DIFF_CHARACTERS = 2_000_000
"""Both texts of a change together; a longer one is shown as text, because editors become slow."""

_RUN_OF_BACKTICKS = re.compile("`+")


def call_title(call: ToolCall) -> str:
    """`Read `notes.txt``: what the model chose is in a code span, because titles are Markdown."""
    subject = argument_summary(call.arguments)
    head = traits_of(call.name).verb or code_span(call.name)
    return f"{head} {code_span(subject)}" if subject else head


def call_locations(call: ToolCall, cwd: Path) -> list[ToolCallLocation]:
    """The file that the arguments name, and its line."""
    path, line = call.arguments.get("path"), call.arguments.get("offset")
    if not isinstance(path, str) or traits_of(call.name).kind == "other":
        return []
    try:
        resolved = resolve_path(path, cwd)
    except ToolError:
        return []
    is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
    return [ToolCallLocation(path=valid_text(str(resolved)), line=line if is_line else None)]


def raw_input(call: ToolCall) -> object:
    """The arguments, as text if JSON can't hold them."""
    return call.arguments if is_finite(call.arguments) else call.arguments_json


def text_content(text: str) -> CallContent:
    """Text that is shown as it is."""
    return tool_content(text_block(fenced(text)))


def diff_content(change: FileChange) -> CallContent | None:
    """The change of a file, None if it is too long."""
    before, after = change.before, change.after
    if len(before or "") + len(after) > MAX_DIFF_CHARACTERS:
        return None
    old = None if before is None else valid_text(before)
    return tool_diff_content(valid_text(str(change.path)), valid_text(after), old)


def fenced(text: str) -> str:
    """The text in a fence that no part of it can close."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}\n{text}\n{fence}"


def code_span(text: str) -> str:
    """The text, on one line, in a code span that no part of it can close."""
    line = " ".join(text.split())
    ticks = "`" * (_longest_run(line) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _RUN_OF_BACKTICKS.findall(text)), default=0)
