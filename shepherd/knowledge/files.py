"""Finds and reads the files that become part of a prompt: only what no rule refuses."""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

from msgspec import Struct, field

from shepherd.errors import ToolError
from shepherd.tools.access import READ_FILE, Access, AccessKind
from shepherd.tools.files import opening, textfile
from shepherd.tools.files.access import FileAccess
from shepherd.tools.permissions import content, rules
from shepherd.tools.permissions.defaults import default_rules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.text import one_line, plain_text, valid_text
from shepherd.tools.tool import ToolContext

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
        # The name stands in a frame of tags, which a file must not be able to end.
        return _NOT_IN_A_NAME.sub("?", one_line(text))


class Location(Struct, frozen=True):
    """A folder of skills or of commands, or an entry of it; no link may lead out of `root`."""

    path: Path
    root: Path
    of_user: bool


def folders(project: Project, kind: str) -> Iterator[Location]:
    """The folders of a kind, such as `skills`: the user's first, then the nearest to `cwd`."""
    yield Location(project.config / kind, project.home, of_user=True)
    for name in _HOME_FOLDERS:
        yield Location(project.home / name / kind, project.home, of_user=True)
    for directory in reversed(project.directories):
        if directory == project.home:
            continue  # its folders are the user's, and came before
        for name in _PROJECT_FOLDERS:
            yield Location(directory / name / kind, project.root, of_user=False)


class Named(Struct, frozen=True, kw_only=True):
    """A skill or a command; `place` is where it really lies."""

    name: str
    of_user: bool
    place: Path


N = TypeVar("N", bound=Named)


def find_named(
    project: Project,
    kind: str,
    is_one: Callable[[Path], bool],
    read: Callable[[Location], N],
    warn: Callable[[str], None],
) -> list[N]:
    """All of a kind, such as `skills`; the first of a name wins, which is the user's.

    `is_one` tells whether an entry of a folder can be one. `read` raises ToolError for one that
    can't be used; `warn` then gets a sentence.
    """
    word = kind.removesuffix("s")
    by_name: dict[str, N] = {}
    for folder in folders(project, kind):
        for path in filter(is_one, _entries(folder.path)):
            root = folder.root
            if folder.of_user and not path.is_relative_to(root):
                root = folder.path.resolve()  # a user may keep settings outside of the home
            try:
                item = read(Location(path, root, folder.of_user))
            except ToolError as error:
                warn(f"This {word} is not used: {error}")
                continue
            first = by_name.setdefault(item.name, item)
            if first.place != item.place:  # else a link led to the same one again
                owner = "the user's" if first.of_user else "another one"
                warn(f"The {word} {project.name(path)} is not used: {owner} has the same name.")
    return list(by_name.values())


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder by name, at most MAX_ENTRIES of them."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MAX_ENTRIES))
    except OSError:  # most folders do not exist
        return []
    return [folder / name for name in names]


def _root(cwd: Path) -> Path:
    """The nearest directory with a `.git` of a trusted owner, as git itself demands."""
    owners = {os.geteuid(), 0, cwd.stat().st_uid}  # the user, root, and who owns the directory
    for directory in (cwd, *cwd.parents):
        try:
            if (directory / ".git").lstat().st_uid in owners:
                return directory
        except OSError:  # there is none, or it can't be seen
            continue
    return cwd


MAX_CHARACTERS = 16_384
_BLOCK = re.compile(r"\A---[ \t]*\n(?P<block>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"^(?P<key>[A-Za-z][\w-]*):[ \t]*(?P<value>\S.*?)[ \t]*$", re.MULTILINE)


class Document(Struct, frozen=True):
    """A text, and the values of its front matter that are texts or numbers."""

    body: str
    values: dict[str, str] = field(default_factory=dict[str, str])

    def line(self, key: str) -> str:
        """The value on one line, "" if there is none."""
        return " ".join(self.values.get(key, "").split())


def split_front_matter(text: str) -> Document:
    """The document; a text without front matter is all body. Raises ToolError."""
    match = _BLOCK.match(text)
    if match is None:
        return Document(text.strip())
    if len(match["block"]) > MAX_CHARACTERS:
        raise ToolError(f"the front matter has more than {MAX_CHARACTERS} characters")
    return Document(text[match.end() :].strip(), _front_matter(match["block"]))


def _front_matter(block: str) -> dict[str, str]:
    """The values of a block between `---` that are texts or numbers, by their keys.

    A block that is not YAML is read line by line, as other agents do: `key: a: b`.
    """
    import yaml  # only for files that have front matter

    try:
        data = cast(object, yaml.safe_load(block))
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: of a date such as 2026-99-99
        return {line["key"]: line["value"].strip("\"'") for line in _LINE.finditer(block)}
    if not isinstance(data, dict):
        return {}
    items = cast(dict[object, object], data).items()
    return {str(key): str(value) for key, value in items if isinstance(value, str | int | float)}


_HIDDEN = re.compile("[\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]")
"""Characters with which a file could say something to a model that no reader sees."""


class FileText(Struct, frozen=True):
    """A file's text without hidden characters, and the number of bytes that were not read."""

    path: Path
    text: str
    unread: int = 0


class KnowledgeFiles(Struct, frozen=True, eq=False):
    """Reads files below a root under the rules of a conversation; it asks nobody."""

    policy: PermissionPolicy
    spill_dir: Path

    def read(self, path: Path, root: Path, limit: int, name: str) -> FileText:
        """At most `limit` bytes of the file; links are followed, but not out of `root`.

        Raises ToolError if it lies elsewhere, if a rule refuses it, or if it is not text. `name`
        is how the error calls it.
        """
        real = Path(os.path.realpath(path))
        access = Access(AccessKind.READ, str(real))
        self._check(real, root, access, name)
        context = ToolContext(
            self.policy.cwd,
            self.spill_dir,
            denies=partial(self.policy.denies, READ_FILE),
            grants=frozenset({access}),
        )
        with opening.file_errors(name), FileAccess(context).open(real) as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(limit + 1)
        encoding = textfile.detect(data)
        if encoding is None:
            raise ToolError(f"it is not text: {name}")
        text = data[:limit].decode(encoding.codec, "ignore")  # a character may be cut in two
        clean = _HIDDEN.sub("", plain_text(valid_text(text)))
        return FileText(real, clean, max(0, size - limit))

    def _check(self, real: Path, root: Path, access: Access, name: str) -> None:
        """Raise ToolError unless a conversation may read the file without a question."""
        if not real.is_relative_to(root):
            raise ToolError(f"it leads out of {root}: {name}")
        if self.policy.denies(READ_FILE, access):
            raise ToolError(f"denied by rule: {name}")
        if content.is_key_file(real):
            raise ToolError(f"it holds a private key: {name}")
        verdict = self.policy.decide_one(READ_FILE, access)
        # Nobody is there to be asked; a default rule asks for what lies outside of the project.
        is_users_rule = verdict.rule not in default_rules()
        if verdict.decision is not rules.Decision.ALLOW and is_users_rule:
            raise ToolError(f"a rule asks before it is read: {name}")
