"""Programs as data, and their environment: no pager, no editor and no password prompt."""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from shepherd.own_programs import own_program

GIT_SECONDS = 10
_USUAL = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TZ", "USER")


def usual_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that every program may have; none of them is a secret."""
    usual = {name: environment[name] for name in _USUAL if name in environment}
    return {"TMPDIR": environment.get("TMPDIR") or tempfile.gettempdir(), **usual}


class Program(Struct, frozen=True):
    """A command line and its directory; without `stdin` it reads from /dev/null.

    The program inherits `pass_fds` in addition to the standard descriptors.
    """

    argv: Sequence[str]
    cwd: Path
    environment: Mapping[str, str] | None = None
    stdin: BinaryIO | None = None
    pass_fds: tuple[int, ...] = ()

    def start(self) -> subprocess.Popen[bytes]:
        """The process, in a session of its own and with pipes for its output; raises OSError."""
        return subprocess.Popen(
            self.argv,
            cwd=self.cwd,
            env=self.environment,
            stdin=self.stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=self.pass_fds,
        )


_QUIET = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "TERM": "dumb",
    "NO_COLOR": "1",
}
"""For the editor `:`, git changes nothing and does not start a program.

Without its optional locks, another git of the user never waits for one of Shepherd's.
"""

_GIT_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "protocol.ext.allow": "never",
    "help.autocorrect": "0",
}
"""Settings that override those of a repository.

Hooks stay on, because users expect a commit to run them. Filters and external diffs stay on, too:
git can't switch them off here, because an empty `diff.external` is an error.
"""

_OTHER_REPOSITORY = """
GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_PREFIX GIT_NAMESPACE
GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_SHALLOW_FILE GIT_GRAFT_FILE GIT_REPLACE_REF_BASE
GIT_NO_REPLACE_OBJECTS GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_IMPLICIT_WORK_TREE
"""
_OTHER_READING = "CDPATH GLOBIGNORE BASHOPTS SHELLOPTS POSIXLY_CORRECT BASH_COMPAT FCEDIT ENV"
_DROPPED = frozenset([*_OTHER_REPOSITORY.split(), *_OTHER_READING.split()])


def safe_environment() -> dict[str, str]:
    """The environment of a command: that of this process, but nothing misleads git or the shell.

    The settings for git come after those in GIT_CONFIG_COUNT, so that they win; only `git -c`
    overrides them.
    """
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, **_QUIET, **_git_settings(kept.get("GIT_CONFIG_COUNT", ""))}


def _git_settings(count: str) -> dict[str, str]:
    """The variables for git's settings, numbered after the `count` that the user has set."""
    first = int(count) if count.isascii() and count.isdigit() else 0
    variables: dict[str, str] = {}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items(), first):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return {**variables, "GIT_CONFIG_COUNT": str(first + len(_GIT_SETTINGS))}


def run_git(
    cwd: Path,
    arguments: Sequence[str],
    stdin: bytes = b"",
    seconds: float = GIT_SECONDS,
    index: Path | None = None,
) -> subprocess.CompletedProcess[bytes] | None:
    """The end of git with its output; None if it is missing, or takes longer than this.

    It may read another `index` than that of the repository.
    """
    git = own_program("git")
    if git is None:
        return None
    try:
        return subprocess.run(
            [git, *arguments],
            input=stdin,
            cwd=cwd,
            env={**safe_environment(), **({"GIT_INDEX_FILE": str(index)} if index else {})},
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def git_paths(
    cwd: Path, arguments: Sequence[str], paths: Sequence[str] = (), index: Path | None = None
) -> list[str]:
    """The paths that git prints, each ended by NUL; `paths` are its input.

    It may read another `index`. There are no paths if git is missing, fails, or takes longer than
    GIT_SECONDS.
    """
    names = "\0".join(paths).encode("utf-8", "surrogateescape")
    process = run_git(cwd, arguments, names, index=index)
    output = process.stdout.decode("utf-8", "surrogateescape") if process else ""
    return [path for path in output.split("\0") if path]
