"""A pull of Ollama's as it is shown."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shepherd.cli.commands.model_text import MIB, size_text, tell
from shepherd.cli.repl.clean import clean

if TYPE_CHECKING:
    from shepherd.backends.api.ollama.models import PullProgress


class PullBars:
    """A bar for each large file on a terminal, elsewhere a line; a line for each other step."""

    def __init__(self) -> None:
        self._seen = sys.stderr.isatty()
        self._told = ""
        self._digest = ""
        self._bar: Any = None  # what huggingface_hub has is partly untyped

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def show(self, step: "PullProgress") -> None:
        """Show one step."""
        if not step.total:
            self._close()
            self._digest = ""
            if step.status not in (self._told, "success"):
                self._told = step.status
                tell(step.status)
            return
        if step.total < MIB:  # a licence, a template
            return
        if step.digest != self._digest:
            self._begin(step)
        if self._bar is not None:
            self._bar.update(step.completed - self._bar.n)

    def _begin(self, step: "PullProgress") -> None:
        self._close()
        self._digest = step.digest
        if not self._seen:
            tell(f"{step.status} ({size_text(step.total)})")
            return
        from huggingface_hub.utils import tqdm  # the bars of other pulls

        self._bar = tqdm(
            desc=clean(step.status),
            total=step.total,
            initial=step.completed,
            unit="B",
            unit_scale=True,
        )

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
