"""A working directory whose changes are kept, and small views of it."""

import os
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shepherd.config.section import ApproveMode
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.permissions.policy import PermissionPolicy
from shepherd.tools.sandbox.sandbox import Sandbox
from shepherd.undo.keeper import UndoKeeper
from shepherd.undo.store import UndoLimits
from tests.tools.workshop import Workshop, open_workshop

Tree = dict[str, tuple[int, bytes]]


def view(root: Path) -> Tree:
    """Each path below `root` with its mode and content; a link's content is its target."""
    tree: Tree = {}
    for path in root.rglob("*"):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            tree[str(path.relative_to(root))] = (0, os.fsencode(path.readlink()))
        else:
            data = path.read_bytes() if path.is_file() else b""
            tree[str(path.relative_to(root))] = (status.st_mode, data)
    return tree


@dataclass
class Project:
    """A workshop with a keeper; `place` is the number of the next message."""

    workshop: Workshop
    keeper: UndoKeeper
    warnings: list[str] = field(default_factory=list[str])
    place: int = 0

    @property
    def root(self) -> Path:
        """The working directory."""
        return self.workshop.root

    async def call(self, name: str, /, **arguments: Any) -> str:
        """The text of a call's result; each call is a message."""
        self.place += 1
        return await self.workshop.call(name, **arguments)


@asynccontextmanager
async def open_project(
    base: Path,
    limits: UndoLimits | None = None,
    session: str = "one",
    keeper_class: Callable[..., UndoKeeper] = UndoKeeper,
    sandbox: Sandbox | None = None,
) -> AsyncGenerator[Project]:
    """A project below `base`; the same session is found again."""
    workshop = open_workshop(base, mode=ApproveMode.ALL, sandbox=sandbox)
    policy = PermissionPolicy(workshop.root)
    warnings: list[str] = []

    def protects(path: Path) -> bool:
        return policy.denies("read_file", Access(AccessKind.READ, str(path)))

    store = base / "state" / "undo.db"
    keeper = keeper_class(store, workshop.root, limits or UndoLimits(), protects, warnings.append)
    project = Project(workshop, keeper, warnings)
    keeper.begin(session, lambda: project.place)
    workshop.runner.undo = keeper
    try:
        yield project
    finally:
        await keeper.aclose()
