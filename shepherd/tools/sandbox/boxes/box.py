"""The interface of boxes."""

import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from shepherd.tools.files.opening import closing_descriptor, open_parent
from shepherd.tools.program import Program
from shepherd.tools.sandbox import helpers
from shepherd.tools.sandbox.profile import SHARED_MEMORY, Profile, resource_limits
from shepherd.tools.sandbox.refusal import Refusal, Refused
from shepherd.tools.sandbox.repository import programs_of
from shepherd.tools.sandbox.seccomp import FilterOptions, Network, filter_for_this_machine
from shepherd.tools.sandbox.view.layout import mounts
from shepherd.tools.sandbox.view.private import PrivateFiles, boxed_environment, private_files
from shepherd.tools.sandbox.view.toolchains import HOME_STARTUP, real
from shepherd.tools.text import one_line

Report = Callable[[Refusal], None]
"""Receives each refusal or reverted change of a box that is certain."""


def ignore_refusals(_refusal: Refusal) -> None:
    """A `Report` that drops everything."""


class Attempt(Struct, frozen=True):
    """The test of one box: the reason if it can't be used, and advice."""

    name: str
    ok: bool
    reason: str = ""
    advice: str = ""


class Box(Protocol):
    """One way to confine a program; `takes_layers` tells whether a profile may have one."""

    name: str
    takes_layers: bool

    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> AbstractContextManager[Program]:
        """The `program` inside the box; leave the context after the program has ended.

        Raises ToolError if the profile can't be enforced. `report` is called when the context ends.
        No process from inside the box is alive afterwards.
        """
        ...


_MAX_NAMES = 1000
_MAX_ENTRIES = 2000
_MAX_NAMED = 3
_CACHES = re.compile(
    r"tmp[a-z0-9_]{6,8}|pytest-of-.*|pip-.*|npm-.*|node-.*|v8-.*|go-build.*|go-link-.*|hsperfdata_.*"
    r"|cc[A-Za-z0-9]{6}\..*|rustc.*|cargo-.*|uv-.*|matplotlib-.*|yarn--.*|bunx-.*|tsx-.*|jest_.*"
    r"|\.(?:cache|npm|node-gyp|local|cargo|gradle|m2|config|nv|bun|yarn|mypy_cache|ruff_cache|X.*"
    r"|dotnet|nuget|java|pki|python_history|lesshst|wget-hsts|bash_history|sqlite_history|.*-unix)"
)
"""Caches and temporary files of programs, which are not needed afterwards."""


class Watch:
    """Removes files that a command created at such paths, after it has ended."""

    def __init__(self, profile: Profile) -> None:
        """Record the state before the command."""
        root, home = real(profile.root), real(profile.home)
        paths = [*profile.fixed]
        if home.is_relative_to(root):  # else a command can't write to the home directory
            paths += [home / name for name in HOME_STARTUP]
        # the place of a link itself is watched, not that of its target
        places = [real(path.parent) / path.name for path in paths]
        if profile.layer is not None:  # what appears below a layer is not the command's
            places = [place for place in places if not place.is_relative_to(root)]
        self._missing = [place for place in places if not os.path.lexists(place)]
        self._links = {place: place.readlink() for place in places if place.is_symlink()}
        self._programs = {git: programs_of(git) for git in profile.direct_repositories}
        self._shielded = {*profile.protected, *profile.hidden}
        self._find_shielded = profile.find_shielded or self._shielded.copy

    def undo(self, report: Report) -> None:
        """Rename created files, restore links, and report both. Raises OSError."""
        new = sorted(self._find_shielded() - self._shielded)  # a directory before what is in it
        for place in (*self._missing, *self._links, *self._new_programs(), *new):
            # a command in the background may put a link in a directory's place
            with suppress(OSError), closing_descriptor(open_parent(place)) as directory:
                _restore(place, directory, self._links.get(place), report)

    def _new_programs(self) -> Iterator[Path]:
        """What was added to git directories that could make git run programs."""
        for git, before in self._programs.items():
            for path, steps in programs_of(git).items():
                if path not in before or steps - before[path]:
                    yield path


def _restore(place: Path, directory: int, target: Path | None, report: Report) -> None:
    """Make `place` the link to `target` that it was, or nothing if there was none."""
    kind = _kind(place.name, directory)
    if kind == stat.S_IFLNK and os.readlink(place.name, dir_fd=directory) == str(target):
        return  # still the link that it was
    if kind is not None:
        _move_aside(place, directory, report)
    if target is not None:
        os.symlink(target, place.name, dir_fd=directory)


def _kind(name: str, directory: int) -> int | None:
    """The type of a file; None if there is none."""
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _move_aside(place: Path, directory: int, report: Report) -> None:
    """Rename a created file to `NAME.refused-1` or the next free name, and report it."""
    names = (f"{place.name}.refused-{n}" for n in range(1, _MAX_NAMES))
    aside = next(name for name in names if _kind(name, directory) is None)
    os.rename(place.name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    names = f"{one_line(place.name)}: it was moved to {one_line(aside)}"
    text = f"the sandbox refused to create {names}"
    report(Refusal(Refused.WRITE, text, str(place)))


def report_leftovers(private: PrivateFiles, home: Path, report: Report) -> None:
    """Report the files that are deleted with the command's private /tmp and home directory."""
    lost = [*_files(private.temp, Path("/tmp")), *_files(private.home, home)]
    if not lost:
        return
    names = ", ".join(map(one_line, lost[:_MAX_NAMED]))
    more = f" and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
    text = f"{names}{more}: /tmp and the home directory are the command's own and end with it"
    report(Refusal(Refused.LOST, f"not kept: {text}"))


def _files(place: Path, visible_path: Path) -> Iterator[str]:
    """The files below `place` that have content, named as the command saw them."""
    pending, count = [str(place)], 0
    while pending and count < _MAX_ENTRIES:  # a few names are reported, and the user waits
        directory = pending.pop()
        try:
            with os.scandir(directory) as entries:
                result = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue  # unreadable, or too deep
        count += len(result)
        for entry in result:
            if directory == str(place) and _CACHES.fullmatch(entry.name):
                continue  # nobody misses it
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False) and _size(entry):
                yield f"{visible_path}{entry.path.removeprefix(str(place))}"


def _size(entry: os.DirEntry[str]) -> int:
    """The size of a file; 0 if its directory is closed."""
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


_PATIENT = """trap '' INT TERM
exec "$0" "$@"
"""
"""Of what surrounds the command, nothing ends by a signal before the command does."""


class HelperBox(ABC):
    """A box whose helper encloses itself and becomes the command."""

    name: str
    takes_layers: bool

    @contextmanager
    def enter(
        self, program: Program, profile: Profile, report: Report = ignore_refusals
    ) -> Generator[Program]:
        """See `Box.enter`.

        At the end, changes of paths that mounts can't protect are taken back, and lost files are
        reported.
        """
        with ExitStack() as resources:  # the end goes backwards: first the box
            private = resources.enter_context(private_files())
            resources.callback(report_leftovers, private, real(profile.home), report)
            resources.callback(Watch(profile).undo, report)
            info = resources.enter_context(helpers.first_process())
            main, orders = self._orders(program, profile, private)
            content = helpers.payload({**orders, "info": info})
            code = resources.enter_context(helpers.memory_file(content))
            argv = self._argv(helpers.helper_argv(main, code), profile, info)
            yield replace(
                program,
                argv=["/bin/sh", "-c", _PATIENT, *argv],
                cwd=Path("/"),
                environment=helpers.helper_environment(),
                pass_fds=(*program.pass_fds, code, info),
            )

    @abstractmethod
    def _orders(
        self, program: Program, profile: Profile, private: PrivateFiles
    ) -> tuple[Callable[..., None], dict[str, object]]:
        """What the helper runs, and its `Orders`.

        Raises ToolError if the box can't enforce the profile.
        """

    def _argv(self, helper: list[str], profile: Profile, info: int) -> list[str]:
        """The command line that starts the helper; `info` is a descriptor of `first_process`."""
        return helper


def common_orders(program: Program, profile: Profile, private: PrivateFiles) -> dict[str, object]:
    """The orders that are the same in all boxes."""
    return {
        "command": list(program.argv),
        "cwd": str(real(profile.cwd)),
        "limits": resource_limits(profile.limits),
        "pass_fds": program.pass_fds,
        "network": profile.network,
        "new_root": str(private.new_root),
        "shared_memory": SHARED_MEMORY,
        "processes": profile.limits.processes,
    }


def separate_orders(program: Program, profile: Profile, private: PrivateFiles) -> dict[str, object]:
    """The orders for namespaces; raises ToolError."""
    environment = boxed_environment(program.environment, temp="/tmp")
    visible = mounts(profile, private, environment)
    network = Network.INTERNET if profile.network else Network.OWN
    return {
        **common_orders(program, profile, private),
        "environment": environment,
        "mounts": [(int(m.kind), str(m.target), str(m.source)) for m in visible],
        "filter": filter_for_this_machine(FilterOptions(network)),
    }
