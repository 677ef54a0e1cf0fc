"""The directories of a project, and how the model reads their names."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shepherd.tools.text import one_line

_PROJECT_FOLDERS = (".shepherd", ".agents", ".claude")
_HOME_FOLDERS = (".agents", ".claude")
_NOT_IN_A_NAME = re.compile(r'["<>]')


@dataclass(frozen=True, slots=True)
class Project:
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


@dataclass(frozen=True, slots=True)
class Folder:
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
