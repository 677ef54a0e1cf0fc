"""Turns refusals of a box into text for the model and the user."""

import os
import re
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from shepherd.tools.sandbox.profile import Profile
from shepherd.tools.sandbox.repository import git_directories
from shepherd.tools.sandbox.view.toolchains import SYSTEM

_NETWORK = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|Network is (?:unreachable|down)|EAI_AGAIN|ENETUNREACH|Address family not supported"
    r"|getaddrinfo|No route to host|EAFNOSUPPORT|Connection refused|ECONNREFUSED"
    r"|Failed to connect|Couldn't connect",
    re.IGNORECASE,
)
_LIMITS = (
    ("file size", re.compile(r"File size limit exceeded|File too large|EFBIG")),
    ("open files", re.compile(r"Too many open files|EMFILE")),
    (
        "processes",
        re.compile(r"fork: (?:retry: )?Resource temporarily unavailable|can't start new"),
    ),
    ("memory", re.compile(r"Cannot allocate memory|MemoryError|out of memory|ENOMEM|bad_alloc")),
)
_SIGNALS = {128 + 24: "processor time", 128 + 25: "file size"}
_BAD_SYSTEM_CALL = 128 + 31
# a protected path is a mount, which is busy
_READ_ONLY = re.compile(r"Read-only file system|EROFS|Device or resource busy|EBUSY")
_DENIED = re.compile(r"Permission denied|EACCES|Operation not permitted|EPERM")
_PATH = re.compile(r"[`'\"‘(]?([^\s'\"`‘’:,;()/]*/[^\s'\"`’:,;()]+)")
_RENAMED = re.compile(r"cross-device link|EXDEV", re.IGNORECASE)
_HARD_LINK = re.compile(r"hard link|os\.link|, link '", re.IGNORECASE)
_OF_ANOTHER_GROUP = re.compile(r"too large for defined data type|EOVERFLOW", re.IGNORECASE)
_MISSING = re.compile(r"No such file or directory|ENOENT|FileNotFoundError")
_NO_REPOSITORY = "not a git repository"
_FAILED = 1


class Refused(StrEnum):
    """The kind of a refusal."""

    NETWORK = "network"
    WRITE = "write"
    READ = "read"
    LIMIT = "limit"
    SYSTEM = "system"
    LAYER = "layer"  # what no layer can do
    LOST = "lost"  # not refused, but deleted after the command


class Refusal(Struct, frozen=True):
    """One refusal: `target` is a path or the name of a limit, if it is known."""

    kind: Refused
    text: str
    target: str = ""


def refused(output: str, exit_code: int, profile: Profile) -> Refusal | None:
    """The most probable refusal for a failed command.

    It reads the messages of programs, so it may miss a refusal.
    """
    if exit_code == 0:
        return None
    # the order of certainty: a limit ends by a signal, "denied" may come from anything
    limit = _limit(output, exit_code)
    if limit is not None:
        return Refusal(Refused.LIMIT, f"the sandbox's limit on {limit} was reached", limit)
    line = _line(_READ_ONLY, output)
    if line is not None:
        return _path_refusal(Refused.WRITE, "writing", line, profile)
    if not profile.network and _NETWORK.search(output):
        return Refusal(Refused.NETWORK, "the sandbox has no network")
    return _denied(output, exit_code, profile)


def _limit(output: str, exit_code: int) -> str | None:
    """The name of the limit that ended a program, by its signal or its message."""
    if exit_code in _SIGNALS:
        return _SIGNALS[exit_code]
    return next((name for name, pattern in _LIMITS if pattern.search(output)), None)


def _denied(output: str, exit_code: int, profile: Profile) -> Refusal | None:
    """A refused path, or else a refused system call."""
    line = _line(_DENIED, output)
    if line is not None and _PATH.search(line):
        return _path_refusal(Refused.READ, "access to", line, profile)
    if line is not None or exit_code == _BAD_SYSTEM_CALL:
        return Refusal(Refused.SYSTEM, "the sandbox refused a system call")
    return None


def _line(pattern: re.Pattern[str], output: str) -> str | None:
    """The first line that the pattern is in."""
    return next((line for line in output.splitlines() if pattern.search(line)), None)


def paths_in(line: str) -> list[str]:
    """The paths that a message names, without the program that prints it (`PROGRAM: PATH: …`)."""
    before, _, after = line.partition(":")
    names_program = ":" in after and _PATH.fullmatch(before) is not None
    return list(_PATH.findall(after if names_program else line))


def _path_refusal(kind: Refused, action: str, line: str, profile: Profile) -> Refusal | None:
    """The refusal that a line reports; None if it names only unrestricted paths."""
    paths = paths_in(line)
    restricted = [path for path in paths if not is_free(resolve(path, profile), profile)]
    if paths and not restricted:
        return None
    target = restricted[0] if restricted else ""
    place = target or "a path that is read-only in it"
    return Refusal(kind, f"the sandbox refused {action} {place}", target)


def resolve(target: str, profile: Profile) -> Path:
    """A path from a message, without links; `~` is the home directory of the profile."""
    relative = target.removeprefix("~/")
    start = profile.cwd if relative == target else profile.home
    return Path(os.path.realpath(start / relative))


def is_free(path: Path, profile: Profile) -> bool:
    """Whether the box does not restrict a path."""
    if not any(path.is_relative_to(place) for place in (profile.root, *profile.writable)):
        return False
    restricted = (*profile.fixed, *profile.hidden)
    # what contains a restricted path can't be renamed or removed
    return not any(path.is_relative_to(r) or r.is_relative_to(path) for r in restricted)


def read_refusal(out: str, err: str, exit_code: int, profile: Profile) -> Refusal | None:
    """The most probable refusal of the box.

    Text on stdout counts less, because it may be the content of a file. A pipe may hide the failure
    of its first command, so empty stdout can mean a failed connection.
    """
    if exit_code and profile.layer is not None and (text := _beyond_layers(out + err, profile)):
        return Refusal(Refused.LAYER, text)
    if exit_code == 0:
        refusal = None if out.strip() else refused(err, _FAILED, profile)
        return refusal if refusal is not None and refusal.kind is Refused.NETWORK else None
    if _NO_REPOSITORY in err and _repository_is_above(profile.root):
        text = "the sandbox does not show the git repository above the working directory"
        return Refusal(Refused.READ, text)
    return (
        _concealed(err, profile)
        or refused(err, exit_code, profile)
        or _certain(refused(out, exit_code, profile))
    )


def _beyond_layers(output: str, profile: Profile) -> str:
    """What no layer can do, of all that failed; "" if it may fail without one too."""
    if _OF_ANOTHER_GROUP.search(output):
        return "what belongs to another group can't be changed before the command has ended"
    for line in filter(_RENAMED.search, output.splitlines()):
        # only folders that were there before; most programs copy them then, but not all
        places = [resolve(path, profile) for path in paths_in(line)]
        is_inside = all(p.is_relative_to(profile.root) and is_free(p, profile) for p in places)
        if is_inside and not _HARD_LINK.search(line):
            return "a folder can't be renamed before the command has ended"
    return ""


def _concealed(err: str, profile: Profile) -> Refusal | None:
    """The refusal for a file that the command did not find, although it exists or could exist."""
    for line in err.splitlines():
        if not _MISSING.search(line):
            continue
        for target in paths_in(line):
            if _is_concealed(resolve(target, profile), profile):
                return Refusal(Refused.READ, f"the sandbox does not show {target}", target)
    return None


def _is_concealed(path: Path, profile: Profile) -> bool:
    """Whether the box does not show a path, which exists outside or could exist there."""
    visible = (*map(Path, SYSTEM), *profile.readable, *profile.hidden)
    if is_free(path, profile) or any(path.is_relative_to(place) for place in visible):
        return False
    # the box has these, though not what is in them: what is missing outside, too, is just missing
    private = (Path("/"), Path("/tmp"), Path("/var/tmp"), profile.home)
    return os.path.lexists(path) or (os.path.lexists(path.parent) and path.parent not in private)


def _certain(refusal: Refusal | None) -> Refusal | None:
    """The refusal, unless only a word such as "denied" in ordinary output suggests it."""
    return None if refusal is not None and refusal.kind is Refused.SYSTEM else refusal


def _repository_is_above(root: Path) -> bool:
    """Whether git finds its repository outside of the working directory."""
    return any(not directory.is_relative_to(root) for directory in git_directories(root))
