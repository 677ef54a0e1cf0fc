"""Finds, lists and deletes saved conversations."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shepherd.errors import SessionError
from shepherd.messages import Role
from shepherd.transcript.journal import Transcript, delete_session
from shepherd.transcript.reading import SavedSession, read_header, read_session
from shepherd.transcript.records import Header, now


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One line of `shepherd sessions list`; `title` is the user's first message."""

    id: str
    cwd: str
    model: str
    updated: datetime
    messages: int
    title: str


def new_id(started: datetime) -> str:
    """A new id for a session that starts at `started` (in UTC); ids sort by their times."""
    part = started.microsecond * 0x1000 // 1_000_000
    return f"{started:%Y%m%d-%H%M%S}-{part:03x}{secrets.randbelow(0x1000):03x}"


class SessionStore:
    """The session files in one directory, which need not exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(
        self, cwd: Path, model: str, system_message: str, on_failure: Callable[[str], None]
    ) -> Transcript:
        """The transcript of a new session; see `Transcript` for `on_failure`."""
        header = Header(new_id(datetime.now(UTC)), str(cwd), model, system_message, now())
        return Transcript(self.directory / f"{header.id}.jsonl", header, on_failure)

    def reopen(self, id: str, on_failure: Callable[[str], None]) -> tuple[Transcript, SavedSession]:
        """Continue a session; `id` as for `find`."""
        return Transcript.reopen(self.find(id), on_failure)

    def read(self, id: str) -> SavedSession:
        """The current state of a session, without locking it; `id` as for `find`."""
        return read_session(self.find(id))

    def find(self, id: str) -> Path:
        """The file of the one session whose id starts with `id`; raises SessionError."""
        result = [p for p in self._files() if p.stem.startswith(id)]
        exact = [p for p in result if p.stem == id]
        if len(exact or result) == 1:
            return (exact or result)[0]
        if result:
            raise SessionError(f"{id} is the start of {len(result)} sessions; give more of it.")
        raise SessionError(f"No session {id}; `shepherd sessions list` shows all.")

    def latest(self, cwd: Path) -> str:
        """The id of the newest session of `cwd` with a message; raises SessionError if none."""
        newest = next((i for i in self.session_ids(cwd) if not _is_empty(self.find(i))), None)
        if newest is None:
            raise SessionError(f"No saved session of {cwd}; `shepherd sessions list` shows all.")
        return newest

    def session_ids(self, cwd: Path) -> Iterator[str]:
        """The ids of the sessions of `cwd`, the newest first, without those that are damaged."""
        for path in self._newest_first():
            try:
                if read_header(path).cwd == str(cwd):
                    yield path.stem
            except SessionError:
                continue  # `shepherd sessions list` shows it, with its error

    def summary(self, id: str) -> SessionSummary:
        """The summary of one session; `id` as for `find`."""
        return _summary(self.read(id))

    def newest(self, cwd: Path, limit: int) -> list[SessionSummary]:
        """The summaries of at most `limit` sessions of `cwd` with a message, the newest first."""
        summaries: list[SessionSummary] = []
        for session_id in self.session_ids(cwd):
            if len(summaries) >= limit:
                break
            with suppress(SessionError):  # `shepherd sessions list` shows it, with its error
                summary = self.summary(session_id)
                if summary.messages:
                    summaries.append(summary)
        return summaries

    def summaries(self) -> tuple[list[SessionSummary], list[str]]:
        """All sessions with a message, the newest first, and a sentence per unreadable file."""
        summaries: list[SessionSummary] = []
        problems: list[str] = []
        for path in self._newest_first():
            try:
                saved = read_session(path)
            except SessionError as error:
                problems.append(str(error))
                continue
            if saved.messages:
                summaries.append(_summary(saved))
        return summaries, problems

    def delete(self, id: str) -> str:
        """Delete a session and return its full id; raises SessionError if it is open elsewhere."""
        path = self.find(id)
        delete_session(path)
        return path.stem

    def _newest_first(self) -> list[Path]:
        """Files by their last change, which file systems store coarsely, then by their start."""
        return sorted(self._files(), key=lambda path: (_modified(path), path.stem), reverse=True)

    def _files(self) -> list[Path]:
        """All files except empty ones, whose processes ended before the first message."""
        return [path for path in self.directory.glob("*.jsonl") if _size(path) != 0]


def _size(path: Path) -> int | None:
    """The size in bytes; None if it is unknown, and opening the file then reports the error."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def _is_empty(path: Path) -> bool:
    """Whether it has no message; False if unreadable, and opening it then reports the error."""
    try:
        return not read_session(path).messages
    except SessionError:
        return False


def _modified(path: Path) -> int:
    """The time of the last change in nanoseconds."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # deleted since the directory was listed
        return 0


def _summary(saved: SavedSession) -> SessionSummary:
    users = (m.content or m.plain_text for m in saved.messages if m.role is Role.USER)
    return SessionSummary(
        id=saved.id,
        cwd=saved.header.cwd,
        model=saved.model,
        updated=datetime.fromtimestamp(_modified(saved.path) / 1e9, UTC),
        messages=len(saved.messages),
        title=" ".join(next(users, "").split()),
    )
