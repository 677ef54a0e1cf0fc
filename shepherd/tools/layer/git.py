"""What commands in a layer do to the repository of the working directory.

Its data may change as other files do, but git can't take everything back: not what it can't name.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Sort
from shepherd.tools.layer.layer import Layer
from shepherd.tools.program import git_paths
from shepherd.tools.text import one_line, pluralize, valid_text

GIT = ".git"
INDEX = f"{GIT}/index"
_NAMING = re.compile(rf"{re.escape(GIT)}/(?:(?:refs|logs)/.*|packed-refs|HEAD)", re.DOTALL)
_REFS = re.compile(rf"{re.escape(GIT)}/(?:refs/.*|packed-refs|HEAD)", re.DOTALL)
"""Files that name commits; the first expression has also those that say what they named before."""
_COMMIT = re.compile(rb"(?<![0-9a-f])(?!0{40})(?:[0-9a-f]{40}|[0-9a-f]{64})(?![0-9a-f])")
_REF = re.compile(rf"{re.escape(GIT)}/refs/(heads|tags|remotes|notes|stash)/?(.*)", re.DOTALL)
_NOUNS = {"heads": "branch", "tags": "tag", "remotes": "remote branch", "notes": "notes"}
_VERBS = {Deed.MADE: "made", Deed.CHANGED: "moved", Deed.DELETED: "deleted"}
_MAX_SIZE = 64 << 20
_MAX_WORDS = 8


def is_of_git(path: str) -> bool:
    """Whether a changed path is in the repository of the working directory."""
    return path.startswith(f"{GIT}/")


def lasting(changes: Sequence[Change], layer: Layer) -> list[Change]:
    """The changes without those that mean nothing later.

    These are locks that a stopped git has left, and an index in which git has only noted what it
    has looked at.
    """
    kept = [c for c in changes if not (is_of_git(c.path) and c.path.endswith(".lock"))]
    if [change.path for change in kept if is_of_git(change.path)] == [INDEX]:
        is_same = same_index(layer.root, layer.upper / INDEX, layer.root / INDEX)
        return [change for change in kept if change.path != INDEX or not is_same]
    return kept


def same_index(root: Path, *indexes: Path) -> bool:
    """Whether two indexes of a repository have the same entries."""
    if not all(index.is_file() for index in indexes):
        return False
    words = ["ls-files", "-z", "--stage", "-v"]
    now, before = (git_paths(root, words, index=index) for index in indexes)
    return bool(now) and now == before


def locked_files(changes: Sequence[Change]) -> list[str]:
    """The changed files for which git itself would make a lock, unless their directory goes."""
    paths = {change.path for change in changes}
    files = (c.path for c in changes if c.sort is not Sort.DIRECTORY and is_of_git(c.path))
    locked = (path for path in files if path == INDEX or _REFS.fullmatch(path))
    return [path for path in locked if path.rpartition("/")[0] not in paths]


def words(changes: Iterable[Change], layer: Layer) -> str:
    """What happened in the repository, such as `git: 1 commit on main, made tag v1, the index`."""
    names: list[str] = []
    packed = _data(layer.upper / GIT / "packed-refs")
    for change in changes:
        ref = _REF.fullmatch(change.path)
        if change.path == INDEX:
            names.append("the index")
        elif change.path == f"{GIT}/HEAD":
            head = _data(layer.upper / change.path).decode("utf-8", "replace").strip()
            is_commit = _COMMIT.fullmatch(head.encode()) is not None
            target = head[:12] if is_commit else head.removeprefix("ref: refs/heads/")
            names.append(f"HEAD to {one_line(target)}")
        elif ref is not None and change.sort is Sort.FILE:
            names.append(_ref_words(change, ref, layer, packed))
    names = sorted(dict.fromkeys(names), key=lambda name: name == "the index")
    more = [f"{len(names) - _MAX_WORDS} more"] if len(names) > _MAX_WORDS else []
    return f"git: {', '.join([*names[:_MAX_WORDS], *more]) or 'its own data'}"


def loss(changes: Sequence[Change], layer: Layer, is_own: Callable[[Change], bool]) -> str:
    """What git can't bring back, as it is deleted or has no name any more; "" if nothing.

    What this session has made itself (`is_own`) is no loss.
    """
    objects = [c for c in changes if c.path.startswith(f"{GIT}/objects/")]
    deleted = [c for c in objects if c.deed is Deed.DELETED and c.sort is Sort.FILE]
    number = sum(not is_own(change) for change in deleted)
    parts = [f"deletes {pluralize(number, 'object', ',')} of git"] if number else []
    if forgotten := _forgotten(changes, layer, is_own):
        names = ", ".join(one_line(valid_text(path)) for path in list(forgotten)[:_MAX_WORDS])
        commits = {commit for commits in forgotten.values() for commit in commits}
        parts.append(f"forgets {pluralize(len(commits), 'commit')} of {names}")
    return " and ".join(parts)


def _ref_words(change: Change, ref: re.Match[str], layer: Layer, packed: bytes) -> str:
    """What happened to a branch, a tag or the stash; `packed` are the refs in one file."""
    kind, name = ref[1], one_line(valid_text(ref[2]))
    if kind == "stash":
        return "the stash"
    path = change.path.removeprefix(f"{GIT}/")
    if change.deed is Deed.DELETED and f" {path}\n".encode() in packed:
        return "packed refs"
    log = f"{GIT}/logs/{path}"
    old, new = _data(layer.root / log), _data(layer.upper / log)
    commits = new[len(old) :].count(b"\tcommit") if new.startswith(old) else 0
    if commits:
        return f"{pluralize(commits, 'commit')} on {name}"
    return f"{_VERBS.get(change.deed, 'changed')} {_NOUNS[kind]} {name}"


def _forgotten(
    changes: Sequence[Change], layer: Layer, is_own: Callable[[Change], bool]
) -> dict[str, set[bytes]]:
    """The commits that files named before, and that nothing names any more."""
    naming = [c for c in changes if c.sort is not Sort.DIRECTORY and _NAMING.fullmatch(c.path)]
    old = [change.path for change in naming if change.before is not None and not is_own(change)]
    before = {path: _commits(layer.root / path) for path in old}
    kept = (change.path for change in naming if change.deed is not Deed.DELETED)
    named = {commit for path in kept for commit in _commits(layer.upper / path)}
    if any(commits - named for commits in before.values()):
        changed = {change.path for change in naming}
        others = (path for path in _naming_files(layer.root) if path not in changed)
        named |= {commit for path in others for commit in _commits(layer.root / path)}
    return {path: commits - named for path, commits in before.items() if commits - named}


def _naming_files(root: Path) -> Iterable[str]:
    """The files of the repository that name commits."""
    yield from (f"{GIT}/packed-refs", f"{GIT}/HEAD")
    for top in ("refs", "logs"):
        for directory, _, names in os.walk(root / GIT / top):
            yield from (os.path.relpath(f"{directory}/{name}", root) for name in names)


def _commits(path: Path) -> set[bytes]:
    return {match[0] for match in _COMMIT.finditer(_data(path))}


def _data(path: Path) -> bytes:
    """The content of a file; nothing if it can't be read, or is no file."""
    try:
        with os.fdopen(opening.open_regular(path), "rb") as file:
            return file.read(_MAX_SIZE)
    except OSError:
        return b""
