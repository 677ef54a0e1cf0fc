"""The steps of a commit. Each can be done again, and taken back, wherever the program was killed.

Nothing is overwritten. A new file changes places with the old one, which is then moved aside, as a
deleted one is. There it is looked at: if it is not what the command saw, all files go back.
"""

import errno
import os
import platform
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from shepherd.errors import ConflictError
from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Marks, Sort, marks_at
from shepherd.tools.sandbox.inside import native

_OWN_RIGHTS = 0o700
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}  # boxes with layers know no other machines
_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS)  # by the file system
_IN_THE_WAY = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP)


class Step(Struct, frozen=True):
    """A change: the new file comes from `new`, the old one goes to `aside`.

    Both may be relative to a directory; see `in_directory`.
    """

    change: Change
    aside: str
    new: str = ""
    new_marks: Marks | None = None


def in_directory(directory: int, steps: Sequence[Step]) -> list[Step]:
    """The steps with paths in an open directory, which something else may move away."""
    top = Path(f"/proc/self/fd/{directory}")
    return [
        replace(step, aside=str(top / step.aside), new=step.new and str(top / step.new))
        for step in steps
    ]


def carry_out(root: Path, steps: Sequence[Step]) -> None:
    """Do what is not done yet, or take back what is done, and raise ConflictError or OSError."""
    with closing(_Parents(root)) as parents:
        try:
            for act, step in _actions(steps):
                try:
                    act(step, parents)
                except OSError as error:
                    if error.errno in _IN_THE_WAY:
                        raise ConflictError([step.change.path]) from error
                    raise
        except (ConflictError, OSError):
            for act, step in _counteractions(steps):
                with suppress(OSError):  # what something else has changed stays as that left it
                    act(step, parents)
            raise


class _Parents:
    """The directories of changed paths; the last one stays open, as the next path is often there.

    Its names can be changed meanwhile, whatever its mode.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path: str | None = None
        self._opened = ExitStack()
        self._descriptor = -1

    def of(self, step: Step) -> tuple[int, str]:
        """The directory of a changed path, and its name there. Raises OSError."""
        path, _, name = step.change.path.rpartition("/")
        if path != self._path:
            self.close()
            opened = opening.closing_descriptor(opening.open_parent(self._root / path / name))
            self._descriptor = self._opened.enter_context(opened)
            self._opened.enter_context(opening.changing_names(self._descriptor))
            self._path = path
        return self._descriptor, name

    def close(self) -> None:
        """Close the directory, which gets its own mode."""
        self._path = None
        self._opened.close()


_Actions = Iterator[tuple[Callable[[Step, _Parents], None], Step]]


def _actions(steps: Sequence[Step]) -> _Actions:
    """What to do, in this order; a directory comes before what is in it."""
    for step in reversed(steps):
        if step.change.deed is Deed.DELETED:
            yield _remove_directory if _is_directory(step) else _put_aside, step
    for step in steps:
        if step.change.deed in (Deed.MADE, Deed.CHANGED):
            yield _make_directory if _is_directory(step) else _place, step
    for step in reversed(steps):  # a directory that may not be written gets its mode at the end
        if step.change.deed is Deed.MODE or (step.change.deed is Deed.MADE and _is_directory(step)):
            yield _set_mode, step
    yield from ((_check, step) for step in steps)


def _counteractions(steps: Sequence[Step]) -> _Actions:
    """What takes the steps back, as far as they are done."""
    for step in reversed(steps):
        if step.change.deed in (Deed.MADE, Deed.CHANGED):
            yield _remove_directory if _is_directory(step) else _take_out, step
    for step in steps:
        if step.change.deed is Deed.DELETED and _is_directory(step):
            yield _make_directory, step
        yield _put_back, step
    yield from ((_reset_mode, step) for step in reversed(steps) if step.change.before)


def _is_directory(step: Step) -> bool:
    return step.change.sort is Sort.DIRECTORY


def _remove_directory(step: Step, parents: _Parents) -> None:
    try:
        parent, name = parents.of(step)
        os.rmdir(name, dir_fd=parent)
    except OSError as error:  # what takes its place may be there already
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise


def _make_directory(step: Step, parents: _Parents) -> None:
    parent, name = parents.of(step)
    try:
        os.mkdir(name, _OWN_RIGHTS, dir_fd=parent)
    except FileExistsError:
        mode, *_ = marks_at(name, parent) or (0,)
        if not stat.S_ISDIR(mode):
            raise


def _put_aside(step: Step, parents: _Parents) -> None:
    if not os.path.lexists(step.aside):
        parent, name = parents.of(step)
        os.rename(name, step.aside, src_dir_fd=parent)


def _put_back(step: Step, parents: _Parents) -> None:
    if os.path.lexists(step.aside):
        _rename((_HERE, step.aside), parents.of(step), _NOREPLACE)


def _place(step: Step, parents: _Parents) -> None:
    if step.change.deed is Deed.CHANGED:
        is_new = marks_at(step.new) == step.new_marks
        if is_new and not os.path.lexists(step.aside):
            try:
                _rename((_HERE, step.new), parents.of(step), _EXCHANGE)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                _put_aside(step, parents)
        _put_exchanged_aside(step)
    if os.path.lexists(step.new):
        _rename((_HERE, step.new), parents.of(step), _NOREPLACE)


def _take_out(step: Step, parents: _Parents) -> None:
    _put_exchanged_aside(step)
    parent, name = parents.of(step)
    # something else may have replaced it
    if marks_at(name, parent) == step.new_marks:
        _rename((parent, name), (_HERE, step.new), _NOREPLACE)


def _put_exchanged_aside(step: Step) -> None:
    if marks_at(step.new) not in (None, step.new_marks):
        Path(step.new).rename(step.aside)


def _check(step: Step, _parents: _Parents) -> None:
    """Raise ConflictError if the old file is not what the command saw.

    A program may also go on to write to a file that it has open.
    """
    if os.path.lexists(step.aside) and marks_at(step.aside) != step.change.before:
        raise ConflictError([step.change.path])


def _set_mode(step: Step, parents: _Parents) -> None:
    parent, name = parents.of(step)
    now, before = marks_at(name, parent), step.change.before
    if now and before and not _is_directory(step) and now[1:] != before[1:]:
        raise ConflictError([step.change.path])
    opening.change_mode(parent, name, step.change.mode)


def _reset_mode(step: Step, parents: _Parents) -> None:
    mode, *_ = step.change.before or (step.change.mode,)
    if step.change.deed is Deed.MODE or _is_directory(step):
        opening.change_mode(*parents.of(step), stat.S_IMODE(mode))


def _rename(source: tuple[int, str], target: tuple[int, str], flag: int) -> None:
    """`renameat2`; each path is relative to an open directory. Raises OSError."""
    words = (source[0], os.fsencode(source[1]), target[0], os.fsencode(target[1]))
    try:
        native.call(_RENAMEAT2[platform.machine()], *words, flag)
    except OSError as error:
        if flag != _NOREPLACE or error.errno not in _UNSUPPORTED:
            raise
        if marks_at(target[1], target[0]) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target[1]) from error
        os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])
