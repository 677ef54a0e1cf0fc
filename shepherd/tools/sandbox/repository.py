"""The git repository that a directory is in, and what in it runs programs."""

from pathlib import Path

RUNS_PROGRAMS = ("config", "config.worktree", "hooks", "info", "modules")
"""What in a git directory runs programs, or names some."""


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
    """Where a `.git` file leads: a directory of the work tree alone, and the one with all else."""
    try:
        text = entry.read_text("utf-8").strip()
        own = (entry.parent / text.removeprefix("gitdir: ")).resolve()
        shared_by = own / "commondir"
        shared = (own / shared_by.read_text("utf-8").strip()).resolve()
    except (OSError, ValueError):
        return ()
    is_repository = (own / "HEAD").is_file() and (shared / "objects").is_dir()
    is_below = own.is_relative_to(shared / "worktrees")
    return (own, shared) if text.startswith("gitdir: ") and is_repository and is_below else ()
