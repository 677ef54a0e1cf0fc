"""What is searched for."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Query:
    """A regular expression, the resolved directory, and which files in it.

    `single` is the name of the one file to search; else `glob` chooses, "" for all.
    """

    pattern: str
    root: Path
    glob: str = ""
    single: str = ""
