"""What commands have done in layers, made again and again to be committed in forks."""

import errno
import os
import random
import shutil
import signal
import subprocess
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from shepherd.tools.layer.change import Change
from shepherd.tools.layer.commit import commit
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import reconcile
from shepherd.tools.sandbox.inside import native
from tests.tools.layer.running import BOX, make_lines, run_layered
from tests.tools.sandbox.boxes import need
from tests.undo.project import Tree, view

_STEPS = ("rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "chmod", "fsync", "open")


@dataclass(frozen=True)
class Story:
    """A tree, and what some commands did to it in a layer."""

    root: Path
    upper: Path
    before: Tree
    after: Tree

    def copy(self, root: Path) -> None:
        """Make the tree as it was before the commands."""
        subprocess.run(["cp", "-a", self.root, root], check=True)

    def layer(self, place: Path, root: Path) -> tuple[Layer, list[Change]]:
        """A layer over a copy in which the commands have run, and its changes."""
        layer = Layer(place, root)
        layer.upper.rmdir()
        subprocess.run(["cp", "-a", self.upper, layer.upper], check=True)
        changes, _merged = reconcile(layer, read_effect(layer).changes)
        return layer, changes


def tell(base: Path, seed: int) -> Story:
    """The story of this seed; its commands change something."""
    need(BOX)
    chance = random.Random(seed)
    root, plain = base / "told", base / "plain"
    while True:
        for directory in (root, plain):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        start, line = (
            "; ".join(make_lines(chance) + make_lines(chance)),
            "; ".join(make_lines(chance)),
        )
        subprocess.run(["bash", "-c", start], cwd=root, capture_output=True, check=False)
        shutil.copytree(root, plain, symlinks=True, dirs_exist_ok=True)
        subprocess.run(["bash", "-c", line], cwd=plain, capture_output=True, check=False)
        if len(view(root).items() ^ view(plain).items()) > 2:
            break
    return _in_layer(base, root, line, view(plain))


def tell_of_git(base: Path) -> Story:
    """A story of lines of git."""
    need(BOX)
    root, plain = base / "told", base / "plain"
    root.mkdir(parents=True)
    setup = """git init -q -b main --template= .; git config user.name a; git config user.email b
        echo 1 > one; git add .; git commit -qm one; git branch -q old"""
    subprocess.run(["bash", "-ec", setup], cwd=root, check=True)
    line = """export GIT_AUTHOR_DATE=2026-01-01T00:00 GIT_COMMITTER_DATE=2026-01-01T00:00
        echo 2 > one; git commit -qam two; git branch -D old; git switch -qc new/est; git tag v1"""
    shutil.copytree(root, plain)
    story = _in_layer(base, root, line, {})
    layer, changes = story.layer(base / "second", plain)
    commit(layer, changes)
    layer.drop()
    return replace(story, after=view(plain))


def _in_layer(base: Path, root: Path, line: str, after: Tree) -> Story:
    """The story of a line."""
    layer = Layer(base / "first", root)
    run_layered(BOX, root, layer, line)
    upper = base / "upper"
    subprocess.run(["cp", "-a", layer.upper, upper], check=True)
    layer.drop()
    return Story(root, upper, view(root), after)


@contextmanager
def other_file_system() -> Generator[Path]:
    """A directory that is not on the file system of temporary files."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        pytest.skip("there is no other file system")
    base = shared / f"shepherd-test-{os.getpid()}"
    try:
        yield base
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextmanager
def without_exchange() -> Generator[None]:
    """As on a file system that can only rename."""

    def refuse(*_arguments: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    call = native.call
    native.call = refuse
    try:
        yield
    finally:
        native.call = call


def in_fork(work: Callable[[], object]) -> int:
    """Do the work in a fork, and wait; 0 if it has ended well, or minus the signal."""
    return wait_for(fork(work))


def fork(work: Callable[[], object]) -> int:
    """The number of a process that does the work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which it does not use
        process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - a fork must not go on as the test
        traceback.print_exc()
    finally:
        os._exit(code)


def wait_for(process: int) -> int:
    """How a process has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def at_step(number: int, act: Callable[[], object]) -> None:
    """Act before the system call of this number that changes something, in a fork."""
    left = number

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                act()
            return function(*arguments, **options)

        return call

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))
    native.call = counted(native.call)


def die() -> None:
    """End at once, as a killed program does."""
    os.kill(os.getpid(), signal.SIGKILL)
