"""What a command in the background changes: it stands in a layer until that is decided on."""

import asyncio
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from shepherd.errors import ConflictError, ToolError
from shepherd.events import ignore_events
from shepherd.tasks import in_thread_to_end
from shepherd.tools.files import opening
from shepherd.tools.layer.change import Change, Deed, Marks, marks_at
from shepherd.tools.layer.commit import copy_data
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import note_committed
from shepherd.tools.layer.patch import rescue
from shepherd.tools.paths import reason
from shepherd.tools.review import LastAnswer
from shepherd.tools.sandbox.view.private import remove_tree
from shepherd.tools.settlement import Settlement, listed

KEPT = "its changes were kept"
DROPPED = "its changes were dropped"
NOTHING = "it has changed nothing"


class PendingChanges:
    """The changes of one command, which goes on after its call.

    `is_waiting` tells that there may be some. With `needs_answer` there was nobody to ask.
    """

    def __init__(self, settlement: Settlement, layer: Layer) -> None:
        prepared = settlement.prepared
        self._answer = LastAnswer(settlement.consent.approver)
        # the call has returned: what is noted now is not for its result
        self._consent = replace(settlement.consent, approver=self._answer, notes=[])
        authorize = partial(self._consent.authorize, prepared.tool)
        context = replace(prepared.context, authorize=authorize, on_event=ignore_events)
        prepared = replace(prepared, context=context)
        self._settlement = replace(settlement, consent=self._consent, prepared=prepared)
        self._layer: Layer | None = layer
        self._one_at_a_time = asyncio.Lock()
        self.needs_answer = False
        if not settlement.plan.drops_effect:
            layer.undecided.touch(mode=0o600)

    @property
    def is_waiting(self) -> bool:
        """Whether it is not decided yet what becomes of them."""
        return self._layer is not None

    async def keep(self, *, goes_on: bool = False) -> str:
        """Commit what is approved of them; returns a sentence, "" if there were none.

        What is not approved is dropped. If nobody could be asked, or something else has changed the
        same files, all wait. A command that `goes_on` may change more, so nothing is dropped.
        """
        async with self._one_at_a_time:
            layer = self._layer
            if layer is None:
                return ""
            self.needs_answer = self._answer.unanswered = False
            try:
                text = await (self._commit_so_far(layer) if goes_on else self._commit(layer))
            except ConflictError as error:
                where = listed(error.paths)
                return f"its changes wait: something else changed {where} at the same time"
            except (ToolError, OSError) as error:
                if self._answer.unanswered:
                    self.needs_answer = not goes_on
                    return "its changes wait for an answer"
                why = reason(error) if isinstance(error, OSError) else error
                text = f"its changes were not kept: {why}"
            if not goes_on:
                await self._forget()
            return text

    async def drop(self) -> str:
        """Forget what is not kept; returns a sentence, "" if there was nothing."""
        async with self._one_at_a_time:
            layer = self._layer
            try:
                return "" if layer is None or await _is_empty(layer) else DROPPED
            except ToolError:  # it can't be read
                return DROPPED
            finally:
                await self._forget()

    async def rescue(self, patches: Path) -> str:
        """Keep what is not decided as a patch; returns a sentence, "" if there was nothing."""
        layer = self._layer
        if layer is None:
            return ""
        is_kept = not self._settlement.plan.drops_effect
        try:
            return await in_thread_to_end(lambda: rescue(layer, patches)) if is_kept else ""
        finally:
            await self._forget()

    async def _commit(self, layer: Layer) -> str:
        """Commit what is approved, and say what became of the rest; raises ToolError, OSError."""
        if await _is_empty(layer):
            return ""
        self._consent.notes.clear()
        notes = await self._settlement.commit(layer)
        # a note is in brackets for the results of calls
        return "; ".join(note.strip()[1:-1] for note in [*notes, *self._consent.notes]) or KEPT

    async def _commit_so_far(self, layer: Layer) -> str:
        """The same for what a command that goes on has changed until now."""
        copied = await in_thread_to_end(lambda: copy_so_far(layer))
        try:
            effect = await asyncio.to_thread(read_effect, copied)
            expected = await asyncio.to_thread(_expected, copied, effect.changes)
            text = await self._commit(copied) or NOTHING
            await asyncio.to_thread(note_committed, layer, expected)
        finally:
            await in_thread_to_end(lambda: remove_tree(copied.upper))
        return text

    async def _forget(self) -> None:
        """Remove the layer."""
        layer, self._layer = self._layer, None
        if layer is not None:
            with suppress(OSError):  # a later session removes what is left
                await in_thread_to_end(layer.drop)


async def _is_empty(layer: Layer) -> bool:
    """Whether nothing is in a layer that could be told; raises ToolError."""
    effect = await asyncio.to_thread(read_effect, layer)
    return effect.is_empty and not effect.left_out


def _expected(layer: Layer, changes: Sequence[Change]) -> dict[str, Marks]:
    """The marks of what will be at each path if all is committed."""
    marks = {c.path: marks_at(layer.upper / c.path) for c in changes if c.deed is not Deed.DELETED}
    return {path: each for path, each in marks.items() if each is not None}


_COPY = "so-far"


def copy_so_far(layer: Layer) -> Layer:
    """A layer whose `upper` is a copy of this one's, over the same files since the same time.

    What vanishes meanwhile is left out. Raises OSError.
    """
    copied = copy(layer)
    copied.upper, copied.closed = layer.base / _COPY, {}
    remove_tree(copied.upper)  # of a copy that was not finished
    with opening.closing_descriptor(opening.open_directory(layer.upper)) as top:
        _copy_directory(top, copied.upper)
    return copied


def _copy_directory(source: int, target: Path) -> None:
    """Copy an open directory. The command may swap what is in it: nothing is followed."""
    target.mkdir()
    for name in os.listdir(source):
        with suppress(FileNotFoundError, NotADirectoryError):
            _copy_entry(source, name, target / name)
    shutil.copystat(f"/proc/self/fd/{source}", target)


def _copy_entry(directory: int, name: str, target: Path) -> None:
    """Copy what has this name in an open directory; pipes and sockets are left out."""
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        with opening.closing_descriptor(opening.enter_directory(directory, name)) as source:
            _copy_directory(source, target)
    elif stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(name, dir_fd=directory))
    elif stat.S_ISCHR(mode) and status.st_rdev == 0:  # the kernel's mark of a deleted path
        os.mknod(target, stat.S_IFCHR, 0)
    elif stat.S_ISREG(mode):
        with (
            os.fdopen(opening.open_regular_at(directory, name), "rb") as old,
            target.open("xb") as new,
        ):
            copy_data(old.fileno(), new.fileno())
            shutil.copystat(f"/proc/self/fd/{old.fileno()}", f"/proc/self/fd/{new.fileno()}")
