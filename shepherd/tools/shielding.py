"""The sandbox profile of a command, derived from the rules of a session."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shepherd.tools.base import Access, AccessKind, Claim
from shepherd.tools.permissions.files import FileRules
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.permissions.rules import Rule
from shepherd.tools.sandbox.profile import RUNS_PROGRAMS, Profile, git_directories
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.tools.sandbox.view.tree import TreeScanner

MAX_GRANTED = 32
"""Files outside the working directory that an approved command line may name and reach."""

_ENVIRONMENTS = (".venv", "venv")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys", "/dev")


@dataclass(frozen=True, slots=True)
class Rights:
    """Additional rights of one call in the sandbox.

    `git` makes the repository writable, except for hooks and settings that run programs.
    `environments` makes Python's virtual environments writable. `files` are approved accesses.
    With `read_only` the call can't write anywhere, except to its private directories.
    """

    network: bool = False
    outside: bool = False
    git: bool = False
    environments: bool = False
    files: tuple[Access, ...] = ()
    read_only: bool = False


NO_RIGHTS = Rights()


class Shielding:
    """Builds profiles; caches its scan of the working directory."""

    def __init__(self, policy: PermissionPolicy, sandbox: Sandbox, spill_dir: Path) -> None:
        self._policy = policy
        self._sandbox = sandbox
        self._spill_dir = spill_dir
        self._home = Path("~").expanduser().resolve()
        self._cached: tuple[list[Rule], FileRules, TreeScanner] | None = None

    def profile(self, cwd: Path, rights: Rights) -> tuple[Profile, bool]:
        """The profile of a call in `cwd`, and whether it is complete.

        It is incomplete if the working directory is too large to find all secrets in it.
        """
        files, scanner = self._up_to_date()
        root = self._policy.cwd
        shielded = scanner.scan(str(root))
        hidden, protected = {*map(Path, shielded.hidden)}, {*map(Path, shielded.protected)}
        for name in files.known_paths():
            path = Path(os.path.realpath(name))
            if files.hides(name) or files.hides(str(path)):
                hidden.add(path)
            elif path.is_relative_to(root) and files.protects(str(path)):
                protected.add(path)
        protected |= {root / name for name in files.startup_names}
        if rights.environments:
            protected = {path for path in protected if path.name not in _ENVIRONMENTS}
        writable, git_protected = _repository(root) if rights.git else ((), ())
        protected = {path for path in protected if path not in writable} | {*git_protected}
        profile = Profile(
            root=root,
            cwd=cwd,
            home=self._home,
            protected=tuple(sorted(protected)),
            hidden=tuple(sorted(hidden)),
            readable=(self._spill_dir, *self._sandbox.readable, *_granted(rights, root, _READS)),
            writable=(*self._sandbox.writable, *writable, *_granted(rights, root, _WRITES)),
            network=rights.network,
            read_only=rights.read_only,
        )
        return profile, shielded.complete

    def _up_to_date(self) -> tuple[FileRules, TreeScanner]:
        rules, cached = self._policy.rules(), self._cached
        if cached is None or cached[0] != rules:
            files = FileRules(self._policy, self._home)
            cached = self._cached = (rules, files, TreeScanner(files))
        return cached[1], cached[2]


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
    home = Path("~").expanduser()
    if path.is_relative_to(root) or root.is_relative_to(path) or home.is_relative_to(path):
        return False
    return not any(path.is_relative_to(place) for place in _SYSTEM) and path.exists()


def _repository(root: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The git directories of `root`, and the paths in them that stay read-only."""
    directories = git_directories(root)
    return directories, tuple(d / name for d in directories for name in RUNS_PROGRAMS)
