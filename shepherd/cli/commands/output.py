"""What commands print: results on stdout, the rest on stderr, both without control characters."""

import sys
from collections.abc import Mapping, Sequence

from shepherd.cli.terminal.sanitize import sanitize


def show(text: str) -> None:
    """Print a part of the result."""
    sys.stdout.write(f"{sanitize(text)}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print what was done, or advice."""
    sys.stderr.write(f"{sanitize(text)}\n")


def warn(text: str) -> None:
    """Print a problem that does not end the command."""
    note(f"shepherd: {text}")


def show_rows(rows: Mapping[str, str], width: int = 13) -> None:
    """Print names, of this width, and texts; empty texts are left out."""
    for key, text in rows.items():
        if text:
            show(f"{key:<{width}} {text}")


def show_table(rows: Sequence[Sequence[str]], number_column: int | None = None) -> None:
    """Print rows in columns; the one with numbers is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        if number_column is not None:
            cells[number_column] = row[number_column].rjust(widths[number_column])
        show("  ".join(cells).rstrip())
