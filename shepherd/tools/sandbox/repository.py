"""The git repository of a directory: what git keeps there as data, and what makes it run programs.

An approved git line may change data alone. It may run programs of the project, such as a filter,
and these must not leave anything that the user's own git starts later.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_RUNS_PROGRAMS = ("commondir", "config", "config.worktree", "hooks", "info/attributes")
"""Entries of a git directory that run programs, or name them."""

_DATA = re.compile(
    r"refs|logs|info|packed-refs|shallow|description|gitdir|locked|rr-cache|lost-found|lfs"
    r"|rebase-merge|rebase-apply|sequencer|gc\.(?:log|pid)|(?:shared)?index(?:\..*)?|HEAD|[A-Z]+(?:_[A-Z]+)+"
)
"""Entries that hold data, such as `COMMIT_EDITMSG`."""

_MAX_PARTS = 20
_OBJECTS = "objects"  # they are many, and nothing there runs a program
_PLAN = Path("rebase-merge", "git-rebase-todo")
_STEP = re.compile(
    r"\s*(?:#|\Z|(?:pick|p|reword|r|edit|e|squash|s|fixup|f|drop|d|noop|break|b|label|l|reset|t"
    r"|merge|m|update-ref|u)(?!\S))"
)
"""A step of a rebase that runs no program."""

Programs = dict[Path, frozenset[str]]
"""Paths by which git may run programs; for the plan of a rebase, the steps that do."""


def fixed_paths(git: Path) -> Iterator[Path]:
    """The paths in a git directory that git lines must not change; most of them may be missing."""
    yield from (git / name for name in _RUNS_PROGRAMS)
    # git writes the plan of a rebase itself: its steps are read afterwards
    yield from (path for path, steps in programs_of(git).items() if not steps)


def linked_programs(directories: Iterable[Path]) -> Iterator[Path]:
    """The links in git directories to what runs programs; no layer holds what they lead to."""
    paths = (git / name for git in directories for name in _RUNS_PROGRAMS)
    return (path for path in paths if path.is_symlink())


def programs_of(git: Path, below: Path | None = None) -> Programs:
    """The paths in a git directory, and in those of its work trees and submodules.

    `git` may also be the part of a layer that lies over the git directory `below`.
    """
    return {path: _steps(path) for path in _programs(git, below or git)}


def _programs(git: Path, below: Path) -> Iterator[Path]:
    if _steps(git / _PLAN):
        yield git / _PLAN
    for entry in _entries(git):
        path, lower = Path(entry.path), below / entry.name
        if entry.is_symlink():
            yield path
        elif entry.name == "worktrees":
            for tree in _entries(path):
                yield from _programs_unless_link(tree, lower / tree.name)
        elif entry.name == "modules":
            yield from _programs_of_submodules(path, lower)
        elif _DATA.fullmatch(entry.name):
            yield from _exceptions(path)
        elif entry.name != _OBJECTS and not _names_shared_directory(path):
            yield path


def _programs_of_submodules(place: Path, below: Path, parts: int = 1) -> Iterator[Path]:
    """Those of the repositories in a directory; a new repository counts as a whole.

    The name of a submodule may have several `parts`.
    """
    for entry in _entries(place):
        lower = below / entry.name
        if os.access(lower / "HEAD", os.F_OK):  # no error, also for a path that is too long
            yield from _programs_unless_link(entry, lower)
        elif os.access(f"{lower}/.", os.F_OK) and parts < _MAX_PARTS:
            yield from _programs_of_submodules(Path(entry.path), lower, parts + 1)
        else:
            yield Path(entry.path)


def _programs_unless_link(entry: os.DirEntry[str], below: Path) -> Iterator[Path]:
    path = Path(entry.path)
    return iter([path]) if entry.is_symlink() else _programs(path, below)


def _names_shared_directory(path: Path) -> bool:
    """Whether this is the `commondir` of a work tree, as git itself writes it."""
    is_of_tree = path.name == "commondir" and path.parent.parent.name == "worktrees"
    return is_of_tree and _text(path).strip() == "../.."


def _exceptions(directory: Path) -> Iterator[Path]:
    """What is no data below a directory with data; through a link, git writes elsewhere."""
    pending = [directory]
    while pending:
        for entry in _entries(pending.pop()):
            path = Path(entry.path)
            if entry.is_symlink() or (entry.name == "attributes" and path.parent.name == "info"):
                yield path
            elif entry.is_dir():
                pending.append(path)


def _steps(path: Path) -> frozenset[str]:
    """The steps of a plan that run programs; none if the file is no plan."""
    if path.parts[-2:] != _PLAN.parts:
        return frozenset()
    return frozenset(line for line in _text(path).split("\n") if not _STEP.match(line))


def _text(path: Path) -> str:
    """The text of a file; "" if it is none, or a link, or can't be read."""
    try:
        is_file = path.is_file() and not path.is_symlink()
        return path.read_text("utf-8", "surrogateescape") if is_file else ""
    except OSError:
        return ""


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    """The entries of a directory; none if it is a file or a link, or git can't read it either."""
    try:
        if directory.is_symlink() or not directory.is_dir():
            return []
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def git_directories(root: Path) -> tuple[Path, ...]:
    """The git directory of the repository that `root` is in; for a linked work tree, two."""
    for directory in (root, *root.parents):
        entry = directory / ".git"
        if entry.is_dir():
            return (entry,)
        if entry.is_file():
            return _linked(entry)
    return ()


def _linked(entry: Path) -> tuple[Path, ...]:
    """The targets of a `.git` file: the directory of the work tree, and the shared directory.

    Nothing unless both look as git makes them, because the file could name any directory: only a
    repository names this work tree in turn.
    """
    try:
        text = entry.read_text("utf-8").strip()
        own = (entry.parent / text.removeprefix("gitdir: ")).resolve()
        shared = (own / (own / "commondir").read_text("utf-8").strip()).resolve()
        names_entry = (own / (own / "gitdir").read_text("utf-8").strip()).samefile(entry)
    except (OSError, ValueError):
        return ()
    is_repository = (own / "HEAD").is_file() and (shared / "objects").is_dir()
    is_below = own.is_relative_to(shared / "worktrees")
    is_tree = text.startswith("gitdir: ") and names_entry and is_repository and is_below
    return (own, shared) if is_tree else ()
