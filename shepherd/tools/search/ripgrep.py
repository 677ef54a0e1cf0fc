"""Runs ripgrep, which finds the files of both search tools and knows what git ignores."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.own_programs import packaged_program
from shepherd.tools import paths
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.program import Program
from shepherd.tools.shell.process import Sink, run_program
from shepherd.tools.tool import ToolContext

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
"""Names of directories that are searched only if a call names them."""

_OPTIONS = """
--no-config --hidden --no-ignore-dot --no-ignore-global --no-ignore-exclude --no-ignore-parent
--no-messages --null --color=never --sort=path --ignore-file=/dev/stdin
"""
_NO_TIMEOUT = 86_400.0  # seconds; the runner's deadline cancels the call much earlier
_MAX_ERROR = 1000
MISSING = "ripgrep is missing: install Shepherd again, or the program rg"


class Search:
    """A search of the directory `root`, or of the file `single` in it; takes a few system calls.

    Files that match the `glob` are searched, "" means all; ripgrep may also report others. What it
    and `named` name is not skipped. `origin` is that of a view that is in use.
    """

    def __init__(
        self,
        root: Path,
        origin: paths.Origin,
        *,
        glob: str = "",
        single: str = "",
        named: Sequence[str] = (),
    ) -> None:
        self.root = root
        self.single = single
        self._origin = origin
        self._glob = glob
        self._skipped = SKIPPED.difference(named, glob.split("/"))
        above = [root, *root.parents]
        is_top = (origin.place(path / ".git").exists() for path in above)
        self._in_repository = above[: next((n for n, is_it in enumerate(is_top, 1) if is_it), 0)]
        # a layer has no path by which ripgrep could find the directories above
        tops = [path for path in self._in_repository if path == origin.root]
        self._top = [root, *self._in_repository[-1:], *tops][-1]
        below = os.path.relpath(root, self._top)
        self._place = "./" if below == "." else f"./{below}/"

    async def run(self, words: Sequence[str], out: Sink, *, with_ignored: bool) -> bool:
        """Feed `out` what ripgrep prints; returns whether more may be found `with_ignored` files.

        Raises ToolError with ripgrep's own sentence, such as that it can't read a pattern.
        """
        program = packaged_program("rg")
        if program is None:
            raise ToolError(MISSING)
        with_ignored = with_ignored or bool(self.single)
        argv = [program, *_OPTIONS.split(), *self._rules(with_ignored=with_ignored), *words]
        error = bytearray()

        def take_error(data: bytes) -> bool:
            error.extend(data[:_MAX_ERROR])
            return True

        with tempfile.TemporaryFile() as stdin:
            stdin.write(os.fsencode(self._selection()))
            stdin.seek(0)
            # a directory of a layer has no path, so that ripgrep takes the one in its environment
            environment = {**os.environ, "PWD": str(self._top)}
            top = self._origin.place(self._top)
            ripgrep = Program([*argv, self._place + self.single], top, environment, stdin)
            exit_ = await run_program(ripgrep, out, take_error, _NO_TIMEOUT)
        # without `--no-messages`, files that can't be read would be errors too
        if error and not exit_.stopped:
            reason = error.decode("utf-8", "replace").rpartition("error: ")[2]
            raise ToolError(f"bad pattern: {' '.join(reason.split())}")
        return not with_ignored and bool(self._in_repository)

    def relative(self, name: bytes) -> str:
        """A path that ripgrep has printed, relative to the root."""
        return os.fsdecode(name).removeprefix(self._place)

    def _rules(self, *, with_ignored: bool) -> Iterator[str]:
        """The options about what is left out."""
        if not self.single:  # a file in a skipped directory is searched if the call names it
            yield from (f"--glob=!{name}" for name in sorted(self._skipped))
        if with_ignored:
            yield "--no-ignore"
        elif self._in_repository:
            yield "--no-require-git"  # ripgrep does not see the repository from below
        for path in reversed(self._in_repository[1:]):  # it reads those from the root on itself
            file = path / ".gitignore"
            if not with_ignored and self._origin.place(file).is_file():
                is_below = file.is_relative_to(self._top)
                yield f"--ignore-file={file.relative_to(self._top) if is_below else file}"

    def _selection(self) -> str:
        """Rules like those of git that leave out what the glob can't match; "" if it is unusual.

        With `--glob`, ripgrep would also search what git ignores.
        """
        globs = paths.expand_braces(self._glob)
        if not self._glob or any(re.search(r"[^\w.*?/@+=~-]", glob) for glob in globs):
            return ""
        if "/" in self._glob:  # such a pattern is relative to the top
            below = re.sub(r"([^\w/])", r"\\\1", self._place.removeprefix("."))
            globs = [below + glob.lstrip("/") for glob in globs]
        lines = ["*", "!*/", *(f"!{glob}" for glob in globs)]
        return "" if "\n" in "".join(lines) else "\n".join(lines)


class Denials:
    """What the rules deny for reading below `root`."""

    def __init__(self, root: Path, context: ToolContext) -> None:
        self._root = root
        self._context = context
        self._known: dict[str, bool] = {}

    def has(self, path: str) -> bool:
        """Whether the rules deny the relative path, or a directory above it."""
        return any(self._denies(part) for part in (*parents_of(path), path))

    def _denies(self, path: str) -> bool:
        if path not in self._known:  # a tree has many files in each directory
            access = Access(AccessKind.READ, str(self._root / path))
            self._known[path] = self._context.denies(access)
        return self._known[path]


def parents_of(path: str) -> Iterator[str]:
    """`a` and `a/b` for `a/b/c`."""
    return (path[: slash.start()] for slash in re.finditer("/", path))
