"""The rights of a call in the sandbox, and the profile that they make with the rules for files."""

import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct

from shepherd.tools.access import Access, AccessKind, Claim
from shepherd.tools.layer.change import Change, Deed
from shepherd.tools.layer.git import GIT
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.repository import makes_repository, obeyed_part
from shepherd.tools.permissions.rules import Rule
from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.repository import git_directories, linked_programs, programs_of
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
        git = git_directories(root)
        protected |= set(linked_programs(git))
        return hidden, protected.difference(git if rights.git else ()), shielded.complete

    def _all_shielded(self, rights: Rights) -> set[Path]:
        """The hidden and protected paths in the working directory."""
        hidden, protected, _is_complete = self._shielded(rights)
        return {path for path in hidden | protected if path.is_relative_to(self._policy.cwd)}

    def held_back(self, rights: Rights, upper: Path, changes: Sequence[Change]) -> list[str]:
        """The outermost paths of changes that a call may not make without a question of its own.

        What it has changed stands in the directory `upper`.
        """
        files, _scanner = self._current_rules()
        root = self._policy.cwd
        has_git = (root / GIT).is_dir() and not (root / GIT).is_symlink()
        in_git = has_git and any(change.path.startswith(f"{GIT}/") for change in changes)
        programs = _changed_programs(root, upper, changes) if in_git else set[str]()
        held: list[str] = []
        for change in changes:
            if held and is_below(change.path, held[-1:]):
                continue  # a directory comes before what is in it
            names = change.path.split("/")
            if has_git and names[0] == GIT:
                tops = programs if len(names) > 1 or change.deed is Deed.MODE else {GIT}
                top = next((top for top in tops if is_below(change.path, [top])), "")
            elif makes_repository(root / change.path, (upper / change.path).parent):
                top = change.path
            elif rights.environments and not set(names).isdisjoint(_ENVIRONMENTS):
                continue
            else:
                top = _protected_part(names, root, files) or _obeyed_part(change, root)
            if top:
                held.append(top)
        return held

    def _current_rules(self) -> tuple[FileRules, TreeScanner]:
        """The rules for files, and the scanner, which starts anew if the rules have changed."""
        rules, cached = self._policy.rules(), self._cached
        if cached is None or cached[0] != rules:
            files = FileRules(self._policy, self._home)
            cached = self._cached = (rules, files, TreeScanner(files))
        return cached[1], cached[2]


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a relative path is one of these, or in one."""
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _protected_part(names: Sequence[str], root: Path, files: FileRules) -> str:
    """The outermost part of a path that programs run unasked or that holds secrets; "" if none."""
    for count, name in enumerate(names, 1):
        path = str(root.joinpath(*names[:count])) if files.concerns(name) else ""
        if path and (files.hides(path) or files.protects(path)):
            return "/".join(names[:count])
    return ""


def _obeyed_part(change: Change, root: Path) -> str:
    """The part of a path by which git runs programs, in a repository of any name; "" if none."""
    # what is deleted names no program
    part = None if change.deed is Deed.DELETED else obeyed_part(root / change.path, root)
    return str(part.relative_to(root)) if part else ""


def _changed_programs(root: Path, upper: Path, changes: Sequence[Change]) -> set[str]:
    """What a layer changes in the repository of `root` that could make git run programs."""
    below, place = root / GIT, upper / GIT
    old = programs_of(below)
    deleted = {change.path for change in changes if change.deed is Deed.DELETED}
    changed = {f"{GIT}/{path.relative_to(below)}" for path in old} & deleted
    for path, steps in programs_of(place, below).items():
        name = path.relative_to(place)
        if not steps or steps - old.get(below / name, frozenset()):
            changed.add(f"{GIT}/{name}")
    return changed


_READS = (AccessKind.READ, (Claim.EXACT, Claim.HELD, Claim.MENTION))
_WRITES = (AccessKind.WRITE, (Claim.EXACT, Claim.HELD))


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
