"""Finds the repository that git would use, and detects changes that can make git run programs."""

import hashlib
import os
import re
import stat
from collections.abc import Container, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

from msgspec import Struct

from shepherd.tools.paths import entries_below, expand_home

_MAX_FILES = 500
_MAX_BYTES = 4 * 1024 * 1024
_MAX_INCLUDES = 20
_TRACKING = re.compile(
    rb'^\[branch "[^"\\\n]*"\]\n(?:[ \t]+(?:remote|merge|pushRemote) = [\w./-]+\n)+(?=\[|\Z)',
    re.MULTILINE,
)
"""The sections that `git push -u` and `git switch` write; they don't run programs."""

_HOOKS_PATH = re.compile(
    r'^[ \t]*hookspath[ \t]*=[ \t]*"?([^"\n]+?)"?[ \t]*$', re.IGNORECASE | re.MULTILINE
)
_INCLUDED = re.compile(
    r'^[ \t]*path[ \t]*=[ \t]*"?([^"\n]+?)"?[ \t]*$', re.IGNORECASE | re.MULTILINE
)
_ALWAYS_ASK = "its settings files are too many or too large"


class Doubt(Struct, frozen=True):
    """The reason why git may not run somewhere, and a hash of the settings that it would use."""

    text: str = ""
    settings: str = ""


class RepositoryGuard:
    """Remembers the state of the working directory's repository from the start of the session."""

    def __init__(self, cwd: Path) -> None:
        entry = find_repository(cwd)
        self._fingerprints: dict[Path, str] = {entry: fingerprint(entry)} if entry else {}

    def doubt(self, place: Path) -> Doubt:
        """The reason why git needs approval in `place`; its text is empty if git may run."""
        entry = find_repository(place)
        if entry is None:
            return Doubt()
        current = fingerprint(entry)
        return Doubt(self._doubt(entry, current), current)

    def accept(self, place: Path, doubt: Doubt) -> bool:
        """Record the settings that the user approved as trusted.

        Returns False, and records nothing, if they have changed since the request.
        """
        entry = find_repository(place)
        current = self.doubt(place)
        if entry is None or current.text != doubt.text:  # the user was not asked about this one
            return True
        if current != doubt:
            return False
        self._fingerprints[entry] = current.settings
        return True

    def _doubt(self, entry: Path, current: str) -> str:
        """Why the settings with the fingerprint `current` need approval; "" if they don't."""
        if not current:
            return f"git runs with the settings of {entry}: {_ALWAYS_ASK}"
        if entry not in self._fingerprints:
            return f"git runs with the settings of another repository: {entry}"
        if current != self._fingerprints[entry]:
            return f"hooks or settings of git have changed since the session began: {entry}"
        return ""


def find_repository(place: Path) -> Path | None:
    """The `.git` of the nearest directory that has one, or a directory with the same structure."""
    for directory in (place, *place.parents):
        entry = directory / ".git"
        if os.path.lexists(entry):
            return entry
        if is_repository(directory):
            return directory
    return None


_PARTS = ("HEAD", "objects", "refs", "commondir")


def makes_repository(path: Path, layer: Path | None = None) -> bool:
    """Whether git takes a directory for a repository once it holds `path`, and not without it.

    git looks at each directory above its own, and obeys what it takes for its settings, whatever
    the directory's name. Further parts may stand in `layer`, which stands for that directory.
    """
    if path.name not in _PARTS or is_repository(path.parent):
        return False
    made = {name for name in _PARTS if layer and os.path.lexists(layer / name)}
    return is_repository(path.parent, made | {path.name})


def git_reason(path: Path, root: Path, *, is_held: bool) -> str:
    """Why a file that is written below `root` may make git run programs; "" if it can't.

    `is_held`: something else protects the settings of a repository that is there.
    """
    below = (part for part in (path, *path.parents) if root in part.parents)
    if any(map(makes_repository, below)):
        return "git would take its directory for a repository"
    is_safe = is_held or obeyed_part(path, root) is None
    return "" if is_safe else "git runs programs by it"


OBEYED = frozenset({"config", "config.worktree", "commondir", "hooks"})
"""Names in a repository by which git runs programs."""


def obeyed_part(path: Path, root: Path) -> Path | None:
    """The settings or hooks of a repository below `root` that a path is, or is in; None if none.

    The repository's directory may have any name.
    """
    for part in (path, *path.parents):
        directory = part.parent
        if root not in part.parents:
            return None
        if part.name == "attributes" and directory.name == "info":
            directory = directory.parent
        elif part.name not in OBEYED:
            continue
        if is_repository(directory):
            return part
    return None


def is_repository(directory: Path, made: Container[str] = ()) -> bool:
    """Whether a directory has the parts of a repository, with those that are `made` there."""
    return has_parts({n for n in _PARTS if n in made or os.path.lexists(directory / n)})


def has_parts(names: AbstractSet[str]) -> bool:
    """Whether a directory with these names has the parts of a repository."""
    return "HEAD" in names and ("commondir" in names or names >= {"objects", "refs"})


def fingerprint(entry: Path) -> str:
    """A hash over the files that can make git run programs; "" if too many or too large."""
    digest = hashlib.sha256()
    remaining_bytes = _MAX_BYTES
    try:
        for count, path in enumerate(_files(entry)):
            content = _content(path)
            remaining_bytes -= len(content)
            if count >= _MAX_FILES or remaining_bytes < 0:
                return ""
            digest.update(repr((str(path), content)).encode())
    except OSError:
        return ""
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """What stands for a file in a fingerprint: its content, or its status if it has none."""
    try:
        status = path.stat()
    except OSError as error:  # that a file is missing is a state, too: it could be made
        return f"{error.errno}".encode()
    if stat.S_ISDIR(status.st_mode):
        return b"a directory"
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
        return f"{status.st_mode} {status.st_size} {status.st_mtime_ns}".encode()
    content = path.read_bytes()
    return _TRACKING.sub(b"", content) if path.name == "config" else content


def _files(entry: Path) -> Iterator[Path]:
    """The files that can make git run programs, in the repository and in the home directory."""
    # the `.git` of a linked work tree is a file; its directory names the one that all share
    own = _target(entry, "gitdir:") if entry.is_file() else entry
    common = _target(own / "commondir", "") if (own / "commondir").is_file() else own
    top = entry.parent if entry.name == ".git" else entry
    home = Path("~").expanduser()
    configs = [common / "config", own / "config.worktree"]
    configs += [home / ".gitconfig", home / ".config/git/config"]
    yield from (entry, own / "commondir", own / "gitdir", common / "info/attributes")
    yield top / ".pre-commit-config.yaml"
    directories = [common / "hooks", common / "remotes", common / "branches"]
    for config in _with_included(configs):
        yield config
        directories += _hook_directories(config, top)
    for directory in dict.fromkeys(directories):
        yield from _below(directory)


def _target(file: Path, prefix: str) -> Path:
    """The directory that a one-line pointer file of git names."""
    text = file.read_bytes()[:4096].decode("utf-8", "replace").strip()
    return file.parent / text.removeprefix(prefix).strip()


def _with_included(configs: list[Path]) -> Iterator[Path]:
    """The settings files and, of each, those that it includes."""
    pending, done = list(configs), set[Path]()
    while pending:
        config = pending.pop(0)
        if config in done:
            continue
        if len(done) > _MAX_INCLUDES:  # `fingerprint` then trusts nothing
            raise OSError("too many included files")
        done.add(config)
        yield config
        pending += [_beside(config.parent, name) for name in _INCLUDED.findall(_text(config))]


def _hook_directories(config: Path, top: Path) -> list[Path]:
    """The directories in which git looks for hooks by this settings file."""
    directories = [_beside(top, name) for name in _HOOKS_PATH.findall(_text(config))]
    # husky sets `.husky/_`, whose scripts run those in `.husky`
    return [*directories, *(directory.parent for directory in directories if directory.name == "_")]


def _beside(directory: Path, name: str) -> Path:
    """The path that a setting names, relative to a directory or to the home."""
    return directory / expand_home(name)


def _text(config: Path) -> str:
    """The text of a settings file; for a missing one, digits in which no setting is found."""
    return _content(config).decode("utf-8", "replace")


def _below(directory: Path) -> list[Path]:
    """All files in a directory except git's samples, which never run."""
    paths = (Path(entry.path) for entry in entries_below(directory))
    # of more than these, `fingerprint` takes none
    return sorted(islice((path for path in paths if path.suffix != ".sample"), _MAX_FILES + 1))
