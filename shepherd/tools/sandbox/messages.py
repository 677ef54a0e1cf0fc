"""Which of the messages of a failed command come from the box, and which it would print anyway."""

import os
import re
from pathlib import Path

from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.refusal import Refusal, Refused, is_free, paths_in, refused, resolve
from shepherd.tools.sandbox.repository import git_directories
from shepherd.tools.sandbox.view.toolchains import SYSTEM

_MISSING = re.compile(r"No such file or directory|ENOENT|FileNotFoundError")
_NO_REPOSITORY = "not a git repository"
_FAILED = 1


def read_refusal(out: str, err: str, exit_code: int, profile: Profile) -> Refusal | None:
    """What the box most probably refused.

    What a command prints on stdout counts less: it may be the text of a file. A pipe may hide that
    its first command failed, so silence on stdout counts as a failure to connect.
    """
    if exit_code == 0:
        refusal = None if out.strip() else refused(err, _FAILED, profile)
        return refusal if refusal is not None and refusal.kind is Refused.NETWORK else None
    if _NO_REPOSITORY in err and _repository_is_above(profile.root):
        text = "the sandbox does not show the git repository above the working directory"
        return Refusal(Refused.READ, text)
    not_shown = _not_shown(err, profile)
    return (
        not_shown or refused(err, exit_code, profile) or _certain(refused(out, exit_code, profile))
    )


def _not_shown(err: str, profile: Profile) -> Refusal | None:
    """A file that a command did not find, though it is there, or could be."""
    for line in err.splitlines():
        for target in paths_in(line) if _MISSING.search(line) else ():
            if _is_concealed(resolve(target, profile), profile):
                return Refusal(Refused.READ, f"the sandbox does not show {target}", target)
    return None


def _is_concealed(path: Path, profile: Profile) -> bool:
    shown = (*map(Path, SYSTEM), *profile.readable, *profile.hidden)
    if is_free(path, profile) or any(path.is_relative_to(place) for place in shown):
        return False
    private = (Path("/"), Path("/tmp"), Path("/var/tmp"), profile.home)
    return os.path.lexists(path) or (path.parent.is_dir() and path.parent not in private)


def _certain(refusal: Refusal | None) -> Refusal | None:
    return None if refusal is not None and refusal.kind is Refused.SYSTEM else refusal


def _repository_is_above(root: Path) -> bool:
    return any(not directory.is_relative_to(root) for directory in git_directories(root))
