"""The two search programs: ripgrep, or a Python worker where ripgrep is not installed."""

import os
import sys
import tempfile
from pathlib import Path

from shepherd.tasks import Stopped, in_thread
from shepherd.tools.base import ToolContext
from shepherd.tools.files.access import FileAccess
from shepherd.tools.program import Program
from shepherd.tools.search.matches import MatchCollector, Query
from shepherd.tools.search.names import name_matcher
from shepherd.tools.search.walk import SKIPPED, Tree, denied
from shepherd.tools.shell.output import CappedOutput
from shepherd.tools.shell.process import run_program

_WORKER = Path(__file__).with_name("worker.py")
_BAD_PATTERN = 3
_RIPGREP = """
--no-config --hidden --no-ignore-dot --no-ignore-global --no-ignore-exclude --no-messages --null
--line-number --with-filename --no-heading
--color=never --crlf --encoding=none --sort=path
"""


class BadPatternError(Exception):
    """The regular expression is invalid; the message says why."""


async def search_ripgrep(program: str, query: Query, matches: MatchCollector) -> bool:
    """Search with ripgrep; False if it does not understand the pattern."""
    argv = [program, *_RIPGREP.split()]
    if query.ignored is None or not query.ignored.is_active:
        argv.append("--no-ignore")
    if query.glob:
        argv.append(f"--glob={query.glob}")
    argv += [f"--glob=!{name}" for name in sorted(SKIPPED) if not query.single]
    argv += ["--", query.pattern, f"./{query.single}" if query.single else "./"]
    exit_ = await run_program(Program(argv, query.root), matches.feed, _ignore, _NO_TIMEOUT)
    return exit_.stopped or exit_.code in (0, 1)


async def search_python(query: Query, context: ToolContext, matches: MatchCollector) -> None:
    """Search with Python's regular expressions; raises BadPatternError."""
    files = FileAccess(context)
    paths = await in_thread(lambda stopped: _files(query, context, files, stopped))
    argv = [sys.executable, "-I", "-S", str(_WORKER)]
    errors = CappedOutput(1000, context.spill_dir)
    with tempfile.TemporaryFile() as stdin:
        parts = [query.pattern, *paths, ""]
        stdin.write("\0".join(parts).encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        program = Program(argv, query.root, stdin=stdin)
        exit_ = await run_program(program, matches.feed, errors.feed, _NO_TIMEOUT)
    if exit_.code == _BAD_PATTERN and not exit_.stopped:
        raise BadPatternError(errors.text().strip())


_NO_TIMEOUT = 86_400.0  # seconds; the runner's deadline cancels the call much earlier


def _ignore(data: bytes) -> bool:
    return bool(data)


def _files(query: Query, context: ToolContext, files: FileAccess, stopped: Stopped) -> list[str]:
    if query.single:
        return [query.single]
    matcher = name_matcher(query.glob) if query.glob else None
    root = files.open_directory(query.root)
    try:
        return [
            entry.path
            for entry in Tree(query.root, context, ignored=query.ignored).walk(root, stopped)
            if entry.is_file
            and (matcher is None or matcher.fullmatch(entry.path))
            and not denied(context, query.root / entry.path)
        ]
    finally:
        os.close(root)
