"""One run of a call, whose changes are kept: committed from its layer, and recorded for /undo."""

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from shepherd.errors import ConflictError, ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.access import Access, AccessKind
from shepherd.tools.layer.effect import read_effect
from shepherd.tools.layer.layer import Layer
from shepherd.tools.paths import reason
from shepherd.tools.pending import PendingChanges
from shepherd.tools.permissions.approval import harmless_error
from shepherd.tools.settlement import Settlement, listed
from shepherd.tools.tool import AnyTool, Authorize, ToolContext, ToolResult


class Attempt:
    """A context in which the call runs once; without `keep`, the changes in `layer` are dropped.

    Its task may be cancelled at any time.
    """

    def __init__(self, settlement: Settlement, layer: Layer | None) -> None:
        self._settlement = settlement
        self._prepared = settlement.prepared
        self._undo = settlement.undo
        self._layer = layer

    async def __aenter__(self) -> Self:
        if self._layer is None and self._undo is not None:
            await self._undo.before(self._prepared)
        return self

    async def run(self) -> ToolResult:
        """Run the call; an error becomes the result."""
        try:
            context = replace(self._prepared.context, hand_over=self.hand_over)
            return await _run_in_time(self._prepared.tool, self._prepared.arguments, context)
        except ToolError as error:
            return failure(error)

    def hand_over(self) -> PendingChanges | None:
        """The changes of programs that go on after the call; `keep` does not keep them then."""
        layer, self._layer = self._layer, None
        if layer is None:
            return None
        self._undo = None  # it is told when they are kept
        return PendingChanges(self._settlement, layer)

    async def changed(self) -> tuple[Access, ...]:
        """What the run has changed in its layer, which a run without one is to keep for /undo."""
        if self._layer is None:
            return ()
        try:
            effect = await asyncio.to_thread(read_effect, self._layer)
        except ToolError:  # this layer is dropped in any case
            return ()
        root = self._layer.root
        return tuple(Access(AccessKind.WRITE, str(root / c.path)) for c in effect.changes)

    async def keep(self, result: ToolResult) -> ToolResult:
        """Make the changes of the run real; the result has notes about those that can't be."""
        layer, self._layer = self._layer, None
        if layer is not None:
            try:
                notes = await self._settlement.commit(layer)
            except ConflictError as error:
                why = f"something else changed {listed(error.paths)} at the same time"
                notes = [f"[no change was kept: {why}. Look at it, then run the command again]"]
            except (ToolError, OSError) as error:
                why = reason(error) if isinstance(error, OSError) else error
                notes = [f"[its changes were not kept: {why}]"]
            finally:
                await in_thread_to_end(layer.drop)
            return replace(result, content="\n".join([result.content, *notes]))
        if self._undo is None:
            return result
        return await self._undo.after(self._prepared, result)

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._layer is not None:
            await in_thread_to_end(self._layer.drop)


def failure(error: ToolError) -> ToolResult:
    """The result of a call that an error has ended."""
    return ToolResult(f"Error: {harmless_error(error)}", ok=False)


async def _authorize_untimed(
    deadline: asyncio.Timeout, authorize: Authorize, access: Access, purpose: str
) -> bool:
    """Authorize; the time that the user needs to answer does not count."""
    loop = asyncio.get_running_loop()
    started, end = loop.time(), deadline.when()
    deadline.reschedule(None)  # it stops until the answer
    try:
        return await authorize(access, purpose)
    finally:
        if end is not None:
            deadline.reschedule(end + loop.time() - started)


async def _run_in_time(tool: AnyTool, arguments: Any, context: ToolContext) -> ToolResult:
    """Run the tool; raises ToolError if it takes longer than its deadline."""
    seconds = tool.deadline(arguments, context)
    deadline = asyncio.timeout(seconds)
    context = replace(context, authorize=partial(_authorize_untimed, deadline, context.authorize))
    try:
        async with deadline:
            return await tool.run(arguments, context)
    except TimeoutError as error:
        if not deadline.expired():
            raise  # the tool's own, for example of a connection
        raise ToolError(f"timed out after {seconds:g} s") from error
