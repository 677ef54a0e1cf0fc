"""Carries what stands in a layer to the real files: all of it or nothing.

All steps are written down before. If the program is killed, the next one finishes them.
"""

import errno
import json
import os
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, convert, to_builtins

from shepherd.config.files import write_private
from shepherd.errors import ConflictError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Sort, marks_at
from shepherd.tools.layer.git import locked_files
from shepherd.tools.layer.layer import Layer, copy_of, locked, stale_layers
from shepherd.tools.layer.merge import keep_bases
from shepherd.tools.layer.steps import Step, carry_out, in_directory
from shepherd.tools.sandbox.inside import native
from shepherd.tools.sandbox.view.private import remove_tree

_INTENT = "intent.json"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ASIDE = "aside"
_LOCK = "lock"
_MAX_SYNCED = 16
"""The number of files that are written to the disk one by one."""


class _Intent(Struct, frozen=True):
    """What a commit does in `root`; a directory comes before what is in it.

    Files that are replaced go to `aside`, where there are also copies of new ones. No git changes
    what has one of the `locks` meanwhile.
    """

    root: str
    aside: str
    steps: tuple[Step, ...]
    locks: tuple[str, ...] = ()


def commit(layer: Layer, changes: Sequence[Change]) -> None:
    """Make the changes real, which `reconcile` has checked; then the layer is of no more use.

    Raises ConflictError if something else has changed one of the files since, or OSError; then
    nothing is changed, and the layer is as before. If the program is killed, `recover` does the
    rest.
    """
    is_near = layer.upper.stat().st_dev == layer.root.stat().st_dev
    aside = layer.base / _ASIDE if is_near else copy_of(layer.base)
    journal = layer.base / _INTENT
    aside.mkdir(mode=0o700)
    try:
        # commands in the background may see it; what they put there is not followed
        with opening.closing_descriptor(opening.open_directory(aside)) as directory:
            copies = None if is_near else directory
            steps = [_step(layer, c, str(n), copies) for n, c in enumerate(changes)]
            locks = tuple(f"{path}.lock" for path in locked_files(changes))
            intent = _Intent(str(layer.root), str(aside), tuple(steps), locks)
            steps = in_directory(directory, steps)
            _sync(directory, steps)
            with locked(layer.base.parent):
                for other in layer.others():
                    with suppress(OSError):  # then there is no merge
                        keep_bases(other, layer.root, [change.path for change in changes])
                write_private(journal, json.dumps(to_builtins(intent)))  # names may be no Unicode
                try:
                    with _git_locks(intent, directory):
                        carry_out(layer.root, steps)
                finally:
                    journal.unlink()
    finally:
        remove_tree(aside)


def has_intent(base: Path) -> bool:
    """Whether a commit of the layer in `base` has begun."""
    return (base / _INTENT).exists()


def recover(place: Path) -> list[Path]:
    """End what killed programs have begun: finish their commits, and drop their other layers.

    A commit is taken back if something else has changed its files. Returns the roots in which a
    commit was finished. Raises OSError.
    """
    finished: list[Path] = []
    for base in stale_layers(place):
        with suppress(FileNotFoundError):  # without an intent, nothing was changed
            intent = convert(json.loads((base / _INTENT).read_text("ascii")), _Intent)
            if not Path(intent.root).is_dir():
                continue  # its disk may come back
            with (
                suppress(ConflictError, OSError),
                opening.closing_descriptor(opening.open_directory(Path(intent.aside))) as aside,
            ):
                _unlock(intent, aside)
                carry_out(Path(intent.root), in_directory(aside, intent.steps))
                finished.append(Path(intent.root))
            (base / _INTENT).unlink()
        with suppress(FileNotFoundError):  # it was killed before it made its link
            remove_tree(copy_of(base))
        remove_tree(base)
    return finished


@contextmanager
def _git_locks(intent: _Intent, aside: int) -> Generator[None]:
    """A context with git's locks; raises ConflictError if a git of the user has one of them.

    All are links to one file, so that they can be told from others.
    """
    try:
        if intent.locks:
            os.close(os.open(_LOCK, _NEW_FILE, 0o600, dir_fd=aside))
        for lock in intent.locks:
            place = Path(intent.root, lock)
            try:
                with opening.closing_descriptor(opening.open_parent(place)) as parent:
                    os.link(_LOCK, place.name, src_dir_fd=aside, dst_dir_fd=parent)
            except PermissionError:
                continue  # a file system without hard links
            except OSError as error:
                raise ConflictError([f"{lock} (git is at work)"]) from error
        yield
    finally:
        _unlock(intent, aside)


def _unlock(intent: _Intent, aside: int) -> None:
    """Remove the locks of a commit, but none of another program."""
    own = marks_at(_LOCK, aside)
    for lock in intent.locks if own else ():
        place = Path(intent.root, lock)
        with suppress(OSError), opening.closing_descriptor(opening.open_parent(place)) as parent:
            if marks_at(place.name, parent) == own:
                os.unlink(place.name, dir_fd=parent)


def _sync(aside: int, steps: Sequence[Step]) -> None:
    """Write to the disk what replaces files, as layers do not: a loss of power must not lose both.

    Other files of the disk may be many, so they are only written along if that is faster.
    """
    changed = [s.new for s in steps if s.change.deed is Deed.CHANGED and s.change.sort is Sort.FILE]
    if len(changed) > _MAX_SYNCED:
        native.sync_files(aside)
        return
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    for path in changed:
        with (
            suppress(PermissionError),  # nobody may read it
            opening.closing_descriptor(os.open(path, flags)) as descriptor,
        ):
            os.fdatasync(descriptor)


def _step(layer: Layer, change: Change, number: str, copies: int | None) -> Step:
    """How to make a change; a new file is copied to the directory `copies`, if there is one."""
    aside, new = f"{number}-old", layer.upper / change.path
    if change.sort is Sort.DIRECTORY or change.deed not in (Deed.MADE, Deed.CHANGED):
        return Step(change, aside)
    marks = marks_at(new)
    if marks and change.sort is Sort.FILE:
        # the kernel's notes about the layer
        names = [name for name in os.listxattr(new) if name.startswith("user.overlay.")]
        if names or stat.S_IMODE(marks[0]) != change.mode:
            new.chmod(change.mode | stat.S_IRUSR | stat.S_IWUSR)
            for name in names:
                os.removexattr(new, name)
            if copies is None:
                new.chmod(change.mode)
    if copies is None:
        return Step(change, aside, str(new), marks_at(new))
    copy = f"{number}-new"
    _copy(new, copy, copies, change.mode)
    return Step(change, aside, copy, marks_at(copy, copies))


def _copy(source: Path, name: str, directory: int, mode: int) -> None:
    """Copy a file or a link to an open directory in which nothing has this name."""
    if source.is_symlink():
        os.symlink(source.readlink(), name, dir_fd=directory)
        return
    descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=directory)
    with source.open("rb") as old, os.fdopen(descriptor, "wb") as new:
        copy_data(old.fileno(), new.fileno())
        shutil.copystat(source, f"/proc/self/fd/{new.fileno()}")
        os.fchmod(new.fileno(), mode)


def copy_data(old: int, new: int) -> None:
    """Copy a file's content; holes stay holes, so that it takes no more room."""
    at, size = 0, os.fstat(old).st_size
    os.truncate(new, size)
    while at < size:
        try:
            at = os.lseek(old, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the rest is a hole
                return
            raise
        end = os.lseek(old, at, os.SEEK_HOLE)
        os.lseek(new, at, os.SEEK_SET)
        while at < end:
            at += os.sendfile(new, old, at, end - at)
