"""The rights of a call in the sandbox, and the profile that they make with the rules for files."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct

from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.layer.change import Change, Deed
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.repository import makes_repository
from shepherd.tools.permissions.rules import Rule
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.repository import git_directories, programs_of
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.sandbox.view.tree import TreeScanner

MAX_GRANTED = 32
"""Files outside the working directory that an approved command line may name and reach."""

_ENVIRONMENTS = (".venv", "venv", "node_modules")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys", "/dev")


class Rights(Struct, frozen=True):
    """Additional rights of one call in the sandbox.

    `git` makes the repository writable, except for hooks and settings that run programs.
    `environments` makes virtual environments and installed packages writable. `files` are approved
    accesses. With `read_only` the call can't write anywhere, except to its private directories.
    With `through` it changes files as it goes, without a layer.
    """

    network: bool = False
    outside: bool = False
    git: bool = False
    environments: bool = False
    files: tuple[Access, ...] = ()
    read_only: bool = False
    through: bool = False


NO_RIGHTS = Rights()


class Shielding:
    """Builds profiles; caches its scan of the working directory."""

    def __init__(self, policy: PermissionPolicy, sandbox: Sandbox, spill_dir: Path) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._spill_dir = spill_dir
        self._home = Path("~").expanduser().resolve()
        # what was made of the rules for files, as long as these stay the same
        self._cached: tuple[list[Rule], FileRules, TreeScanner] | None = None

    def profile(self, cwd: Path, rights: Rights) -> tuple[Profile, bool]:
        """The profile of a call in `cwd`, and whether it is complete.

        It is incomplete if the working directory is too large to find all secrets in it.
        """
        hidden, protected, is_complete = self._shielded(rights)
        root = self._policy.cwd
        git = git_directories(root) if rights.git else ()
        profile = Profile(
            root=root,
            cwd=cwd,
            home=self._home,
            protected=tuple(sorted(protected)),
            hidden=tuple(sorted(hidden)),
            readable=(self._spill_dir, *self._sandbox.readable, *_granted(rights, root, _READS)),
            writable=(*self._sandbox.writable, *git, *_granted(rights, root, _WRITES)),
            network=rights.network,
            read_only=rights.read_only,
            repositories=tuple(Path(os.path.realpath(directory)) for directory in git),
            find_shielded=partial(self._all_shielded, rights) if rights.through else None,
        )
        return profile, is_complete

    def _shielded(self, rights: Rights) -> tuple[set[Path], set[Path], bool]:
        """The hidden and the protected paths, and whether these are all."""
        files, scanner = self._current_rules()
        root = self._policy.cwd
        # files that the rules name by patterns are looked for, those with a full path are known
        shielded = scanner.scan(str(root))
        hidden, protected = {*map(Path, shielded.hidden)}, {*map(Path, shielded.protected)}
        for name in files.known_paths():
            path = Path(os.path.realpath(name))
            if files.hides(name) or files.hides(str(path)):
                hidden.add(path)
            elif path.is_relative_to(root) and files.protects(str(path)):
                protected.add(path)
        protected |= {root / name for name in files.startup_names}  # most do not exist yet
        if rights.environments:
            protected = {path for path in protected if path.name not in _ENVIRONMENTS}
        git = git_directories(root) if rights.git else ()
        return hidden, protected.difference(git), shielded.complete

    def _all_shielded(self, rights: Rights) -> set[Path]:
        """The hidden and protected paths in the working directory."""
        hidden, protected, _is_complete = self._shielded(rights)
        return {path for path in hidden | protected if path.is_relative_to(self._policy.cwd)}

    def held_back(self, rights: Rights, upper: Path, changes: Iterable[Change]) -> list[str]:
        """The changed paths that a call with these rights may not make without a question.

        What it has made stands in the directory `upper`.
        """
        files, _scanner = self._current_rules()
        root = self._policy.cwd
        git = git_directories(root) if rights.git else ()
        programs = _new_programs(git, root, upper)
        open_names = _ENVIRONMENTS if rights.environments else ()
        held: list[str] = []
        for change in changes:
            path = root / change.path
            if held and path.is_relative_to(root / held[-1]):
                continue  # a directory comes before what is in it
            if any(path.is_relative_to(directory) for directory in git):
                is_of_program = not programs.isdisjoint((path, *path.parents))
                may_run = is_of_program or (path in git and change.deed is not Deed.MODE)
            elif path.name in open_names or not files.concerns(path.name):
                may_run = makes_repository(path, (upper / change.path).parent)
            else:
                may_run = files.hides(str(path)) or files.protects(str(path))
            if may_run:
                held.append(change.path)
        return held

    def _current_rules(self) -> tuple[FileRules, TreeScanner]:
        """The rules for files, and the scanner, which starts anew if the rules have changed."""
        rules, cached = self._policy.rules(), self._cached
        if cached is None or cached[0] != rules:
            files = FileRules(self._policy, self._home)
            cached = self._cached = (rules, files, TreeScanner(files))
        return cached[1], cached[2]


def _new_programs(git: Sequence[Path], root: Path, upper: Path) -> set[Path]:
    """What a layer adds to git directories in `root` that could make git run programs."""
    added: set[Path] = set()
    for directory in git:
        if directory.is_relative_to(root):
            place = upper / directory.relative_to(root)
            old = programs_of(directory)
            for path, steps in programs_of(place, directory).items():
                same = directory / path.relative_to(place)
                if not steps or steps - old.get(same, frozenset()):
                    added.add(same)
    return added


_READS = (AccessKind.READ, (Claim.EXACT, Claim.MENTION))
_WRITES = (AccessKind.WRITE, (Claim.EXACT,))


def _granted(
    rights: Rights, root: Path, accesses: tuple[AccessKind, Sequence[Claim]]
) -> Iterable[Path]:
    """The approved files outside of `root`, without directories that contain it."""
    kind, claims = accesses
    paths = (Path(a.target) for a in rights.files if a.kind is kind and a.claim in claims)
    return islice((path for path in paths if _is_apart(path, root)), MAX_GRANTED)


def _is_apart(path: Path, root: Path) -> bool:
    """Whether a path exists and opens neither the root, nor the home directory, nor the system."""
    home = Path("~").expanduser()
    if path.is_relative_to(root) or root.is_relative_to(path) or home.is_relative_to(path):
        return False
    return not any(path.is_relative_to(place) for place in _SYSTEM) and path.exists()
