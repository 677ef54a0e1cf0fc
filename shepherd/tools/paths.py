"""Resolved paths, and globs: `*` and `?` in a name, `**` across directories, `[a-z]`, `{a,b}`."""

import errno
import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ToolError

_MAX_ALTERNATIVES = 64
_MAX_LINKS = 40
_BRACES = re.compile(r"(?<!\[)\{([^{}]*,[^{}]*)\}")


def expand_home(text: str) -> str:
    """Any word as a shell reads a `~` at its start; a `Path` would also normalize the rest."""
    return os.path.expanduser(text)  # noqa: PTH111 - see above


@lru_cache(maxsize=2048)
def glob_regex(pattern: str) -> str:
    """The regular expression of a `/`-separated glob; `dir/**` matches `dir` itself as well."""
    return "|".join(_one_regex(part) for part in expand_braces(pattern))


def expand_braces(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`; an unbalanced brace is a plain character."""
    pending, expanded = [pattern], list[str]()
    while pending:  # a stack, so that the alternatives keep their order
        current = pending.pop()
        match = _BRACES.search(current)
        if match is None or len(pending) + len(expanded) >= _MAX_ALTERNATIVES:
            expanded.append(current)
            continue
        head, tail = current[: match.start()], current[match.end() :]
        pending.extend(head + part + tail for part in reversed(match[1].split(",")))
    return expanded


@lru_cache(maxsize=2048)
def has_open_braces(pattern: str) -> bool:
    """Whether a glob has more alternatives than are expanded."""
    return any(_BRACES.search(part) for part in expand_braces(pattern))


def escape_glob(text: str) -> str:
    """A glob that matches `text` and nothing else."""
    return re.sub(r"([*?\[{])", r"[\1]", text)


def has_magic(text: str) -> bool:
    """Whether `text` has any wildcard."""
    return any(c in text for c in "*?[")


def _one_regex(pattern: str) -> str:
    """The expression of a glob without braces: `a/**/b` also matches `a/b`."""
    # `**/**` means the same as `**`, and its expression would take quadratic time
    parts = re.sub(r"(^|/)\*\*(?:/\*\*)+(?=/|$)", r"\1**", pattern).split("/")
    regex = ""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            if not is_last:
                regex += "(?:[^/]+/)*"
            elif regex.endswith("/"):
                regex = regex[:-1] + "(?:/.*)?"  # `a/**` also matches `a`
            else:
                regex += ".*"
        else:
            regex += _name_regex(part) + ("" if is_last else "/")
    return f"(?:{regex})"


def _name_regex(name: str) -> str:
    """The expression of a glob for one name: no wildcard in it matches a slash."""
    regex, index = "", 0
    while index < len(name):
        char = name[index]
        index += 1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif char == "[" and (end := name.find("]", index + 1)) != -1:
            regex += _class_regex(name[index:end])
            index = end + 1
        else:
            regex += re.escape(char)
    return regex


def _class_regex(body: str) -> str:
    """The expression of `[body]`; one that is no class stands for its own characters."""
    is_negated = body[:1] in ("!", "^")
    chars = body[1:] if is_negated else body
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", chars)
    try:
        re.compile(f"[{escaped}]")
    except re.error:
        return re.escape(f"[{body}]")
    return f"(?!/)[{'^' if is_negated else ''}{escaped}]"


class Origin(Struct, frozen=True):
    """Where files are looked up: what is seen at `root` lies at `start`, the rest in its place."""

    root: Path = Path("/")
    start: str = "/"

    def steps(self, path: Path) -> tuple[str, tuple[str, ...]]:
        """The directory where the way to an absolute `path` begins, and the names from there on."""
        if path.is_relative_to(self.root):
            return self.start, path.relative_to(self.root).parts
        return "/", path.parts[1:]

    def place(self, path: Path) -> Path:
        """The path by which system calls reach what is seen at an absolute `path`."""
        start, names = self.steps(path)
        return Path(start, *names)

    def resolve(self, path: Path) -> Path:
        """An absolute path without links and `..`; what does not exist is kept. Raises OSError."""
        if self.start == "/":
            return Path(os.path.realpath(path))
        names, resolved, links = [*reversed(path.parts[1:])], Path("/"), 0
        while names:
            name = names.pop()
            target = self._link_target(resolved, name) if links < _MAX_LINKS else None
            if target is not None:
                links += 1
                resolved /= target.anchor  # "/", or "" for a target beside the link
                names += reversed(target.relative_to(target.anchor).parts)
            else:
                resolved = resolved.parent if name == ".." else resolved / name
        return resolved

    def _link_target(self, directory: Path, name: str) -> Path | None:
        try:
            return (self.place(directory) / name).readlink()
        except OSError:
            return None  # it is no link, or it is missing


class View:
    """The files as a call sees them, which may be others than the real ones."""

    def __init__(self, origin: Origin | None = None) -> None:
        self._origin = origin or Origin()
        self._is_open = True
        self._users = 0
        self._change = threading.Condition()  # of both fields above

    @contextmanager
    def use(self) -> Generator[Origin]:
        """A context in which files may be looked up, and stay open; raises OSError once closed."""
        with self._change:
            if not self._is_open:
                raise OSError(errno.ESTALE, "the call has ended")
            self._users += 1
        try:
            yield self._origin
        finally:
            with self._change:
                self._users -= 1
                self._change.notify_all()

    def close(self) -> None:
        """Refuse new users, and wait for the others: threads of stopped calls go on."""
        with self._change:
            self._is_open = False
            self._change.wait_for(lambda: not self._users)


REAL_FILES = View()


def entries_below(directory: Path, skipped: str = "") -> Generator[os.DirEntry[str]]:
    """What is in a directory and below it, but not what is in directories of the glob `skipped`.

    Links are not followed, and what can't be read is left out. The tree may have any depth, which
    `os.walk` can't take.
    """
    pending = [str(directory)]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False) and not fnmatchcase(entry.name, skipped):
                    pending.append(entry.path)


def resolve_path(text: str, cwd: Path, view: View = REAL_FILES) -> Path:
    """`text` as an absolute path with `~`, `..` and every symlink followed.

    Parts that do not exist yet are appended unchanged. Raises ToolError.
    """
    if not text or "\0" in text:
        raise ToolError("the path is empty" if not text else "the path has a NUL character")
    try:
        with view.use() as origin:
            return origin.resolve(Path(cwd, expand_home(text)))
    except (OSError, ValueError) as error:
        raise ToolError(f"bad path: {text} ({reason(error)})") from error


def reason(error: Exception) -> str:
    """A short cause without the path, which the caller adds."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
