"""Where the lines of sessions are kept: files, or rows of a database."""

from collections.abc import Callable, Iterator
from typing import Protocol


class SessionLog(Protocol):
    """The lines of one session, which no other process can write meanwhile.

    All methods raise OSError or SessionError; what was written before then stays.
    """

    def read(self) -> bytes:
        """All lines with their newlines; the last one may be incomplete."""
        ...

    def cut(self, length: int) -> None:
        """Remove an incomplete last line, which begins after `length` bytes."""
        ...

    def append(self, data: bytes) -> None:
        """Add whole lines, all or none; a killed process does not lose them."""
        ...

    def replace_header(self, change: Callable[[bytes], bytes]) -> None:
        """Put `change` of the first line in its place; the length must stay."""
        ...

    def sync(self) -> None:
        """Make all lines durable."""
        ...

    def release(self) -> None:
        """Let other processes write the session; never raises."""
        ...


class SessionStorage(Protocol):
    """The sessions in one place; all methods raise SessionError."""

    def name(self, id: str) -> str:
        """The session's name in messages."""
        ...

    def ids(self) -> list[str]:
        """The ids of all sessions, the one that changed last first."""
        ...

    def headers(self) -> Iterator[tuple[str, bytes]]:
        """The ids in the same order, each with its first line, b"" if it can't be read."""
        ...

    def read(self, id: str) -> bytes:
        """The lines of a session, without locking it."""
        ...

    def modified(self, id: str) -> float:
        """The time of the last change in seconds since 1970; 0 if there is no such session."""
        ...

    def create(self, id: str, notify: Callable[[str], None]) -> SessionLog:
        """A new session; `notify` gets a sentence if lines can only be saved later."""
        ...

    def open(self, id: str, notify: Callable[[str], None]) -> SessionLog:
        """An existing session; raises SessionError if it is open in another process."""
        ...

    def delete(self, id: str) -> None:
        """Delete a session; raises SessionError if it is open elsewhere."""
        ...


def open_elsewhere(id: str) -> str:
    """The message for a session that another process holds."""
    return f"Session {id} is open in another Shepherd."
