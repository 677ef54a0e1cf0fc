"""Properties of models, in lines of text."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from shepherd.cli.terminal.sanitize import sanitize

if TYPE_CHECKING:
    from shepherd.backends.llamacpp.native.gguf import ModelSummary
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from shepherd.backends.api.ollama_models import PullProgress

GIB, MIB = 2**30, 2**20


def size_text(size: int) -> str:
    """A number of bytes in a readable unit."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def file_line(summary: "ModelSummary") -> str:
    """A model file in one line, without its name."""
    context = f"{summary.context:,} tokens" if summary.context else "?"
    parts = [
        f"{size_text(summary.size):>9}",
        f"{summary.architecture:<10}",
        f"{summary.quantisation:<7}",
        f"{context:>15}",
        f"{summary.family:<8}",
        _fits(summary, min(summary.context, 8192)),
    ]
    return "  ".join(parts).rstrip()


def memory_text(summary: "ModelSummary", context: int, *, fitted: int = 0) -> str:
    """The memory that a model file needs with this context, and whether it is available.

    `fitted` is the context in tokens with which it is loaded if the settings leave that open.
    """
    from shepherd.backends.llamacpp.native.devices import available_memory

    available = available_memory()
    needed = summary.needs(context)
    text = f"about {size_text(needed)} with {context:,} tokens of context"
    if needed <= available:
        return f"{text}; fits ({size_text(available)} are free)"
    if 0 < fitted < context:
        return f"{text}; {size_text(available)} are free: it loads with {fitted:,} tokens"
    room = (available - summary.size) // summary.cache_bytes if summary.cache_bytes else 0
    if room > 0:
        fitting = room // 256 * 256
        return f"{text}; of {size_text(available)} free: fits with --context-size {fitting}"
    return f"{text}; too large: {size_text(available)} are free"


def print_rows(rows: Mapping[str, str]) -> None:
    """Print names and texts on stdout; empty texts are left out."""
    for key, text in rows.items():
        if text:
            typer.echo(sanitize(f"{key:<13} {text}"))


def print_table(rows: Sequence[Sequence[str]], right: int) -> None:
    """Print rows in columns on stdout; column `right` holds numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{text:>{width}}" if place == right else f"{text:<{width}}"
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo(sanitize("  ".join(cells).rstrip()))


def note(text: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(f"{sanitize(text)}\n")


def _fits(summary: "ModelSummary", context: int) -> str:
    from shepherd.backends.llamacpp.native.devices import available_memory

    return "fits" if summary.needs(context) <= available_memory() else "too large for the memory"


class PullBars:
    """Shows a bar for each large file on a terminal, otherwise a line; a line for other steps."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._last_status = ""
        self._digest = ""
        self._bar: Any = None  # huggingface_hub's types are incomplete

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
            if step.status not in (self._last_status, "success"):
                self._last_status = step.status
                note(step.status)
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
        if not self._is_terminal:
            note(f"{step.status} ({size_text(step.total)})")
            return
        from huggingface_hub.utils import tqdm  # the bars of other pulls

        self._bar = tqdm(
            desc=sanitize(step.status),
            total=step.total,
            initial=step.completed,
            unit="B",
            unit_scale=True,
        )

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
