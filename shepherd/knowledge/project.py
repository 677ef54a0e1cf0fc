"""The directories of a project, and how the model reads their names."""

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from shepherd.errors import ToolError
from shepherd.tools.text import one_line

MAX_ENTRIES = 200
"""Entries of one folder that are looked at."""

_PROJECT_FOLDERS = (".shepherd", ".agents", ".claude")
_HOME_FOLDERS = (".agents", ".claude")
_NOT_IN_A_NAME = re.compile(r'["<>]')


class Project(Struct, frozen=True):
    """The directories of a conversation, all resolved; `root` contains `cwd`."""

    cwd: Path
    root: Path
    home: Path
    config: Path

    @classmethod
    def around(cls, cwd: Path, config: Path) -> "Project":
        """The project of `cwd`: the git repository around it, else `cwd` alone."""
        cwd = cwd.resolve()
        home = Path("~").expanduser().resolve()
        return cls(cwd, _root(cwd), home, Path(os.path.realpath(config)))

    @property
    def directories(self) -> list[Path]:
        """The directories from the root down to `cwd`."""
        below = self.cwd.relative_to(self.root).parts
        return [self.root.joinpath(*below[:depth]) for depth in range(len(below) + 1)]

    def name(self, path: Path) -> str:
        """The path as the model and the user read it, on one line."""
        text = str(path)
        if path.is_relative_to(self.root):
            text = os.path.relpath(path, self.cwd)
        elif path.is_relative_to(self.home):
            text = f"~/{path.relative_to(self.home)}"
        return _NOT_IN_A_NAME.sub("?", one_line(text))


class Folder(Struct, frozen=True):
    """A folder of skills or of commands, and whose it is."""

    path: Path
    root: Path
    of_user: bool


def folders(project: Project, kind: str) -> Iterator[Folder]:
    """The folders of a kind, such as `skills`: the user's first, then the nearest to `cwd`."""
    yield Folder(project.config / kind, project.home, of_user=True)
    for name in _HOME_FOLDERS:
        yield Folder(project.home / name / kind, project.home, of_user=True)
    for directory in reversed(project.directories):
        if directory == project.home:
            continue
        for name in _PROJECT_FOLDERS:
            yield Folder(directory / name / kind, project.root, of_user=False)


class Named(Protocol):
    """A skill or a command; `place` is where it really lies."""

    @property
    def name(self) -> str: ...

    @property
    def of_user(self) -> bool: ...

    @property
    def place(self) -> Path: ...


N = TypeVar("N", bound=Named)


class Kind(Struct, Generic[N], frozen=True):
    """A kind of file in folders of a name, such as `skills`; `word` names one of them.

    `is_one` tells whether an entry of such a folder can be one, and `read` reads it from below a
    directory out of which no link may lead; it raises ToolError.
    """

    folder: str
    word: str
    is_one: Callable[[Path], bool]
    read: Callable[[Path, Folder, Path], N]


def find_named(project: Project, kind: Kind[N], warn: Callable[[str], None]) -> dict[str, N]:
    """All of a kind by their names; the first of a name wins, which is the user's.

    `warn` gets a sentence for each that can't be used.
    """
    result: dict[str, N] = {}
    for folder in folders(project, kind.folder):
        for path in filter(kind.is_one, _entries(folder.path)):
            root = folder.root
            if folder.of_user and not path.is_relative_to(root):
                root = folder.path.resolve()
            try:
                item = kind.read(path, folder, root)
            except ToolError as error:
                warn(f"This {kind.word} is not used: {error}")
                continue
            other = result.setdefault(item.name, item)
            if other.place != item.place:
                owner = "the user's" if other.of_user else "another one"
                name = project.name(path)
                warn(f"The {kind.word} {name} is not used: {owner} has the same name.")
    return result


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder by name, at most MAX_ENTRIES of them."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
    except OSError:
        return []
    return [folder / name for name in names]


def _root(cwd: Path) -> Path:
    """The nearest directory with a `.git` of a trusted owner, as git itself demands."""
    owners = {os.geteuid(), 0, cwd.stat().st_uid}
    for directory in (cwd, *cwd.parents):
        try:
            if (directory / ".git").lstat().st_uid in owners:
                return directory
        except OSError:  # there is none, or it can't be seen
            continue
    return cwd
