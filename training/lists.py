"""The lists of words, phrasings and texts in `lists/*.txt`: sections headed `== name`."""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "lists"


@cache
def sections(file: str) -> dict[str, tuple[str, ...]]:
    """The sections of `lists/FILE.txt`, each a tuple of its lines."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / f"{file}.txt").read_text().splitlines():
        if line.startswith("== "):
            found[line[3:]] = []
        elif line:
            found[list(found)[-1]].append(line)
    return {name: tuple(lines) for name, lines in found.items()}


@cache
def words(section: str) -> tuple[str, ...]:
    """The words of a section of `lists/words.txt`."""
    return tuple(" ".join(sections("words")[section]).split())
