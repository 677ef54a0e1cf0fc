"""One layer for many calls: they see what the others have changed, and nothing else does."""

import asyncio
from pathlib import Path

from shepherd.errors import ToolError
from shepherd.tasks import in_thread_to_end
from shepherd.tools.layer.layer import Layer
from shepherd.tools.layer.merge import keep_bases_so_far


class SharedLayer:
    """The layer of a turn in the mode `review`; it is made at the first call that needs it."""

    def __init__(self) -> None:
        self.layer: Layer | None = None

    async def open(self, place: Path | None, root: Path) -> Layer:
        """The layer, which is made in the directory `place` if there is none.

        Raises OSError, and ToolError without a place.
        """
        if self.layer is None:
            if place is None:
                raise ToolError("no layer works here any more")
            self.layer = await asyncio.to_thread(Layer, place, root)
            self.layer.undecided.touch(mode=0o600)
        else:
            await asyncio.to_thread(keep_bases_so_far, self.layer)
        return self.layer

    async def drop(self) -> None:
        """Forget all changes in the layer, if there is one; raises OSError."""
        layer, self.layer = self.layer, None
        if layer is not None:
            await in_thread_to_end(layer.drop)
