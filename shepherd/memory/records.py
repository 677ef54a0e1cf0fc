"""What goes into the memory and what comes out of it, as plain data."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from shepherd.messages import Role


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation takes place: its working directory and the project that it is in."""

    directory: str
    project: str

    @classmethod
    def of(cls, cwd: Path) -> "Place":
        """The place of `cwd`; its project is the git repository around it, else `cwd` itself."""
        root = next((d for d in (cwd, *cwd.parents) if (d / ".git").exists()), cwd)
        return cls(str(cwd), str(root))


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that left a conversation; `tool` is the name of a result's tool, else ""."""

    session: str
    place: Place
    said: datetime
    role: Role
    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A hit: `text` is all of a short message, a part of a long one.

    `directory` is where it was said, "" if that is this project.
    """

    said: datetime
    role: Role
    tool: str
    directory: str
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact; `everywhere` if it holds for all projects."""

    key: str
    value: str
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """What there is: `text_bytes` is the text of the messages, `oldest` the first of them."""

    messages: int
    sessions: int
    text_bytes: int
    facts: int
    oldest: datetime | None
