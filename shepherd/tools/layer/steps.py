"""The steps of a commit. Each can be done again, and taken back, wherever the program was killed.

Nothing is overwritten. A new file changes places with the old one, and a deleted one is moved away.
So what was there can still be looked at: if it is not what the command saw, it goes back.
"""

import errno
import os
import platform
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from shepherd.errors import ConflictError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Marks, Sort, marks_at
from shepherd.tools.sandbox.inside import native

_OWN_RIGHTS = 0o700
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}
_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100
_IN_THE_WAY = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP)


class Step(Struct, frozen=True):
    """A change. The new file is at `new`, and then the old one; a deleted one goes to `aside`."""

    change: Change
    aside: str
    new: str = ""
    new_marks: Marks | None = None


def carry_out(root: Path, steps: Sequence[Step]) -> None:
    """Do what is not done yet, or take back what is done, and raise ConflictError or OSError."""
    try:
        for act, step in _actions(steps):
            try:
                act(root, step)
            except OSError as error:
                if error.errno in _IN_THE_WAY:
                    raise ConflictError([step.change.path]) from error
                raise
    except (ConflictError, OSError):
        for act, step in _counteractions(steps):
            with suppress(OSError):  # what something else has changed stays as that left it
                act(root, step)
        raise


_Actions = Iterator[tuple[Callable[[Path, Step], None], Step]]


def _actions(steps: Sequence[Step]) -> _Actions:
    """What to do, in this order; a directory comes before what is in it."""
    for step in reversed(steps):
        if step.change.deed is Deed.DELETED:
            yield _delete, step
    for step in steps:
        if step.change.deed in (Deed.MADE, Deed.CHANGED):
            yield _place, step
    # a directory that may not be written gets its mode when it is filled
    yield from ((_set_mode, step) for step in reversed(steps))
    yield from ((_check_old, step) for step in steps)


def _counteractions(steps: Sequence[Step]) -> _Actions:
    """What takes the steps back, as far as they are done."""
    for step in reversed(steps):
        if step.change.deed in (Deed.MADE, Deed.CHANGED):
            yield _take_out, step
    for step in steps:
        if step.change.deed is Deed.DELETED:
            yield _put_back, step
    yield from ((_reset_mode, step) for step in reversed(steps))


def _delete(root: Path, step: Step) -> None:
    if step.change.sort is Sort.DIRECTORY:
        with suppress(FileNotFoundError), _parent(root, step) as (parent, name):
            os.rmdir(name, dir_fd=parent)
    elif not os.path.lexists(step.aside):
        with _parent(root, step) as (parent, name):
            os.rename(name, step.aside, src_dir_fd=parent)
    _check_old(root, step)


def _put_back(root: Path, step: Step) -> None:
    with _parent(root, step) as (parent, name):
        if step.change.sort is Sort.DIRECTORY:
            os.mkdir(name, _OWN_RIGHTS, dir_fd=parent)
            if step.change.before:
                opening.change_mode(parent, name, stat.S_IMODE(step.change.before[0]))
        elif os.path.lexists(step.aside):
            _rename((_HERE, step.aside), (parent, name), _NOREPLACE)


def _place(root: Path, step: Step) -> None:
    with _parent(root, step) as (parent, name):
        if step.change.sort is Sort.DIRECTORY:
            with suppress(FileExistsError):
                os.mkdir(name, _OWN_RIGHTS, dir_fd=parent)
        elif step.change.deed is Deed.CHANGED:
            _settle(step, parent, name)
            if marks_at(step.new) == step.new_marks:
                _exchange(step, parent, name)
        elif os.path.lexists(step.new):
            _rename((_HERE, step.new), (parent, name), _NOREPLACE)
    _check_old(root, step)


def _take_out(root: Path, step: Step) -> None:
    with _parent(root, step) as (parent, name):
        if step.change.sort is Sort.DIRECTORY:
            os.rmdir(name, dir_fd=parent)
            return
        if step.change.deed is Deed.CHANGED:
            _settle(step, parent, name)
        if marks_at(name, parent) != step.new_marks:
            return  # it is not there yet, or something else has replaced it
        if step.change.deed is Deed.CHANGED:
            _exchange(step, parent, name)
        else:
            _rename((parent, name), (_HERE, step.new), _NOREPLACE)


def _check_old(_root: Path, step: Step) -> None:
    """Raise ConflictError if what was there is not what the command saw.

    A program may go on to write to a file that it has open.
    """
    old = {Deed.CHANGED: step.new, Deed.DELETED: step.aside}.get(step.change.deed)
    if old and step.change.sort is not Sort.DIRECTORY and marks_at(old) != step.change.before:
        raise ConflictError([step.change.path])


def _set_mode(root: Path, step: Step) -> None:
    is_new = step.change.sort is Sort.DIRECTORY and step.change.deed is Deed.MADE
    if is_new or step.change.deed is Deed.MODE:
        with _parent(root, step) as (parent, name):
            opening.change_mode(parent, name, step.change.mode)


def _reset_mode(root: Path, step: Step) -> None:
    if step.change.before and step.change.deed is Deed.MODE:
        with _parent(root, step) as (parent, name):
            opening.change_mode(parent, name, stat.S_IMODE(step.change.before[0]))


@contextmanager
def _parent(root: Path, step: Step) -> Generator[tuple[int, str]]:
    """The directory of a changed path, and its name there."""
    path = root / step.change.path
    parent = opening.open_parent(path)
    with opening.closing_descriptor(parent), opening.changing_names(parent):
        yield parent, path.name


def _exchange(step: Step, parent: int, name: str) -> None:
    """Let the file at `new` and the one at its place change places."""
    try:
        _rename((_HERE, step.new), (parent, name), _EXCHANGE)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        # this file system can only rename; `_settle` helps if the program is killed here
        os.rename(name, step.aside, src_dir_fd=parent)
        os.rename(step.new, name, dst_dir_fd=parent)
        Path(step.aside).rename(step.new)


def _settle(step: Step, parent: int, name: str) -> None:
    """Take back the first part of an exchange in three, or do its last."""
    if os.path.lexists(step.aside):
        if os.path.lexists(step.new):
            _rename((_HERE, step.aside), (parent, name), _NOREPLACE)
        else:
            Path(step.aside).rename(step.new)


def _rename(source: tuple[int, str], target: tuple[int, str], flags: int) -> None:
    """`renameat2`; each path is relative to an open directory. Raises OSError."""
    number = _RENAMEAT2.get(platform.machine())
    try:
        if number is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        words = (source[0], os.fsencode(source[1]), target[0], os.fsencode(target[1]))
        native.call(number, *words, flags)
    except OSError as error:
        if flags == _EXCHANGE or error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        if marks_at(target[1], target[0]) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target[1]) from error
        os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])
